use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::wire::edit::apply;

fn metadata(more: &Value) -> String {
    let mut metadata = json!({
        "thread_id": "t", "turn_id": "u", "request_kind": "turn", "codex_relay_generation": "g",
    });
    for (name, value) in more.as_object().unwrap() {
        metadata[name] = value.clone();
    }
    metadata.to_string()
}

fn passing() -> Passing {
    let mut headers = HeaderMap::new();
    let value = HeaderValue::from_str(&metadata(&json!({}))).unwrap();
    headers.insert("x-codex-turn-metadata", value);
    let identity = Identity::from_headers(&headers);
    let request = identity.claimed().unwrap();
    let snapshot = Snapshot::new("P\n\"q\"".to_owned(), Vec::new());
    Passing::new(identity, request, Arc::new(snapshot))
}

/// What goes on of `body` where it comes in parts of `size`, and what the whole gains.
fn passed(body: &str, size: usize) -> Result<(Vec<u8>, usize), (Vec<u8>, Stop)> {
    let mut passing = passing();
    let mut out = VecDeque::new();
    let whole = Bytes::from(body.to_owned());
    let parts = (0..whole.len()).step_by(size);
    let parts = parts.map(|at| whole.slice(at..whole.len().min(at + size)));
    let mut result = Ok(());
    for part in parts {
        result = result.and_then(|()| passing.push(part, &mut out));
    }
    let result = result.and_then(|()| passing.finish(&mut out));
    let sent: Vec<u8> = out.iter().flatten().copied().collect();
    match result {
        Ok(()) => Ok((sent, passing.growth().unwrap())),
        Err(stop) => Err((sent, stop)),
    }
}

fn body(before: &str, input: &str, more: &Value) -> String {
    let metadata = Value::from(metadata(more));
    format!(
        r#"{{"model":"m"{before},"input":["{input}"],"client_metadata":{{"x-codex-turn-metadata":{metadata}}}}}"#
    )
}

#[test]
fn what_goes_on_is_what_the_whole_would_become() {
    let snapshot = Snapshot::new("P\n\"q\"".to_owned(), Vec::new());
    for before in [
        "",
        r#","instructions":null"#,
        r#","instructions":"""#,
        r#","instructions":"old \u00e9""#,
        r#","instr\u0075ctions":"old""#,
    ] {
        for length in [10, HELD_BODY_BYTES, 3 * HELD_BODY_BYTES] {
            let whole = body(before, &"x".repeat(length), &json!({}));
            let bytes = Bytes::from(whole.clone());
            let edit = splice(&bytes, &Body::read(&bytes), &snapshot).unwrap();
            let expected = apply(&bytes, vec![edit]);
            for size in [7, 1000, 50_000, 1 << 20] {
                let (sent, growth) = passed(&whole, size).unwrap();
                assert!(sent == expected, "{before} {length} {size}");
                assert_eq!(growth, expected.len() - whole.len());
            }
        }
    }
}

#[test]
fn last_byte_stays_here_where_the_body_is_not_what_its_headers_said() {
    let early = r#","instructions":"old""#;
    let long = "x".repeat(3 * HELD_BODY_BYTES);
    let contradictory = Stop::Refuse(Reason::MetadataContradictory);
    for (more, stop) in [
        (json!({"thread_id": "other"}), contradictory),
        (json!({"parent_thread_id": "p"}), contradictory),
        (json!({"codex_relay_generation": "other"}), contradictory),
    ] {
        let whole = body(early, &long, &more);
        let (sent, found) = passed(&whole, 50_000).unwrap_err();
        assert_eq!(found, stop, "{more}");
        assert!(!sent.ends_with(b"}}"), "{more}");
    }
    let without = r#"{"other":["x"]}"#;
    let unrecognized = Stop::Refuse(Reason::MetadataUnrecognized);
    assert_eq!(passed(without, 4), Err((Vec::new(), unrecognized)));
}

#[test]
fn body_that_is_broken_goes_on_to_no_end() {
    let early = r#","instructions":"old""#;
    let whole = body(early, &"x".repeat(3 * HELD_BODY_BYTES), &json!({}));
    let invalid = Stop::Refuse(Reason::BodyInvalid);
    let again = "\"instructions\":\"a\",\"client_metadata\"";
    let twice = whole.replacen("\"client_metadata\"", again, 1);
    for broken in [
        format!("\u{feff}{whole}"),
        format!("{whole} x"),
        whole.strip_suffix('}').unwrap().to_owned(),
        twice,
    ] {
        let (sent, stop) = passed(&broken, 50_000).unwrap_err();
        assert_eq!(stop, invalid);
        assert!(!sent.ends_with(b"}}}"));
    }
}

#[test]
fn body_whose_beginning_tells_too_little_is_read_whole() {
    let long = "i".repeat(5 * HELD_BODY_BYTES);
    for member in ["instructions", "other"] {
        let long = body(&format!(r#","{member}":"{long}""#), "x", &json!({}));
        assert_eq!(passed(&long, 50_000), Err((Vec::new(), Stop::Unfit)));
    }
}

#[test]
fn body_with_instructions_behind_a_long_input_is_sent_again() {
    let late = body("", &"x".repeat(3 * HELD_BODY_BYTES), &json!({}));
    let again = "\"instructions\":\"a\",\"client_metadata\"";
    let late = late.replacen("\"client_metadata\"", again, 1);
    let (sent, stop) = passed(&late, 50_000).unwrap_err();
    assert_eq!(stop, Stop::Late);
    assert!(!sent.ends_with(b"}}"));
    // What came at once is known as a whole.
    assert!(passed(&late, late.len()).is_ok());
}

proptest! {
    #[test]
    fn parts_of_any_size_become_the_same(size in 1_usize..5000, length in 0_usize..4000) {
        let early = r#","instructions":"old""#;
        let whole = body(early, &"x\\n".repeat(length), &json!({}));
        prop_assert_eq!(passed(&whole, size), passed(&whole, whole.len()));
    }
}
