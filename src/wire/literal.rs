//! JSON string literals and the texts that they stand for.

use serde_json::Value;

/// The literal can't be read as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("string literal is not Unicode text")]
pub struct LiteralError;

/// Reads the bytes between the quotes of a literal.
///
/// Bytes that aren't UTF-8 and escapes of half a surrogate pair are an error.
pub fn unescape(raw: &[u8]) -> Result<String, LiteralError> {
    if memchr::memchr(b'\\', raw).is_none() {
        return std::str::from_utf8(raw)
            .map(str::to_owned)
            .map_err(|_| LiteralError);
    }
    if let Some(text) = with_letters_resolved(raw) {
        return String::from_utf8(text).map_err(|_| LiteralError);
    }
    let mut quoted = Vec::with_capacity(raw.len() + 2);
    quoted.push(b'"');
    quoted.extend_from_slice(raw);
    quoted.push(b'"');
    serde_json::from_slice(&quoted).map_err(|_| LiteralError)
}

/// Resolves the escapes of one letter, in which JSON stands within a string, faster than the library;
/// `None` where there are others.
fn with_letters_resolved(raw: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let (before, escape) = rest.split_at(at);
        let (letter, after) = escape.get(1..)?.split_first()?;
        text.extend_from_slice(before);
        text.push(match letter {
            b'"' | b'\\' | b'/' => *letter,
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 0x08,
            b'f' => 0x0C,
            _ => return None,
        });
        rest = after;
    }
    text.extend_from_slice(rest);
    Some(text)
}

/// How many bytes of text [`unescape`] would give, which are never put together.
pub fn length(raw: &[u8]) -> Result<usize, LiteralError> {
    let mut rest = std::str::from_utf8(raw).map_err(|_| LiteralError)?;
    let mut length = 0;
    while let Some((before, escape)) = rest.split_once('\\') {
        length += before.len();
        let (kind, after) = escape.split_at_checked(1).ok_or(LiteralError)?;
        let (bytes, after) = match kind {
            "u" => unicode_escape(after).ok_or(LiteralError)?,
            _ => (1, after),
        };
        length += bytes;
        rest = after;
    }
    Ok(length + rest.len())
}

/// The bytes of the character that stands behind `\u`, and what stands behind its last digit.
fn unicode_escape(text: &str) -> Option<(usize, &str)> {
    let unit = |text: &str| u16::from_str_radix(text, 16).ok();
    let (first, after) = text.split_at_checked(4)?;
    let first = unit(first)?;
    if let Some(plain) = char::from_u32(first.into()) {
        return Some((plain.len_utf8(), after));
    }
    let (second, after) = after.strip_prefix("\\u")?.split_at_checked(4)?;
    let pair = char::decode_utf16([first, unit(second)?]).next()?;
    Some((pair.ok()?.len_utf8(), after))
}

/// Writes `text` as a literal, quotes included.
pub fn quote(text: &str) -> Vec<u8> {
    Value::from(text).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_survives_quoting_and_reading() {
        for text in ["", "plain", "\"\\\n\u{0}\u{7f}", "\u{1F600} ü"] {
            let quoted = quote(text);
            let within = &quoted[1..quoted.len() - 1];
            assert_eq!(unescape(within).as_deref(), Ok(text));
            assert_eq!(length(within), Ok(text.len()));
        }
    }

    #[test]
    fn what_is_not_text_is_an_error() {
        assert_eq!(unescape(br"\ud83d"), Err(LiteralError));
        assert_eq!(unescape(b"\xff"), Err(LiteralError));
        assert_eq!(unescape(b"\\n\xff"), Err(LiteralError));
        for odd in [
            &br"\ud83d"[..],
            br"\ud83d\u0041",
            br"\udc00",
            br"\u12",
            b"\\",
            b"\xff",
        ] {
            assert_eq!(length(odd), Err(LiteralError), "{odd:?}");
        }
    }

    proptest! {
        #[test]
        fn escapes_are_read_as_the_library_reads_them(raw in r#"([a-z\u{e9}]|\\[nrtbf"\\/]|\\u00e9){0,20}(\\[xu]?)?"#) {
            let text: Result<String, _> = serde_json::from_str(&format!("\"{raw}\""));
            prop_assert_eq!(unescape(raw.as_bytes()).ok(), text.ok());
        }

        #[test]
        fn length_is_that_of_the_text(raw in r#"([a-z\u{e9}\u{1F600}]|\\[nrt"\\/]|\\u00[4-9e][1-9a-f]|\\ud83d\\ude0[0-9]|\\u20aC){0,20}"#) {
            let text = unescape(raw.as_bytes()).unwrap();
            prop_assert_eq!(length(raw.as_bytes()), Ok(text.len()));
        }
    }
}
