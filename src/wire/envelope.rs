//! The JSON-RPC frame around params: one JSON object a line, without `jsonrpc`.

use std::ops::Range;

use bytes::Bytes;

use crate::base::ids::RequestId;
use crate::wire::{literal, scan};

/// What a line is, as ranges into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The method, resolved; absent in an answer.
    pub method: Option<String>,
    /// The id as it stands; absent in a notification.
    pub id: Option<RequestId>,
    /// The params of a request or notification.
    pub params: Option<Range<usize>>,
    /// The result of an answer.
    pub result: Option<Range<usize>>,
    /// Whether the answer is an error.
    pub is_error: bool,
}

impl Envelope {
    /// Reads the envelope of `line`; `None` where it isn't one JSON object.
    ///
    /// Of a member that occurs twice the last copy counts, as codex takes it.
    pub fn read(line: &Bytes) -> Option<Self> {
        let names = ["method", "id", "params", "result", "error"];
        let [method, id, params, result, error] = scan::find_whole(line, names).ok()?;
        let method = match method.last {
            Some(range) => Some(text(line, &range)?),
            None => None,
        };
        Some(Self {
            method,
            id: id.last.map(|range| RequestId::new(line.slice(range))),
            params: params.last,
            result: result.last,
            is_error: error.count > 0,
        })
    }
}

/// The text of the string at `range`.
pub fn text(line: &[u8], range: &Range<usize>) -> Option<String> {
    let within = scan::string_within(line, range)?;
    literal::unescape(line.get(within)?).ok()
}

/// The member that `path` leads to from the object at `range`, last copies taken.
pub fn member(line: &[u8], range: &Range<usize>, path: &[&str]) -> Option<Range<usize>> {
    path.iter().try_fold(range.clone(), |range, name| {
        let [found] = scan::find(line, range.start, [*name]).ok()?;
        found.last
    })
}

/// The text of the member that `path` leads to.
pub fn member_text(line: &[u8], range: &Range<usize>, path: &[&str]) -> Option<String> {
    text(line, &member(line, range, path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_answers_and_notifications_are_told_apart() {
        let request = Bytes::from_static(br#"{"id":"7","method":"turn/start","params":{"a":1}}"#);
        let read = Envelope::read(&request).unwrap();
        assert_eq!(read.method.as_deref(), Some("turn/start"));
        assert_eq!(read.id.unwrap().as_bytes(), b"\"7\"");
        assert_eq!(&request[read.params.unwrap()], br#"{"a":1}"#);

        let answer = Bytes::from_static(br#"{"id":7,"error":{"code":1},"emittedAtMs":3}"#);
        let read = Envelope::read(&answer).unwrap();
        assert_eq!((read.method, read.is_error), (None, true));

        for odd in ["", "[]", "{\"id\":", "{\"method\":7}", "log line"] {
            assert_eq!(Envelope::read(&Bytes::from(odd)), None, "{odd}");
        }
    }

    #[test]
    fn members_are_found_by_path() {
        let line = br#"{"thread":{"id":"t\u0031"},"n":null}"#;
        let whole = 0..line.len();
        assert_eq!(
            member_text(line, &whole, &["thread", "id"]).as_deref(),
            Some("t1")
        );
        assert_eq!(member(line, &whole, &["n", "id"]), None);
        assert_eq!(member(line, &whole, &["thread", "no"]), None);
    }
}
