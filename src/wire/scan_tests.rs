use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn top_level(text: &[u8]) -> Result<Vec<Member>, ScanError> {
    let mut members = Members::at(text, 0)?;
    let mut found = Vec::new();
    while let Some(member) = members.next_member()? {
        found.push(member);
    }
    ends_at(text, members.position())?;
    Ok(found)
}

/// Whether the scanner and `serde_json` agree that `text` is one JSON object.
pub(crate) fn check_against_serde(text: &[u8]) {
    if std::str::from_utf8(text).is_err() {
        let _ = top_level(text);
        return;
    }
    // IgnoredAny reads any depth and any number, as the scanner does.
    let theirs = serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
        && text.iter().find(|b| !b" \t\r\n".contains(b)) == Some(&b'{');
    match top_level(text) {
        Err(ScanError::TooDeep { .. }) => {}
        ours => assert_eq!(ours.is_ok(), theirs, "{}", String::from_utf8_lossy(text)),
    }
}

#[test]
fn members_are_reported_with_duplicates_and_odd_values() {
    let text = br#" { "a" : 1e400 ,"b":[{"a":"x\"}"}], "a":"\ud83d", "":{} } "#;
    let found = top_level(text).unwrap();
    let read: Vec<(&[u8], &[u8])> = found
        .iter()
        .map(|m| (&text[m.key.clone()], &text[m.value.clone()]))
        .collect();
    assert_eq!(
        read,
        [
            (&b"a"[..], &b"1e400"[..]),
            (b"b", br#"[{"a":"x\"}"}]"#),
            (b"a", br#""\ud83d""#),
            (b"", b"{}"),
        ]
    );
}

#[test]
fn find_takes_the_last_copy_and_reads_escaped_names() {
    let text = br#"{"id":1,"m\u0065thod":"x","id":2}"#;
    let [id, method, absent] = find(text, 0, ["id", "method", "params"]).unwrap();
    assert_eq!((&text[id.last.unwrap()], id.count), (&b"2"[..], 2));
    assert_eq!(&text[method.last.unwrap()], b"\"x\"");
    assert_eq!(absent, Found::default());
}

#[test]
fn what_is_not_json_is_refused() {
    for text in [
        "",
        "[]",
        "nul",
        "{",
        "{}x",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "{\"a\":01}",
        "{\"a\":1.}",
        "{\"a\":-}",
        "{\"a\":\"\n\"}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u12g4\"}",
        "{\"a\":[1,]}",
        "{\"a\":[}]}",
        "{\"a\":[1}}",
        "{'a':1}",
        "\u{feff}{}",
        "{\"a\":tru}",
        "{\"a\":\"\\",
        "{\"a\":1}{}",
    ] {
        assert!(top_level(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn nesting_is_read_to_its_bound_and_no_further() {
    let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    assert!(top_level(nested(MAX_JSON_DEPTH).as_bytes()).is_ok());
    assert!(matches!(
        top_level(nested(MAX_JSON_DEPTH + 1).as_bytes()),
        Err(ScanError::TooDeep { .. })
    ));
}

fn elements(text: &[u8]) -> Result<Vec<&[u8]>, ScanError> {
    let mut elements = Elements::at(text, 0)?;
    let mut found = Vec::new();
    while let Some(element) = elements.next_element()? {
        found.push(&text[element]);
    }
    assert_eq!(elements.next_element(), Ok(None));
    Ok(found)
}

#[test]
fn elements_of_arrays_are_ranges() {
    let read = elements(br#"[ "a" , {"b":[1,2]},3 ]"#).unwrap();
    assert_eq!(read, [&b"\"a\""[..], br#"{"b":[1,2]}"#, b"3"]);
    assert_eq!(elements(b"[ ]"), Ok(vec![]));
    for odd in [&b"[1"[..], b"[1,]", b"[1 2]", b"{}", b""] {
        assert!(elements(odd).is_err(), "{odd:?}");
    }
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_json_object_is_read_as_serde_reads_it(value in json(), pretty: bool) {
        let object = serde_json::json!({ "a": value.clone(), "b\"\u{1}": value });
        let text = if pretty {
            serde_json::to_vec_pretty(&object).unwrap()
        } else {
            serde_json::to_vec(&object).unwrap()
        };
        let members = top_level(&text).unwrap();
        prop_assert_eq!(members.len(), 2);
        let second: Value = serde_json::from_slice(&text[members[1].value.clone()]).unwrap();
        let whole: Value = serde_json::from_slice(&text).unwrap();
        prop_assert_eq!(&second, whole.get("b\"\u{1}").unwrap());
    }

    #[test]
    fn any_bytes_are_judged_as_serde_judges_them(
        text in "[{}\\[\\]\",:0-9eE.+\\-\\\\ truefalsn]{0,24}",
    ) {
        check_against_serde(format!("{{\"a\":{text}}}").as_bytes());
        check_against_serde(text.as_bytes());
    }

    #[test]
    fn a_damaged_object_is_judged_as_serde_judges_it(value in json(), at: prop::sample::Index, with: u8) {
        let mut text = serde_json::to_vec(&serde_json::json!({ "a": value })).unwrap();
        let at = at.index(text.len());
        text[at] = with;
        check_against_serde(&text);
    }
}
