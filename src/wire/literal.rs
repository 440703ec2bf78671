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
    if !raw.contains(&b'\\') {
        return std::str::from_utf8(raw)
            .map(str::to_owned)
            .map_err(|_| LiteralError);
    }
    let mut quoted = Vec::with_capacity(raw.len() + 2);
    quoted.push(b'"');
    quoted.extend_from_slice(raw);
    quoted.push(b'"');
    serde_json::from_slice(&quoted).map_err(|_| LiteralError)
}

/// Writes `text` as a literal, quotes included.
pub fn quote(text: &str) -> Vec<u8> {
    Value::from(text).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_survives_quoting_and_reading() {
        for text in ["", "plain", "\"\\\n\u{0}\u{7f}", "\u{1F600} ü"] {
            let quoted = quote(text);
            assert_eq!(unescape(&quoted[1..quoted.len() - 1]).as_deref(), Ok(text));
        }
    }

    #[test]
    fn what_is_not_text_is_an_error() {
        assert_eq!(unescape(br"\ud83d"), Err(LiteralError));
        assert_eq!(unescape(b"\xff"), Err(LiteralError));
        assert_eq!(unescape(b"\\n\xff"), Err(LiteralError));
    }
}
