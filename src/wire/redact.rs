//! Taking a secret word out of text that passes.

use bytes::{Bytes, BytesMut};
use memchr::memmem::Finder;

use crate::base::secret::Secret;
use crate::wire::edit::Edit;

/// Finds one secret word in text.
#[derive(Debug)]
pub struct Redactor {
    finder: Finder<'static>,
}

impl Redactor {
    /// Looks for `secret`.
    pub fn new(secret: &Secret) -> Self {
        Self {
            finder: Finder::new(secret.expose().as_bytes()).into_owned(),
        }
    }

    /// The edits that take the word out of a whole line.
    pub fn edits(&self, line: &[u8]) -> Vec<Edit> {
        let length = self.finder.needle().len();
        self.finder
            .find_iter(line)
            .map(|at| Edit::replace(at..at + length, INSTEAD))
            .collect()
    }
}

/// Takes the word out of a stream that comes in chunks.
///
/// Holds back only bytes that may be the beginning of the word.
#[derive(Debug)]
pub struct StreamRedactor {
    redactor: Redactor,
    held: BytesMut,
}

impl StreamRedactor {
    /// Looks for `secret`.
    pub fn new(secret: &Secret) -> Self {
        Self {
            redactor: Redactor::new(secret),
            held: BytesMut::new(),
        }
    }

    /// Takes a chunk, gives what may go on.
    pub fn push(&mut self, chunk: &[u8]) -> Bytes {
        self.held.extend_from_slice(chunk);
        let needle = self.redactor.finder.needle();
        let mut out = BytesMut::with_capacity(self.held.len());
        while let Some(at) = self.redactor.finder.find(&self.held) {
            out.extend_from_slice(&self.held.split_to(at));
            out.extend_from_slice(INSTEAD.as_bytes());
            drop(self.held.split_to(needle.len()));
        }
        let longest = self.held.len().min(needle.len().saturating_sub(1));
        let begun = (1..=longest)
            .rev()
            .find(|count| needle.starts_with(&tail(&self.held, *count)))
            .unwrap_or(0);
        out.extend_from_slice(&self.held.split_to(self.held.len() - begun));
        out.freeze()
    }

    /// Gives what was held back at the end of the stream.
    pub fn finish(&mut self) -> Bytes {
        self.held.split().freeze()
    }
}

fn tail(bytes: &[u8], count: usize) -> Vec<u8> {
    bytes.iter().skip(bytes.len() - count).copied().collect()
}

/// What stands in place of the word.
const INSTEAD: &str = "<redacted>";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_is_taken_out_however_the_stream_is_cut() {
        let secret = Secret::from_random([0x1A; 32]);
        let word = secret.expose();
        let text = format!("1a1a a {word}/v1 {word}{word} 1a");
        let expected = "1a1a a <redacted>/v1 <redacted><redacted> 1a";
        for cut in 0..=text.len() {
            let mut stream = StreamRedactor::new(&secret);
            let mut out = stream.push(&text.as_bytes()[..cut]).to_vec();
            out.extend_from_slice(&stream.push(&text.as_bytes()[cut..]));
            out.extend_from_slice(&stream.finish());
            assert_eq!(String::from_utf8(out).unwrap(), expected, "cut at {cut}");
        }
    }

    #[test]
    fn text_that_cannot_begin_the_word_is_not_held_back() {
        let secret = Secret::from_random([0x1A; 32]);
        assert_eq!(StreamRedactor::new(&secret).push(b"a line\n"), "a line\n");
    }
}
