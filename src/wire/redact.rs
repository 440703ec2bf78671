//! Taking a secret word out of text that passes, in whatever spelling quoting has given it.
//!
//! The word is one of hexadecimal digits. Found are also capitals, JSON's `\u0061` (behind any of the
//! backslashes that JSON within JSON brings) and `%61` of URLs (also `%2561`), mixed at will. Not found is
//! what no quoting makes of a word: another encoding of the whole, such as Base64, and a word with
//! something in the middle of it.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::base::secret::Secret;
use crate::wire::edit::Edit;

/// Finds one secret word in text.
#[derive(Debug)]
pub struct Redactor {
    word: Secret,
}

/// Whether the word stands somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spelled {
    /// It begins there, and the text is over before it is.
    Begun,
    /// It doesn't.
    No,
    /// It ends here.
    To(usize),
}

/// What one place of a text stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Letter {
    /// An escape that isn't whole.
    Begun,
    /// Nothing that the word is made of.
    None,
    /// This letter; the next stands there.
    Is(u8, usize),
}

impl Redactor {
    /// Looks for `secret`.
    pub fn new(secret: &Secret) -> Self {
        Self {
            word: secret.clone(),
        }
    }

    /// The edits that take the word out of a whole line.
    pub fn edits(&self, line: &[u8]) -> Vec<Edit> {
        let mut edits = Vec::new();
        let mut from = 0;
        while let Some(found) = self.find(line, from) {
            from = found.end;
            edits.push(Edit::replace(found, INSTEAD));
        }
        edits
    }

    /// The first place from byte `from` on where the word stands.
    ///
    /// No spelling is shorter than the word: it is enough to look at every so many bytes, and around
    /// those that the word may be made of.
    fn find(&self, text: &[u8], from: usize) -> Option<Range<usize>> {
        let length = self.word.expose().len();
        let mut from = from;
        let mut probe = (from + length).checked_sub(1)?;
        while let Some(byte) = text.get(probe) {
            if !may_be_part(*byte) {
                probe += length;
                continue;
            }
            let before = text.get(from..probe).unwrap_or_default();
            let start = before.iter().rposition(|byte| !may_be_part(*byte));
            let mut at = start.map_or(from, |at| from + at + 1);
            while text.get(at).is_some_and(|byte| may_be_part(*byte)) {
                if let Spelled::To(end) = self.spelled(text, at) {
                    return Some(at..end);
                }
                at += 1;
            }
            from = at;
            probe = at + length;
        }
        None
    }

    /// Whether the word begins at byte `at`.
    fn spelled(&self, text: &[u8], mut at: usize) -> Spelled {
        for wanted in self.word.expose().bytes() {
            match letter(text, at) {
                Letter::Is(letter, next) if letter.eq_ignore_ascii_case(&wanted) => at = next,
                Letter::Begun => return Spelled::Begun,
                Letter::Is(..) | Letter::None => return Spelled::No,
            }
        }
        Spelled::To(at)
    }

    /// Where the word may have begun at the end of `text`; its length where it can't have.
    fn begun(&self, text: &[u8]) -> usize {
        let longest = self.word.expose().len() * MAX_LETTER_BYTES;
        let mut from = text.len().saturating_sub(longest)..text.len();
        let begun = from.find(|at| self.spelled(text, *at) == Spelled::Begun);
        begun.unwrap_or(text.len())
    }
}

/// Whether a spelling of the word may have this byte in it.
fn may_be_part(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || matches!(byte, b'\\' | b'u' | b'%')
}

/// What stands at byte `at`.
fn letter(text: &[u8], at: usize) -> Letter {
    let rest = text.get(at..).unwrap_or_default();
    match rest.first() {
        None => Letter::Begun,
        Some(b'\\') => {
            let near = rest.iter().take(MAX_BACKSLASHES + 1);
            let slashes = near.take_while(|byte| **byte == b'\\').count();
            if slashes > MAX_BACKSLASHES {
                return Letter::None;
            }
            escaped(text, at + slashes, b"u00")
        }
        Some(b'%') => {
            let quoted = rest.get(1..).unwrap_or_default().chunks_exact(2);
            let levels = quoted
                .take(MAX_PERCENT_LEVELS)
                .take_while(|it| *it == b"25")
                .count();
            escaped(text, at + 1 + 2 * levels, b"")
        }
        Some(byte) if byte.is_ascii_hexdigit() => Letter::Is(*byte, at + 1),
        Some(_) => Letter::None,
    }
}

/// The letter whose number stands at byte `at` behind `mark`, in two hexadecimal digits.
fn escaped(text: &[u8], at: usize, mark: &[u8]) -> Letter {
    let rest = text.get(at..).unwrap_or_default();
    let end = mark.len() + 2;
    let Some(whole) = rest.get(..end) else {
        let fits = rest
            .iter()
            .enumerate()
            .all(|(at, byte)| match mark.get(at) {
                Some(wanted) => byte == wanted,
                None => byte.is_ascii_hexdigit(),
            });
        return if fits { Letter::Begun } else { Letter::None };
    };
    let digits = whole
        .strip_prefix(mark)
        .and_then(|it| std::str::from_utf8(it).ok());
    match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
        Some(letter) => Letter::Is(letter, at + end),
        None => Letter::None,
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
        let mut out = BytesMut::with_capacity(self.held.len());
        while let Some(found) = self.redactor.find(&self.held, 0) {
            out.extend_from_slice(&self.held.split_to(found.start));
            out.extend_from_slice(INSTEAD.as_bytes());
            drop(self.held.split_to(found.len()));
        }
        let begun = self.redactor.begun(&self.held);
        out.extend_from_slice(&self.held.split_to(begun));
        out.freeze()
    }

    /// Gives what was held back at the end of the stream.
    pub fn finish(&mut self) -> Bytes {
        self.held.split().freeze()
    }
}

/// What stands in place of the word.
const INSTEAD: &str = "<redacted>";

/// JSON within JSON within JSON within JSON.
const MAX_BACKSLASHES: usize = 8;

/// A URL within a URL, and so on.
const MAX_PERCENT_LEVELS: usize = 3;

/// The longest spelling of one letter.
const MAX_LETTER_BYTES: usize = MAX_BACKSLASHES + 5;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::edit::apply;

    fn streamed(secret: &Secret, chunks: &[&[u8]]) -> String {
        let mut stream = StreamRedactor::new(secret);
        let mut out = Vec::new();
        for chunk in chunks {
            out.extend_from_slice(&stream.push(chunk));
        }
        out.extend_from_slice(&stream.finish());
        String::from_utf8(out).unwrap()
    }

    fn redacted(secret: &Secret, line: &str) -> String {
        let edits = Redactor::new(secret).edits(line.as_bytes());
        let line = apply(&Bytes::from(line.to_owned()), edits);
        String::from_utf8(line.to_vec()).unwrap()
    }

    #[test]
    fn word_is_taken_out_however_the_stream_is_cut() {
        let secret = Secret::from_random([0x1A; 32]);
        let word = secret.expose();
        let text = format!("1a1a a {word}/v1 {word}{word} 1a");
        let expected = "1a1a a <redacted>/v1 <redacted><redacted> 1a";
        for cut in 0..=text.len() {
            let (a, b) = text.as_bytes().split_at(cut);
            assert_eq!(streamed(&secret, &[a, b]), expected, "cut at {cut}");
        }
    }

    #[test]
    fn text_that_cannot_begin_the_word_is_not_held_back() {
        let secret = Secret::from_random([0x1A; 32]);
        for text in ["a line\n", "C:\\new\\", "100 %d", "\\\\\\u00z"] {
            let mut stream = StreamRedactor::new(&secret);
            let passed = stream.push(format!("{text}.").as_bytes());
            assert_eq!(passed, format!("{text}."));
        }
    }

    #[test]
    fn word_is_found_in_every_spelling_that_quoting_gives_it() {
        let secret =
            Secret::from_random(std::array::from_fn(|at| 0xA0 + u8::try_from(at).unwrap()));
        let word = secret.expose();
        let all = |spell: &dyn Fn(u8) -> String| word.bytes().map(spell).collect::<String>();
        for spelling in [
            word.to_uppercase(),
            all(&|byte| format!("\\u{byte:04x}")),
            all(&|byte| format!("\\u{byte:04X}")),
            all(&|byte| format!("\\\\u{byte:04x}")),
            all(&|byte| format!("\\\\\\\\u{byte:04x}")),
            all(&|byte| format!("%{byte:02x}")),
            all(&|byte| format!("%{byte:02X}")),
            all(&|byte| format!("%25{byte:02x}")),
        ] {
            // Behind what could be the beginning of an escape, or of the word itself, as well.
            for before in ["", "\\", "%", "a0", "\\u00", "x", "%a0a0"] {
                let line = format!("{before}{spelling}/v1");
                let shown = redacted(&secret, &line);
                assert!(shown.ends_with("<redacted>/v1"), "{line}: {shown}");
                assert!(shown.len() < before.len() + 20, "{line}: {shown}");
            }
        }
    }

    #[test]
    fn long_runs_of_what_the_word_is_made_of_are_gone_through_once() {
        let secret = Secret::from_random([0x5E; 32]);
        let word = secret.expose();
        // Anything that grows with the square of these would not end.
        for run in ["\\", "%25", "u00", "5e5d"] {
            let run = run.repeat(4 << 20);
            assert!(Redactor::new(&secret).edits(run.as_bytes()).is_empty());
        }
        let words = word.repeat(10_000);
        assert_eq!(Redactor::new(&secret).edits(words.as_bytes()).len(), 10_000);
    }

    proptest! {
        #[test]
        fn spellings_may_be_mixed_and_cut_anywhere(
            spellings in prop::collection::vec(0..6_u8, 64),
            bits in any::<[u8; 32]>(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
            noise in "[0-9a-fu%\\\\ xyz]{0,80}",
        ) {
            let secret = Secret::from_random(bits);
            let spelled = secret.expose().bytes().zip(spellings).map(|(byte, how)| match how {
                0 => format!("\\u{byte:04x}"),
                1 => format!("\\\\u{byte:04X}"),
                2 => format!("%{byte:02x}"),
                3 => format!("%25{byte:02X}"),
                4 => char::from(byte).to_ascii_uppercase().to_string(),
                _ => char::from(byte).to_string(),
            });
            let spelled: String = spelled.collect();
            let line = format!("{noise} {spelled} {noise}");
            let expected = format!("{noise} <redacted> {noise}");
            prop_assert_eq!(&redacted(&secret, &line), &expected);
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(line.len() + 1)).collect();
            at.sort_unstable();
            let mut chunks = Vec::new();
            let mut from = 0;
            for cut in at.into_iter().chain([line.len()]) {
                chunks.push(&line.as_bytes()[from..cut]);
                from = cut;
            }
            prop_assert_eq!(streamed(&secret, &chunks), expected);
        }
    }
}
