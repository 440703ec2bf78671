//! The splice: one copy of the context in `instructions`, every other byte left alone.

use bytes::Bytes;

use crate::base::reason::Reason;
use crate::context::snapshot::Snapshot;
use crate::exchange::body::Body;
use crate::wire::edit::Edit;
use crate::wire::scan;

/// Plans the edit that puts `snapshot` into the body that `read` describes.
pub fn splice(bytes: &[u8], read: &Body, snapshot: &Snapshot) -> Result<Edit, Reason> {
    if read.fault.is_some() || read.instructions.count > 1 {
        return Err(Reason::BodyInvalid);
    }
    let text = snapshot.escaped();
    let Some(value) = &read.instructions.last else {
        let comma: &[u8] = if read.is_empty { b"" } else { b"," };
        let member = [b"\"instructions\":\"", &text[..], b"\"", comma].concat();
        return Ok(Edit::insert(read.first, member));
    };
    if scan::is_null(bytes, value) {
        return Ok(Edit::replace(value.clone(), quoted(text)));
    }
    match scan::string_within(bytes, value) {
        Some(within) if within.is_empty() => Ok(Edit::replace(value.clone(), quoted(text))),
        Some(within) => {
            // A blank line, as it stands in a JSON string.
            let addition = [br"\n\n", &text[..]].concat();
            Ok(Edit::insert(within.end, addition))
        }
        None => Err(Reason::InstructionsInvalid),
    }
}

fn quoted(escaped: &Bytes) -> Vec<u8> {
    [b"\"", &escaped[..], b"\""].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::wire::edit::apply;

    fn spliced(body: &str, text: &str) -> Result<String, Reason> {
        let snapshot = Snapshot::new(text.to_owned(), Vec::new());
        let bytes = Bytes::from(body.to_owned());
        let edit = splice(&bytes, &Body::read(&bytes), &snapshot)?;
        Ok(String::from_utf8(apply(&bytes, vec![edit]).to_vec()).unwrap())
    }

    #[test]
    fn only_the_instructions_change() {
        for (before, after) in [
            ("{}", r#"{"instructions":"P\n\"q\""}"#),
            (
                r#" { "n":1e400}"#,
                r#" {"instructions":"P\n\"q\"", "n":1e400}"#,
            ),
            (
                r#"{"instructions": null}"#,
                r#"{"instructions": "P\n\"q\""}"#,
            ),
            (r#"{"instructions":""}"#, r#"{"instructions":"P\n\"q\""}"#),
            (
                r#"{"a":12345678901234567890,"instructions":"old \u00e9","a":"\ud83d"}"#,
                r#"{"a":12345678901234567890,"instructions":"old \u00e9\n\nP\n\"q\"","a":"\ud83d"}"#,
            ),
        ] {
            assert_eq!(
                spliced(before, "P\n\"q\"").as_deref(),
                Ok(after),
                "{before}"
            );
        }
    }

    #[test]
    fn what_has_no_place_for_it_is_refused() {
        for (body, reason) in [
            (r#"{"instructions":["x"]}"#, Reason::InstructionsInvalid),
            (r#"{"instructions":7}"#, Reason::InstructionsInvalid),
            (
                r#"{"instructions":"a","instructions":"b"}"#,
                Reason::BodyInvalid,
            ),
            ("\u{feff}{}", Reason::BodyInvalid),
            ("{} x", Reason::BodyInvalid),
            ("[]", Reason::BodyInvalid),
        ] {
            assert_eq!(spliced(body, "P"), Err(reason), "{body}");
        }
    }

    proptest! {
        #[test]
        fn splice_then_parse_is_parse_then_set(text in ".{1,40}", old in prop::option::of(".{0,20}")) {
            let mut value = serde_json::json!({ "model": "m", "input": [1, { "instructions": "inner" }] });
            if let Some(old) = &old {
                value["instructions"] = Value::from(old.as_str());
            }
            let out: Value = serde_json::from_str(&spliced(&value.to_string(), &text).unwrap()).unwrap();
            let expected = match old.as_deref() {
                None | Some("") => text,
                Some(old) => format!("{old}\n\n{text}"),
            };
            prop_assert_eq!(&out["instructions"], &Value::from(expected));
            prop_assert_eq!(&out["input"], &value["input"]);
        }
    }
}
