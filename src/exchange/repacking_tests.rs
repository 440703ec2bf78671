use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use std::sync::Arc;

use super::*;
use crate::context::snapshot::Snapshot;
use crate::exchange::classify::Identity;
use crate::wire::compress::{content_size, deflate, inflate};

fn metadata(turn: &str) -> String {
    let metadata = json!({
        "thread_id": "t", "turn_id": turn, "request_kind": "turn", "codex_relay_generation": "g",
    });
    metadata.to_string()
}

fn passing() -> Passing {
    let mut headers = HeaderMap::new();
    let value = HeaderValue::from_str(&metadata("u")).unwrap();
    headers.insert("x-codex-turn-metadata", value);
    let identity = Identity::from_headers(&headers);
    let request = identity.claimed().unwrap();
    let snapshot = Snapshot::new("P".to_owned(), Vec::new());
    Passing::new(identity, request, Arc::new(snapshot))
}

/// A body of a turn, hard to compress.
fn body(bytes: usize, turn: &str) -> String {
    let mut word = 1_u32;
    let input: String = (0..bytes)
        .map(|_| {
            word ^= word << 13;
            word ^= word >> 17;
            word ^= word << 5;
            char::from(b'a' + word.to_le_bytes()[0] % 26)
        })
        .collect();
    let metadata = Value::from(metadata(turn));
    format!(
        r#"{{"model":"m","input":["{input}"],"client_metadata":{{"x-codex-turn-metadata":{metadata}}}}}"#
    )
}

fn packed(body: &str) -> Bytes {
    deflate(&[body]).unwrap().concat().into()
}

/// The same without a word about its size.
fn packed_as_codex(body: &str) -> Bytes {
    zstd::encode_all(body.as_bytes(), 3).unwrap().into()
}

/// What becomes of a compressed body that comes in parts of `size`.
fn repacked(tools: &mut Tools, wire: &Bytes, size: usize, most: usize) -> Result<Vec<u8>, Stop> {
    let opens_to = content_size(wire);
    let mut repacking = Repacking::new(tools, passing(), opens_to, most)?;
    for at in (0..wire.len()).step_by(size) {
        let mut part = wire.slice(at..wire.len().min(at + size));
        while repacking.step(&mut part)? {}
        assert!(part.is_empty());
    }
    let pieces = repacking.finish()?;
    Ok(pieces.concat())
}

const ENOUGH: usize = 8 << 20;

#[test]
fn parts_of_any_size_become_the_body_with_its_context() {
    let mut tools = Tools::new().unwrap();
    for bytes in [0, 70_000, 3 << 20] {
        let body = body(bytes, "u");
        let expected = body.replacen('{', r#"{"instructions":"P","#, 1);
        let sizes = [1_usize.max(bytes / 1000), 60_000, 4 << 20];
        for (wire, says_its_size) in [(packed(&body), true), (packed_as_codex(&body), false)] {
            for size in sizes {
                let out = repacked(&mut tools, &wire, size, ENOUGH).unwrap();
                let opened = inflate(&out, ENOUGH).unwrap();
                assert!(opened == expected.as_bytes(), "{bytes} {size}");
                let is_small = expected.len() < GATHERED_PLAIN_BYTES;
                let size = (says_its_size || is_small).then_some(expected.len());
                assert_eq!(content_size(&out), size);
            }
        }
    }
}

#[test]
fn what_is_not_the_common_case_is_left_to_others() {
    let mut tools = Tools::new().unwrap();
    let whole = packed(&body(300_000, "u"));
    let other = packed(&body(300_000, "other"));
    let cut = whole.slice(..whole.len() - 1);
    let twice = Bytes::from([&whole[..], &whole[..]].concat());
    let skipped = Bytes::from([&whole[..], b"\x50\x2A\x4D\x18\0\0\0\0"].concat());
    let garbage = Bytes::from([&whole[..], b"x"].concat());
    let broken = packed("{\"input\":[}");
    let contradictory = Stop::Refuse(Reason::MetadataContradictory);
    for (wire, stop) in [
        (other, contradictory),
        (cut, BROKEN),
        (twice, Stop::Unfit),
        (skipped, Stop::Unfit),
        (garbage, Stop::Unfit),
        (broken, BROKEN),
        (packed(""), BROKEN),
    ] {
        for size in [50_000, wire.len()] {
            let out = repacked(&mut tools, &wire, size, ENOUGH);
            assert_eq!(out, Err(stop), "{} bytes", wire.len());
        }
    }
    let little = repacked(&mut tools, &whole, 50_000, 1000);
    assert_eq!(little, Err(Stop::Unfit));
    // Whatever became of those, the next one is as it should be.
    assert!(repacked(&mut tools, &whole, 50_000, ENOUGH).is_ok());
}

#[test]
fn body_that_becomes_too_long_stops() {
    let mut tools = Tools::new().unwrap();
    let room = MAX_BODY_BYTES - body(0, "u").len() - r#""instructions":"P","#.len();
    for (bytes, is_fit) in [(room, true), (room + 1, false)] {
        let long = format!(r#""input":["{}"#, "x".repeat(bytes));
        let wire = packed_as_codex(&body(0, "u").replacen(r#""input":[""#, &long, 1));
        let out = repacked(&mut tools, &wire, wire.len(), ENOUGH);
        let stop = (!is_fit).then_some(Stop::TooLarge);
        assert_eq!(out.err(), stop, "{bytes}");
    }
}
