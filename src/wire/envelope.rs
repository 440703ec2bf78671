//! The JSON-RPC frame around params: one JSON object a line, without `jsonrpc`.

use std::ops::Range;

use bytes::Bytes;
use serde_json::Value;

use crate::base::ids::RequestId;
use crate::base::limits::MAX_NAME_BYTES;
use crate::wire::known::Place;
use crate::wire::scan::Elements;
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

/// The line that answers the request `id` with an error.
pub fn error_line(id: &RequestId, error: &Value) -> Bytes {
    let id = String::from_utf8_lossy(id.as_bytes());
    Bytes::from(format!("{{\"id\":{id},\"error\":{error}}}\n"))
}

impl Envelope {
    /// Reads the envelope of `line`; `None` where it isn't one JSON object.
    ///
    /// Of a member that occurs twice the last copy counts, as codex takes it.
    pub fn read(line: &Bytes) -> Option<Self> {
        let names = ["method", "id", "params", "result", "error"];
        let [method, id, params, result, error] = scan::find_whole(line, names).ok()?;
        let method = match method.last {
            Some(range) => Some(name(line, &range)?),
            None => None,
        };
        Some(Self {
            method,
            id: id.last.map(|range| RequestId::new(own(line, range))),
            params: params.last,
            result: result.last,
            is_error: error.count > 0,
        })
    }
}

/// The elements of the list `data` that an answer of codex gives; none where it is an error.
pub fn listed(answer: &Bytes) -> Option<Elements<'_>> {
    let data = member(answer, &Envelope::read(answer)?.result?, &["data"])?;
    Elements::at(answer, data.start).ok()
}

/// The text of the string at `range`.
pub fn text(line: &[u8], range: &Range<usize>) -> Option<String> {
    let within = scan::string_within(line, range)?;
    literal::unescape(line.get(within)?).ok()
}

/// The text at `range` where it is short enough for a name, an id or a path.
fn name(line: &[u8], range: &Range<usize>) -> Option<String> {
    if range.len() > MAX_NAME_BYTES {
        return None;
    }
    text(line, range)
}

/// The bytes at `range` on their own: they may be kept when the line is long gone.
fn own(line: &Bytes, range: Range<usize>) -> Bytes {
    if range.len() > MAX_NAME_BYTES {
        return line.slice(range);
    }
    Bytes::copy_from_slice(line.get(range).unwrap_or_default())
}

/// The member that `path` leads to from the object at `place`, last copies taken.
pub fn member(line: &[u8], place: &impl Place, path: &[&str]) -> Option<Range<usize>> {
    place.member(line, path)
}

/// The text of the member that `path` leads to: a name, an id or a path.
pub fn member_text(line: &[u8], place: &impl Place, path: &[&str]) -> Option<String> {
    name(line, &member(line, place, path)?)
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
    fn what_is_kept_of_a_line_does_not_keep_it() {
        let line = Bytes::from(br#"{"id":"7","method":"m"}"#.to_vec());
        let read = Envelope::read(&line).unwrap();
        assert!(line.try_into_mut().is_ok());
        assert_eq!(read.id.unwrap().as_bytes(), b"\"7\"");
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
