//! The recorded requests hold nothing that belongs to a machine, an account or somebody else.

use serde_json::Value;

use crate::support::fixtures::{Fixture, recorded};

#[test]
fn recordings_are_in_the_spelling_of_codex() {
    for it in recorded() {
        // Compact: whatever the order of its members, printing it gives as many bytes.
        assert_eq!(it.json.to_string().len(), it.body.len(), "{}", place(&it));
        if it.header("content-encoding").is_none() && it.head.starts_with("POST") {
            let length = it.body.len().to_string();
            assert_eq!(
                it.header("content-length"),
                Some(&*length),
                "{}",
                place(&it)
            );
        }
    }
}

#[test]
fn recordings_hold_placeholders_and_filler_alone() {
    for it in recorded() {
        for text in [&it.head, &it.body] {
            for id in text.split(|it: char| !it.is_ascii_hexdigit() && it != '-') {
                let is_uuid = id.len() == 36 && id.matches('-').count() == 4;
                let is_ours = id.starts_with("00000000-0000-7000-8000-");
                assert!(!is_uuid || is_ours, "{}: {id}", place(&it));
            }
        }
        check_strings(&it, &it.json);
    }
}

#[test]
fn header_and_body_say_the_same_of_a_turn() {
    for it in recorded() {
        let Some(header) = it.header("x-codex-turn-metadata") else {
            panic!("{}: no metadata in the head", place(&it));
        };
        if it.head.starts_with("POST") {
            let header: Value = serde_json::from_str(header).unwrap();
            assert_eq!(header, it.metadata, "{}", place(&it));
        }
    }
}

fn check_strings(fixture: &Fixture, value: &Value) {
    match value {
        Value::String(text) if !text.starts_with('{') => {
            let is_filler = text.starts_with("<filler ");
            assert!(is_filler || text.len() <= 100, "{}: {text}", place(fixture));
        }
        Value::Array(items) => items.iter().for_each(|it| check_strings(fixture, it)),
        Value::Object(members) => members.values().for_each(|it| check_strings(fixture, it)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn place(fixture: &Fixture) -> String {
    format!("{} {} {}", fixture.version, fixture.login, fixture.purpose)
}
