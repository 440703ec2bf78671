use super::*;

const NESTED: &str = r#""thread_id":"t","turn_id":"u","request_kind":"turn""#;

fn parent(generation: Option<&str>) -> Class {
    Class::Parent(ParentRequest {
        thread: ThreadId::new("t").unwrap(),
        turn: TurnId::new("u"),
        generation: generation.and_then(Generation::new),
        purpose: Purpose::Turn,
    })
}

/// A body whose metadata string is `nested`, with `flat` members beside it.
fn body(nested: &str, flat: &str) -> String {
    let string = serde_json::Value::from(format!("{{{nested}}}")).to_string();
    format!(r#"{{"client_metadata":{{{flat}"x-codex-turn-metadata":{string}}}}}"#)
}

fn class_of(bytes: &str, headers: &[(&'static str, &str)]) -> Class {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, value.parse().unwrap());
    }
    let mut identity = Identity::from_headers(&map);
    identity.read_body(bytes.as_bytes(), &Body::read(bytes.as_bytes()));
    identity.class()
}

#[test]
fn parent_is_known_by_its_body_with_or_without_headers() {
    let metadata = format!("{{{NESTED}}}");
    assert_eq!(class_of(&body(NESTED, ""), &[]), parent(None));
    assert_eq!(
        class_of(&body(NESTED, ""), &[(TURN_METADATA, &metadata)]),
        parent(None)
    );
    let generation = format!(r#"{NESTED},"codex_relay_generation":"g""#);
    assert_eq!(
        class_of(&body(&generation, r#""turn_id":"","thread_id":"t","#), &[]),
        parent(Some("g"))
    );
}

#[test]
fn any_child_mark_wins_over_everything() {
    let plain = body(NESTED, "");
    for nested in [
        r#""parent_thread_id":"p""#,
        r#""subagent_kind":"other""#,
        r#""subagent_kind":7"#,
        r#""request_kind":"compaction""#,
        r#""request_kind":"memory""#,
    ] {
        let both = format!("{NESTED},{nested}");
        assert_eq!(
            class_of(&body(&both, ""), &[]),
            Class::Untouched,
            "{nested}"
        );
        let header = format!("{{{nested}}}");
        assert_eq!(
            class_of(&plain, &[(TURN_METADATA, &header)]),
            Class::Untouched,
            "{nested}"
        );
        let inherited = format!(r#"{both},"codex_relay_generation":"g""#);
        assert_eq!(
            class_of(&body(&inherited, ""), &[]),
            Class::Untouched,
            "{nested}"
        );
        let duplicate = format!("{},{}", body(&both, "").trim_end_matches('}'), "\"z\":1}}");
        let twice = format!(
            "{{\"client_metadata\":{{}},{}",
            duplicate.trim_start_matches('{')
        );
        assert_eq!(class_of(&twice, &[]), Class::Untouched, "{nested}");
    }
    for flat in [
        r#""x-openai-subagent":"review","#,
        r#""x-codex-parent-thread-id":"p","#,
    ] {
        assert_eq!(
            class_of(&body(NESTED, flat), &[]),
            Class::Untouched,
            "{flat}"
        );
    }
    for name in [SUBAGENT, PARENT_THREAD] {
        assert_eq!(class_of(&plain, &[(name, "x")]), Class::Untouched, "{name}");
        assert_eq!(
            class_of("not json", &[(name, "x")]),
            Class::Untouched,
            "{name}"
        );
    }
}

#[test]
fn empty_marks_count_as_absent() {
    let nested = format!(r#"{NESTED},"parent_thread_id":"","subagent_kind":null"#);
    let flat = r#""x-openai-subagent":"","#;
    assert_eq!(
        class_of(&body(&nested, flat), &[(SUBAGENT, "")]),
        parent(None)
    );
}

#[test]
fn carriers_that_disagree_are_contradictory() {
    let contradictory = Class::Unreadable(Reason::MetadataContradictory);
    assert_eq!(
        class_of(&body(NESTED, r#""thread_id":"x","#), &[]),
        contradictory
    );
    assert_eq!(
        class_of(&body(NESTED, r#""turn_id":"x","#), &[]),
        contradictory
    );
    let header = r#"{"request_kind":"prewarm"}"#;
    assert_eq!(
        class_of(&body(NESTED, ""), &[(TURN_METADATA, header)]),
        contradictory
    );
    let twice = format!(r#"{NESTED},"codex_relay_generation":"a","codex_relay_generation":"b""#);
    assert_eq!(class_of(&body(&twice, ""), &[]), contradictory);
}

#[test]
fn what_cannot_be_read_is_unrecognized() {
    let unrecognized = Class::Unreadable(Reason::MetadataUnrecognized);
    let header = format!("{{{NESTED}}}");
    for bytes in [
        "{}".to_owned(),
        r#"{"client_metadata":7}"#.to_owned(),
        r#"{"client_metadata":{"x-codex-turn-metadata":{}}}"#.to_owned(),
        r#"{"client_metadata":{"x-codex-turn-metadata":"nonsense"}}"#.to_owned(),
        body(r#""thread_id":"t","request_kind":"surprise""#, ""),
        body(r#""thread_id":"t""#, ""),
        body(&format!(r#"{NESTED},"codex_relay_generation":7"#), ""),
        body(r#""request_kind":"turn""#, ""),
    ] {
        assert_eq!(class_of(&bytes, &[]), unrecognized, "{bytes:.80}");
    }
    // The header alone doesn't make a parent: the body itself must say so.
    assert_eq!(class_of("{}", &[(TURN_METADATA, &header)]), unrecognized);
}

#[test]
fn bound_of_the_metadata_is_one_for_the_text_and_not_for_its_literal() {
    let nested = |bytes: usize| {
        // Each quote is two bytes on its way, each letter behind it six in ASCII.
        let pad = bytes - format!(r#"{{{NESTED},"pad":""}}"#).len();
        let pad = format!("{}{}", "\u{e9}".repeat(pad / 2), "x".repeat(pad % 2));
        body(&format!(r#"{NESTED},"pad":"{pad}""#), "").replace('\u{e9}', r"\u00e9")
    };
    assert_eq!(class_of(&nested(1_048_575), &[]), parent(None));
    assert_eq!(class_of(&nested(1_048_576), &[]), parent(None));
    assert_eq!(class_of(&nested(1_048_577), &[]), Class::TooLong(1_048_577));
    let child = (PARENT_THREAD, "p");
    assert_eq!(class_of(&nested(1_048_577), &[child]), Class::Untouched);
}
