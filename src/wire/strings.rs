//! The content of JSON strings, looked through in blocks.

use wide::u8x16;

/// Bytes that are looked at together.
pub(super) const BLOCK_BYTES: usize = 64;

/// What isn't plain content of a string: a bit for each control character, quote and backslash of
/// `block`, the first byte's lowest.
#[inline]
pub(super) fn specials(block: &[u8; BLOCK_BYTES]) -> u64 {
    let last_control = u8x16::splat(0x1F);
    let quote = u8x16::splat(b'"');
    let backslash = u8x16::splat(b'\\');
    let (lanes, _) = block.as_chunks::<16>();
    lanes.iter().rev().fold(0, |bits, lane| {
        let lane = u8x16::from(*lane);
        let is_control = lane.max(last_control).simd_eq(last_control);
        let is_special = is_control | lane.simd_eq(quote) | lane.simd_eq(backslash);
        bits << 16 | u64::from(is_special.to_bitmask())
    })
}

/// Whether `byte` isn't plain content of a string.
pub(super) fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Where the string goes on behind the backslash at byte `at`, if what follows is an escape.
#[inline]
pub(super) fn escape_end(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at + 1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 2),
        b'u' => unicode_end(text, at),
        _ => None,
    }
}

fn unicode_end(text: &[u8], at: usize) -> Option<usize> {
    let digits = text.get(at + 2..at + 6)?;
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    is_hex.then_some(at + 6)
}

/// Where the string whose content stands at byte `at` ends, behind its closing quote; else the byte
/// that can't stand there.
pub(super) fn content_end(text: &[u8], at: usize) -> Result<usize, usize> {
    let at = skim(text, at);
    if text.get(at) == Some(&b'"') {
        return Ok(at + 1);
    }
    Err(at)
}

/// The first byte from `at` on that isn't content of a string: its closing quote, an escape that
/// isn't whole, what can't stand there, or the end of `text`.
pub(super) fn skim(text: &[u8], mut at: usize) -> usize {
    'blocks: while let Some(block) = text.get(at..).and_then(<[u8]>::first_chunk) {
        let mut left = specials(block);
        while left != 0 {
            let here = at + left.trailing_zeros() as usize;
            let is_escape = text.get(here) == Some(&b'\\');
            let Some(next) = is_escape.then(|| escape_end(text, here)).flatten() else {
                return here;
            };
            if next >= at + BLOCK_BYTES {
                at = next;
                continue 'blocks;
            }
            left &= u64::MAX << (next - at);
        }
        at += BLOCK_BYTES;
    }
    loop {
        match text.get(at) {
            Some(b'\\') => match escape_end(text, at) {
                Some(next) => at = next,
                None => return at,
            },
            Some(byte) if !is_special(*byte) => at += 1,
            _ => return at,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_byte_is_told_at_every_place() {
        for byte in 0..=u8::MAX {
            for at in 0..BLOCK_BYTES {
                let mut block = [b'x'; BLOCK_BYTES];
                block[at] = byte;
                let expected = u64::from(is_special(byte)) << at;
                assert_eq!(specials(&block), expected, "{byte:#x} at {at}");
            }
        }
    }

    proptest! {
        #[test]
        fn blocks_and_single_bytes_agree(text in r#"([a-z]{0,40}(\\[nu"x]|"|\x00|\\u00e9)?){0,12}"#) {
            let text = text.as_bytes();
            let mut at = 0;
            let expected = loop {
                match text.get(at) {
                    Some(b'"') => break Ok(at + 1),
                    Some(b'\\') => match escape_end(text, at) {
                        Some(next) => at = next,
                        None => break Err(at),
                    },
                    Some(byte) if !is_special(*byte) => at += 1,
                    _ => break Err(at),
                }
            };
            prop_assert_eq!(content_end(text, 0), expected);
        }
    }
}
