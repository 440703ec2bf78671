//! One request of codex as somebody saw it: at the model endpoint, or right behind codex.

use std::fmt;
use std::sync::OnceLock;

use bytes::Bytes;
use serde_json::Value;

use crate::wire::compress;
use crate::wire::headers::TURN_METADATA;

/// How a request travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// A request of its own, with a body.
    Http,
    /// A message on a WebSocket, or the upgrade that opened it.
    WebSocket,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::WebSocket => "ws",
        })
    }
}

/// What was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An HTTP request that stays one.
    Http,
    /// The request that asks for a WebSocket; it has no body.
    Upgrade,
    /// One message of the client on a WebSocket.
    Message,
}

/// The head of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The method, as sent.
    pub method: String,
    /// Path and query, as sent.
    pub target: String,
    /// Name (in lower case) and value of each header, repeats kept; the endpoint sees repeats side by side.
    pub headers: Vec<(String, Vec<u8>)>,
}

impl Head {
    /// Finds the first value of a header by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let found = self.headers.iter().find(|(known, _)| known == name)?;
        Some(&found.1)
    }

    /// Says whether a WebSocket is asked for.
    pub fn is_upgrade(&self) -> bool {
        self.header("upgrade")
            .is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"))
    }
}

/// One request, with its bytes as they were on the wire.
pub struct Recorded {
    /// Its place in the order of arrival, from 0.
    pub number: usize,
    /// The connection that carried it, numbered from 0 in the order of their opening.
    pub connection: usize,
    /// What it is.
    pub kind: Kind,
    /// Its head; that of the upgrade for a message.
    pub head: Head,
    /// The body (still compressed, if it was), or the payload of the message.
    pub body: Bytes,
    parsed: OnceLock<Option<Value>>,
    metadata: OnceLock<Option<Value>>,
}

impl Recorded {
    /// Makes the record of one request.
    pub fn new(number: usize, connection: usize, kind: Kind, head: Head, body: Bytes) -> Self {
        Self {
            number,
            connection,
            kind,
            head,
            body,
            parsed: OnceLock::new(),
            metadata: OnceLock::new(),
        }
    }

    /// How it travelled.
    pub fn transport(&self) -> Transport {
        match self.kind {
            Kind::Http => Transport::Http,
            Kind::Upgrade | Kind::Message => Transport::WebSocket,
        }
    }

    /// Says whether the model is asked for something: `POST …/responses` or a `response.create` message.
    pub fn is_model_request(&self) -> bool {
        match self.kind {
            Kind::Http => self.head.method == "POST" && self.path().ends_with("/responses"),
            Kind::Upgrade => false,
            Kind::Message => self.member("type") == Some("response.create"),
        }
    }

    /// The target without its query.
    pub fn path(&self) -> &str {
        let end = self.head.target.find('?');
        end.and_then(|at| self.head.target.get(..at))
            .unwrap_or(&self.head.target)
    }

    /// The body without its compression; nothing if it can't be inflated within the bound.
    pub fn plain(&self) -> Option<Bytes> {
        let encoding = self.head.header("content-encoding").unwrap_or(b"identity");
        if self.kind == Kind::Message || encoding.eq_ignore_ascii_case(b"identity") {
            return Some(self.body.clone());
        }
        if encoding.eq_ignore_ascii_case(b"zstd") {
            return compress::inflate(&self.body, MAX_PLAIN_BYTES)
                .ok()
                .map(Bytes::from);
        }
        None
    }

    /// The body as JSON; nothing if it isn't any.
    pub fn json(&self) -> Option<&Value> {
        self.parsed
            .get_or_init(|| serde_json::from_slice(&self.plain()?).ok())
            .as_ref()
    }

    /// Codex's account of the request: `client_metadata["x-codex-turn-metadata"]` of the body.
    pub fn metadata(&self) -> Option<&Value> {
        self.metadata
            .get_or_init(|| {
                let text = self.json()?.get("client_metadata")?;
                serde_json::from_str(text.get(TURN_METADATA)?.as_str()?).ok()
            })
            .as_ref()
    }

    /// The same account as the header has it (on a WebSocket: the upgrade's, frozen when it connected).
    pub fn header_metadata(&self) -> Option<Value> {
        serde_json::from_slice(self.head.header(TURN_METADATA)?).ok()
    }

    /// The thread that asks; of an upgrade the one that its header names.
    pub fn thread(&self) -> Option<&str> {
        let in_header = || std::str::from_utf8(self.head.header("thread-id")?).ok();
        self.said("thread_id").or_else(in_header)
    }

    /// The agent that asks, `/root` or `/root/<task>`.
    pub fn agent(&self) -> Option<&str> {
        self.said("agent_name")
    }

    /// The turn that asks; none at a prewarm.
    pub fn turn(&self) -> Option<&str> {
        self.said("turn_id").filter(|id| !id.is_empty())
    }

    /// The parent's thread, if a child asks.
    pub fn parent(&self) -> Option<&str> {
        self.said("parent_thread_id")
    }

    /// Says whether the request carries any mark of a child, in its body or its header.
    pub fn is_child(&self) -> bool {
        self.parent().is_some()
            || self.said("subagent_kind").is_some()
            || self.head.header("x-openai-subagent").is_some()
            || self.head.header("x-codex-parent-thread-id").is_some()
    }

    /// What it is for: the kind of request, and behind a `/` the kind of sub-agent if one asks.
    pub fn purpose(&self) -> Option<String> {
        let kind = self.said("request_kind")?;
        Some(match self.said("subagent_kind") {
            Some(subagent) => format!("{kind}/{subagent}"),
            None => kind.to_owned(),
        })
    }

    /// The top-level `instructions`, if they are a string.
    pub fn instructions(&self) -> Option<&str> {
        self.member("instructions")
    }

    fn member(&self, name: &str) -> Option<&str> {
        self.json()?.get(name)?.as_str()
    }

    fn said(&self, name: &str) -> Option<&str> {
        self.metadata()?.get(name)?.as_str()
    }
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded")
            .field("number", &self.number)
            .field("connection", &self.connection)
            .field("kind", &self.kind)
            .field("method", &self.head.method)
            .field("target", &self.head.target)
            .field("thread", &self.thread())
            .field("agent", &self.agent())
            .field("purpose", &self.purpose())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Most bytes that one body is inflated to.
const MAX_PLAIN_BYTES: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_of_a_child_is_read_from_a_packed_body() {
        let body = br#"{"client_metadata":{"x-codex-turn-metadata":"{\"thread_id\":\"t\",\"agent_name\":\"/root/kid\",\"request_kind\":\"turn\",\"subagent_kind\":\"thread_spawn\",\"turn_id\":\"\"}"}}"#;
        let head = Head {
            method: "POST".to_owned(),
            target: "/v1/responses?a=b".to_owned(),
            headers: vec![("content-encoding".to_owned(), b"zstd".to_vec())],
        };
        let packed = zstd::encode_all(&body[..], 3).unwrap();
        let request = Recorded::new(0, 0, Kind::Http, head, packed.into());
        assert_eq!(request.plain().unwrap(), body[..]);
        assert_eq!(request.thread(), Some("t"));
        assert_eq!(request.agent(), Some("/root/kid"));
        assert_eq!(request.purpose().as_deref(), Some("turn/thread_spawn"));
        assert_eq!(request.turn(), None);
        assert!(request.is_child() && request.is_model_request());
    }
}
