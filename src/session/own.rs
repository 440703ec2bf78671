//! Requests of the relay's own on the client's stream: ids that can't collide, answers that the
//! client never sees.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::base::ids::RequestId;

/// Makes requests and knows their answers again.
#[derive(Debug)]
pub struct OwnRequests {
    /// Random, so that no id of the client begins like it.
    prefix: String,
    next: u64,
}

/// The number of one request of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnId(u64);

/// Codex's answer to a request of our own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnAnswer {
    /// Which request it answers.
    pub id: OwnId,
    /// The whole line.
    pub line: Bytes,
}

impl OwnRequests {
    /// Numbers requests behind `prefix`, which has no character that JSON escapes.
    pub fn new(prefix: String) -> Self {
        Self { prefix, next: 0 }
    }

    /// Makes the line of a request.
    pub fn ask(&mut self, method: &str, params: &Value) -> (OwnId, Bytes) {
        let id = OwnId(self.next);
        self.next += 1;
        let name = format!("{}{}", self.prefix, id.0);
        let line = json!({ "id": name, "method": method, "params": params });
        (id, Bytes::from(format!("{line}\n")))
    }

    /// Makes the line of a request whose params are JSON already.
    pub fn ask_raw(&mut self, method: &str, params: &[u8]) -> (OwnId, Bytes) {
        let id = OwnId(self.next);
        self.next += 1;
        let head = format!(
            "{{\"id\":\"{}{}\",\"method\":\"{method}\",\"params\":",
            self.prefix, id.0
        );
        (id, [head.as_bytes(), params, b"}\n"].concat().into())
    }

    /// Which request of ours the id of an answer belongs to.
    pub fn recognize(&self, id: &RequestId) -> Option<OwnId> {
        let text = std::str::from_utf8(id.as_bytes()).ok()?;
        let number = text
            .strip_prefix('"')?
            .strip_suffix('"')?
            .strip_prefix(&self.prefix)?;
        number.parse().ok().map(OwnId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_ids_are_known_again_and_others_are_not() {
        let mut own = OwnRequests::new("relay-x-".to_owned());
        let (first, line) = own.ask("config/read", &json!({}));
        assert_eq!(
            line,
            "{\"id\":\"relay-x-0\",\"method\":\"config/read\",\"params\":{}}\n"
        );
        let id = |raw: &'static str| RequestId::new(Bytes::from_static(raw.as_bytes()));
        assert_eq!(own.recognize(&id("\"relay-x-0\"")), Some(first));
        for foreign in [
            "0",
            "\"0\"",
            "\"relay-y-0\"",
            "\"relay-x-\"",
            "\"relay-x-0a\"",
        ] {
            assert_eq!(own.recognize(&id(foreign)), None, "{foreign}");
        }
    }
}
