//! What a JSON-RPC line is, learnt from its bytes as they pass: for lines too long to be held.

use bytes::Bytes;

use crate::base::ids::RequestId;
use crate::wire::literal;

/// Reads `method` and `id` of a JSON object that comes in parts, and keeps nothing else.
///
/// It takes what it is given for JSON and never fails: who wants to know whether it is JSON must
/// read the line whole. Of a member that occurs twice the last copy counts.
#[derive(Debug, Default)]
pub struct Lead {
    depth: usize,
    /// Whether the outermost object is over: what stands behind it isn't its own.
    is_over: bool,
    string: Option<Text>,
    /// Whether the colon of a member of the outermost object has passed.
    in_value: bool,
    key: Vec<u8>,
    value: Vec<u8>,
    method: Option<Vec<u8>>,
    id: Option<Vec<u8>>,
}

/// Where in a string the bytes stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Plain,
    Escaped,
}

impl Lead {
    /// Reads on.
    pub fn push(&mut self, part: &[u8]) {
        for byte in part {
            if self.is_over {
                return;
            }
            self.step(*byte);
        }
    }

    /// Takes what has come for all there is: a last member without its end counts.
    pub fn finish(&mut self) {
        if !self.is_over {
            self.end_member();
        }
    }

    /// The method, escapes resolved, if it has passed.
    pub fn method(&self) -> Option<String> {
        let raw = self.method.as_deref()?;
        let text = raw.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        literal::unescape(text).ok()
    }

    /// Whether the method begins with `prefix`, however it goes on: it may be longer than what is kept,
    /// or no text in the end.
    pub fn method_begins_with(&self, prefix: &str) -> bool {
        let raw = self.method.as_deref().and_then(|it| it.strip_prefix(b"\""));
        let raw = raw.unwrap_or_default();
        // An escape takes six bytes at the most.
        let longest = raw.len().min(6 * prefix.len());
        let beginnings = (0..=longest).filter_map(|end| literal::unescape(raw.get(..end)?).ok());
        beginnings.into_iter().any(|text| text.starts_with(prefix))
    }

    /// The id as it stands, if it has passed and is a string or a number.
    pub fn id(&self) -> Option<RequestId> {
        let raw = self.id.as_deref()?;
        let value: serde_json::Value = serde_json::from_slice(raw).ok()?;
        let is_id = value.is_string() || value.is_number();
        is_id.then(|| RequestId::new(Bytes::copy_from_slice(raw)))
    }

    fn step(&mut self, byte: u8) {
        if let Some(text) = self.string {
            self.keep(byte);
            self.string = match (text, byte) {
                (Text::Plain, b'"') => None,
                (Text::Plain, b'\\') => Some(Text::Escaped),
                (Text::Plain | Text::Escaped, _) => Some(Text::Plain),
            };
            return;
        }
        match byte {
            b'"' => {
                self.keep(byte);
                self.string = Some(Text::Plain);
            }
            b'{' | b'[' => {
                self.keep(byte);
                self.depth += 1;
            }
            b'}' | b']' => {
                self.end_member();
                self.is_over |= self.depth <= 1;
                self.depth = self.depth.saturating_sub(1);
            }
            b',' => self.end_member(),
            b':' if self.depth == 1 => self.in_value = true,
            b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => self.keep(byte),
        }
    }

    /// Keeps a byte of the outermost object's names and plain values.
    fn keep(&mut self, byte: u8) {
        if self.depth != 1 {
            return;
        }
        let kept = if self.in_value {
            &mut self.value
        } else {
            &mut self.key
        };
        // What is cut here is no name or id of anybody's: it ends without its quote.
        if kept.len() < MAX_KEPT_BYTES {
            kept.push(byte);
        }
    }

    fn end_member(&mut self) {
        if self.depth != 1 {
            return;
        }
        let value = std::mem::take(&mut self.value);
        let key = std::mem::take(&mut self.key);
        self.in_value = false;
        let key = key
            .strip_prefix(b"\"")
            .and_then(|key| key.strip_suffix(b"\""))
            .and_then(|key| literal::unescape(key).ok());
        match key.as_deref() {
            Some("method") => self.method = Some(value),
            Some("id") => self.id = Some(value),
            _ => {}
        }
    }
}

/// Names and values that are longer aren't read.
const MAX_KEPT_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, piece: usize) -> (Option<String>, Option<String>) {
        let mut lead = Lead::default();
        for part in text.as_bytes().chunks(piece) {
            lead.push(part);
        }
        let id = lead.id();
        let id = id.map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned());
        (lead.method(), id)
    }

    #[test]
    fn method_and_id_are_read_wherever_they_stand() {
        let found = |method: &str, id: &str| (Some(method.to_owned()), Some(id.to_owned()));
        for piece in [1, 3, 1000] {
            let text = r#" { "id" : "a,\"}" , "params":{"id":7,"x":[{"method":"no"}]},"method":"m\u002f" } "#;
            assert_eq!(read(text, piece), found("m/", r#""a,\"}""#));
            let text = r#"{"method":"a","id":1,"method":"b","\u0069d":-2.5}"#;
            assert_eq!(read(text, piece), found("b", "-2.5"));
        }
    }

    #[test]
    fn beginning_of_a_method_is_known_whatever_comes_behind_it() {
        let begins = |method: &str| {
            let mut lead = Lead::default();
            // The closing brace isn't there.
            lead.push(format!("{{\"method\":{method}").as_bytes());
            lead.finish();
            lead.method_begins_with("relay/")
        };
        let long = format!("\"relay/{}\"", "x".repeat(2000));
        let escaped = r#""\u0072\u0065\u006c\u0061\u0079\u002f""#;
        for method in [
            "\"relay/\"",
            "\"relay/info\"",
            r#""relay/\ud800""#,
            escaped,
            &long,
        ] {
            assert!(begins(method), "{method}");
        }
        for method in [
            "\"\"",
            "\"relay\"",
            "\"thread/relay/\"",
            "\"Relay/info\"",
            "7",
            "null",
        ] {
            assert!(!begins(method), "{method}");
        }
    }

    #[test]
    fn what_is_no_request_has_no_method_and_no_id() {
        let long = format!(r#"{{"method":"{0}","id":"{0}"}}"#, "x".repeat(2000));
        for text in [
            "",
            "null",
            "[]",
            r#"{"method":1,"id":null}"#,
            r#"{"id":{}}"#,
            "}}{",
            &long,
        ] {
            assert_eq!(read(text, 1), (None, None), "{text}");
        }
        assert_eq!(read(r#"{"method":"a"#, 1), (None, None));
    }
}
