//! What the relay tells a guardian to start, as bytes on the wire between the two.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A program and its arguments, as a count and then each with its length.
///
/// They don't go over the guardian's own command line: it would look like codex's.
pub(super) fn encode<'a>(words: impl ExactSizeIterator<Item = &'a OsStr>) -> Vec<u8> {
    let mut out = size(words.len()).to_vec();
    for word in words {
        out.extend(size(word.len()));
        out.extend(word.as_bytes());
    }
    out
}

/// Reads what [`encode`] made; an error where it isn't whole.
pub(super) fn decode(from: &mut impl Read) -> io::Result<Vec<OsString>> {
    let count = read_size(from)?;
    (0..count)
        .map(|_| {
            let length = u64::from(read_size(from)?);
            let mut word = Vec::new();
            let read = from.take(length).read_to_end(&mut word)?;
            if u64::try_from(read).is_ok_and(|read| read == length) {
                Ok(OsString::from_vec(word))
            } else {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
        })
        .collect()
}

fn size(length: usize) -> [u8; 4] {
    // The system has no room for longer command lines.
    u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes()
}

fn read_size(from: &mut impl Read) -> io::Result<u32> {
    let mut size = [0; 4];
    from.read_exact(&mut size)?;
    Ok(u32::from_le_bytes(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_any_bytes_come_through_and_a_cut_is_an_error() {
        let words = [
            OsString::from("a b"),
            OsString::new(),
            OsString::from_vec(vec![0xFF, b'\n']),
        ];
        let bytes = encode(words.iter().map(OsString::as_os_str));
        assert_eq!(decode(&mut bytes.as_slice()).unwrap(), words);
        for cut in 0..bytes.len() {
            assert!(decode(&mut &bytes[..cut]).is_err(), "{cut}");
        }
    }
}
