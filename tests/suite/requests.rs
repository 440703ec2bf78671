//! Recorded requests of both versions through classification and splice, without IO.

use bytes::Bytes;
use codex_relay::context::snapshot::Snapshot;
use codex_relay::exchange::body::Body;
use codex_relay::exchange::classify::{Class, Identity};
use codex_relay::exchange::instructions::splice;
use codex_relay::session::parent::decide::Purpose;
use codex_relay::wire::edit::apply;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

use crate::support::fixtures::{Fixture, recorded};

/// What the table of the interface says of a recording, by its name.
#[derive(Debug, PartialEq, Eq)]
enum Expected {
    Parent { has_generation: bool },
    Prewarm,
    Untouched,
}

fn expected(purpose: &str) -> Expected {
    let who = purpose.trim_end_matches("-prewarm");
    let is_ours = ["child", "review", "guardian", "compaction"].contains(&who);
    match purpose {
        _ if is_ours => Expected::Untouched,
        _ if purpose.ends_with("-prewarm") => Expected::Prewarm,
        // Codex started these itself: none of the client's metadata is in them.
        "goal" | "sample" => Expected::Parent {
            has_generation: false,
        },
        _ => Expected::Parent {
            has_generation: true,
        },
    }
}

fn class(fixture: &Fixture, body: &Body) -> Class {
    let mut headers = HeaderMap::new();
    // On a WebSocket only the frame counts.
    if fixture.head.starts_with("POST") {
        for line in fixture.head.lines().skip(1) {
            let Some((name, value)) = line.split_once(": ") else {
                continue;
            };
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
    }
    let mut identity = Identity::from_headers(&headers);
    identity.read_body(fixture.body.as_bytes(), body);
    identity.class()
}

#[test]
fn recordings_are_classified_by_the_table() {
    let mut seen = 0;
    for fixture in recorded().into_iter().filter(|it| it.purpose != "models") {
        let body = Body::read(fixture.body.as_bytes());
        let found = match class(&fixture, &body) {
            Class::Parent(request) => match request.purpose {
                Purpose::Prewarm => Expected::Prewarm,
                Purpose::Turn => Expected::Parent {
                    has_generation: request.generation.is_some(),
                },
            },
            Class::Untouched => Expected::Untouched,
            Class::TooLong(bytes) => panic!("{bytes} bytes of metadata"),
            Class::Unreadable(reason) => {
                panic!("{} {}: {reason}", fixture.version, fixture.purpose)
            }
        };
        let place = format!("{} {} {}", fixture.version, fixture.login, fixture.purpose);
        assert_eq!(found, expected(&fixture.purpose), "{place}");
        assert_eq!(body.fault, None, "{place}");
        assert_eq!(body.is_create, !fixture.head.starts_with("POST"), "{place}");
        seen += 1;
    }
    assert!(seen > 50, "{seen} recordings");
}

#[test]
fn splice_changes_nothing_else_of_a_recording() {
    let snapshot = Snapshot::new("Who you are:\n\"Marlowe\" \u{1F600}".to_owned(), Vec::new());
    let text = std::str::from_utf8(snapshot.escaped()).unwrap();
    for fixture in recorded().into_iter().filter(|it| it.purpose != "models") {
        let bytes = Bytes::from(fixture.body.clone());
        let body = Body::read(&bytes);
        let edit = splice(&bytes, &body, &snapshot).unwrap();
        let out = String::from_utf8(apply(&bytes, vec![edit]).to_vec()).unwrap();
        let without = match fixture.json.get("instructions") {
            None => out.replacen(&format!("\"instructions\":\"{text}\","), "", 1),
            Some(_) => out.replacen(&format!("\\n\\n{text}"), "", 1),
        };
        assert_eq!(
            without, fixture.body,
            "{} {}",
            fixture.version, fixture.purpose
        );
        assert_eq!(out.matches(text).count(), 1);
    }
}
