//! The private route, generation and scratch, written into the params of a thread or turn.

use std::ops::Range;

use bytes::Bytes;
use serde_json::Value;

use crate::session::methods::{GENERATION_MEMBER, INSTRUCTIONS_MEMBER, METADATA_MEMBER};
use crate::wire::edit::{Edit, apply};
use crate::wire::envelope::member;
use crate::wire::known::Place;
use crate::wire::{literal, scan};

/// Plans the edit that gives the thread with `params` the base URL `url`.
///
/// The edit goes inside the client's own last `config` and replaces what it says of the base URL.
/// `None` where the params aren't what codex takes: it answers for itself.
pub fn route(line: &[u8], params: &impl Place, url: &str) -> Option<Edit> {
    if !scan::is_object(line, &params.range()) {
        return None;
    }
    let value = literal::quote(url);
    let Some(config) = member(line, params, &["config"]) else {
        let object = [b"\"config\":{\"openai_base_url\":", &value[..], b"}"].concat();
        return Some(first_member(line, &params.range(), &object));
    };
    if scan::is_null(line, &config) {
        let object = [b"{\"openai_base_url\":", &value[..], b"}"].concat();
        return Some(Edit::replace(config, object));
    }
    let old = member(line, params, &["config", "openai_base_url"]);
    route_in(line, &config, old, url)
}

/// Plans the edit that gives the object `config` the base URL `url`, in place of the `old` one.
fn route_in(
    line: &[u8],
    config: &Range<usize>,
    old: Option<Range<usize>>,
    url: &str,
) -> Option<Edit> {
    if !scan::is_object(line, config) {
        return None;
    }
    let value = literal::quote(url);
    let Some(old) = old else {
        let pair = [b"\"openai_base_url\":", &value[..]].concat();
        return Some(first_member(line, config, &pair));
    };
    Some(Edit::replace(old, value))
}

/// Plans the edit that gives the thread with `params`, which has no `config`, the `old` one and the
/// base URL `url`.
///
/// `None` where the old one isn't an object, or the params have one. Nor where it chooses a model:
/// codex then forgets the one that the thread has come to (0.155.1 and 0.171.0).
pub fn old_config(line: &[u8], params: &impl Place, old: &Bytes, url: &str) -> Option<Edit> {
    let whole = 0..old.len();
    if CHOICES
        .iter()
        .any(|name| member(old, &whole, &[name]).is_some())
    {
        return None;
    }
    let standard = member(old, &whole, &["openai_base_url"]);
    let routed = route_in(old, &whole, standard, url)?;
    let old = apply(old, vec![routed]);
    match member(line, params, &["config"]) {
        None => {
            let pair = [b"\"config\":", &old[..]].concat();
            Some(first_member(line, &params.range(), &pair))
        }
        Some(own) if scan::is_null(line, &own) => Some(Edit::replace(own, old)),
        Some(_) => None,
    }
}

/// Plans the edit that gives the thread with `params` the developer instructions `text`, in place of
/// the client's own.
///
/// With `is_second` another member is added to the same params. `None` where the params aren't an
/// object: codex answers for itself.
pub fn developer_instructions(
    line: &[u8],
    params: &impl Place,
    text: &str,
    is_second: bool,
) -> Option<Edit> {
    if !scan::is_object(line, &params.range()) {
        return None;
    }
    let value = literal::quote(text);
    if let Some(old) = member(line, params, &[INSTRUCTIONS_MEMBER]) {
        return Some(Edit::replace(old, value));
    }
    let comma = if is_second || !is_empty(line, &params.range()) {
        ","
    } else {
        ""
    };
    let name = format!("{comma}\"{INSTRUCTIONS_MEMBER}\":");
    Some(Edit::insert(
        params.range().end - 1,
        [name.as_bytes(), &value[..]].concat(),
    ))
}

/// Plans the edits that set what a renewal has lost, where a turn with `params` doesn't set it.
pub fn settings(line: &[u8], params: &impl Place, lost: &[(String, Value)]) -> Vec<Edit> {
    let set = |(name, value): &(String, Value)| match member(line, params, &[name]) {
        None => Some(last_member(
            line,
            &params.range(),
            &format!("\"{name}\":{value}"),
        )),
        Some(own) if scan::is_null(line, &own) => Some(Edit::replace(own, value.to_string())),
        Some(_) => None,
    };
    lost.iter().filter_map(set).collect()
}

/// Plans the edit that adds `generation` to the metadata map of a turn.
///
/// `None` where the map isn't one: codex answers for itself. With `only_existing` an absent or null
/// map stays so (a steer without one keeps the turn's).
pub fn generation(
    line: &[u8],
    params: &impl Place,
    generation: &str,
    only_existing: bool,
) -> Option<Edit> {
    if !scan::is_object(line, &params.range()) {
        return None;
    }
    let pair = format!("\"{GENERATION_MEMBER}\":\"{generation}\"");
    let map = member(line, params, &[METADATA_MEMBER]);
    match map {
        Some(map) if scan::is_object(line, &map) => Some(last_member(line, &map, &pair)),
        Some(map) if scan::is_null(line, &map) && !only_existing => {
            Some(Edit::replace(map, format!("{{{pair}}}")))
        }
        None if !only_existing => {
            let object = format!("\"{METADATA_MEMBER}\":{{{pair}}}");
            Some(first_member(line, &params.range(), object.as_bytes()))
        }
        Some(_) | None => None,
    }
}

/// Plans the edit that adds `text` at the end of a turn's input.
///
/// `None` where the input isn't a list: codex answers for itself.
pub fn last_input(line: &[u8], params: &impl Place, text: &str) -> Option<Edit> {
    let input = member(line, params, &["input"])?;
    if line.get(input.start) != Some(&b'[') {
        return None;
    }
    let comma = if is_empty(line, &input) { "" } else { "," };
    let text = literal::quote(text);
    let item = [
        comma.as_bytes(),
        b"{\"type\":\"text\",\"text\":",
        &text[..],
        b"}",
    ];
    Some(Edit::insert(input.end - 1, item.concat()))
}

/// Inserts `pair` as the first member of the object at `range`.
fn first_member(line: &[u8], range: &Range<usize>, pair: &[u8]) -> Edit {
    let comma: &[u8] = if is_empty(line, range) { b"" } else { b"," };
    Edit::insert(range.start + 1, [pair, comma].concat())
}

/// Inserts `pair` as the last member of the object at `range`, where it wins over a copy.
fn last_member(line: &[u8], range: &Range<usize>, pair: &str) -> Edit {
    let comma = if is_empty(line, range) { "" } else { "," };
    Edit::insert(range.end - 1, format!("{comma}{pair}"))
}

fn is_empty(line: &[u8], range: &Range<usize>) -> bool {
    let inner = line.get(range.start + 1..range.end - 1).unwrap_or_default();
    inner.trim_ascii().is_empty()
}

/// Settings with which codex takes a thread's model anew.
const CHOICES: [&str; 4] = [
    "model",
    "model_provider",
    "model_reasoning_effort",
    "profile",
];

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://127.0.0.1:1/s/v1";

    fn routed(params: &str) -> Option<String> {
        let edit = route(params.as_bytes(), &(0..params.len()), URL)?;
        let line = apply(&Bytes::from(params.to_owned()), vec![edit]);
        Some(String::from_utf8(line.to_vec()).unwrap())
    }

    #[test]
    fn route_is_written_in_place_of_nothing_or_a_standard_value() {
        let pair = format!("\"openai_base_url\":\"{URL}\"");
        for (before, after) in [
            ("{}", format!("{{\"config\":{{{pair}}}}}")),
            (
                "{ \"cwd\":1}",
                format!("{{\"config\":{{{pair}}}, \"cwd\":1}}"),
            ),
            ("{\"config\": null}", format!("{{\"config\": {{{pair}}}}}")),
            ("{\"config\":{ }}", format!("{{\"config\":{{{pair} }}}}")),
            (
                "{\"config\":{\"a.b\":1}}",
                format!("{{\"config\":{{{pair},\"a.b\":1}}}}"),
            ),
            (
                "{\"config\":1,\"config\":{}}",
                format!("{{\"config\":1,\"config\":{{{pair}}}}}"),
            ),
            (
                "{\"config\":{\"openai_base_url\":null}}",
                format!("{{\"config\":{{{pair}}}}}"),
            ),
            (
                "{\"config\":{\"openai_base_url\": \"\"}}",
                format!("{{\"config\":{{\"openai_base_url\": \"{URL}\"}}}}"),
            ),
            (
                "{\"config\":{\"openai_base_url\":\"https://api.openai.com/v1/\"}}",
                format!("{{\"config\":{{{pair}}}}}"),
            ),
            (
                "{\"modelProvider\":\"openai\"}",
                format!("{{\"config\":{{{pair}}},\"modelProvider\":\"openai\"}}"),
            ),
        ] {
            assert_eq!(routed(before), Some(after), "{before}");
        }
    }

    #[test]
    fn old_config_is_given_again_with_the_route() {
        let give = |params: &str| {
            let old = Bytes::from_static(b"{\"a.b\":1}");
            let edit = old_config(params.as_bytes(), &(0..params.len()), &old, URL)?;
            let line = apply(&Bytes::from(params.to_owned()), vec![edit]);
            Some(String::from_utf8(line.to_vec()).unwrap())
        };
        let config = format!("\"config\":{{\"openai_base_url\":\"{URL}\",\"a.b\":1}}");
        assert_eq!(give("{\"t\":1}"), Some(format!("{{{config},\"t\":1}}")));
        assert_eq!(give("{\"config\":null}"), Some(format!("{{{config}}}")));
        assert_eq!(give("{\"config\":{}}"), None);
        let old = Bytes::from_static(b"{\"model\":\"m\"}");
        assert_eq!(old_config(b"{}", &(0..2), &old, URL), None);
    }

    #[test]
    fn params_that_codex_will_not_take_stay() {
        for params in ["{\"config\":7}", "[]", "null"] {
            assert_eq!(routed(params), None, "{params}");
        }
    }

    #[test]
    fn text_is_added_behind_the_input() {
        let add = |params: &str| {
            let edit = last_input(params.as_bytes(), &(0..params.len()), "a\"b")?;
            let line = apply(&Bytes::from(params.to_owned()), vec![edit]);
            Some(String::from_utf8(line.to_vec()).unwrap())
        };
        let item = r#"{"type":"text","text":"a\"b"}"#;
        for (before, after) in [
            ("{\"input\":[]}", format!("{{\"input\":[{item}]}}")),
            ("{\"input\":[ 1 ]}", format!("{{\"input\":[ 1 ,{item}]}}")),
        ] {
            assert_eq!(add(before), Some(after));
        }
        assert_eq!(add("{}"), None);
        assert_eq!(add("{\"input\":7}"), None);
    }

    #[test]
    fn generation_is_added_last_and_only_where_a_map_may_be() {
        let add = |params: &str, only_existing| {
            let edit = generation(params.as_bytes(), &(0..params.len()), "g", only_existing)?;
            let line = apply(&Bytes::from(params.to_owned()), vec![edit]);
            Some(String::from_utf8(line.to_vec()).unwrap())
        };
        let map = "{\"responsesapiClientMetadata\":{\"codex_relay_generation\":\"g\"}}";
        assert_eq!(add("{}", false).as_deref(), Some(map));
        assert_eq!(
            add("{\"responsesapiClientMetadata\":null}", false).as_deref(),
            Some(map)
        );
        assert_eq!(
            add("{\"responsesapiClientMetadata\":{\"a\":\"b\"}}", true).as_deref(),
            Some("{\"responsesapiClientMetadata\":{\"a\":\"b\",\"codex_relay_generation\":\"g\"}}")
        );
        assert_eq!(add("{}", true), None);
        assert_eq!(add("{\"responsesapiClientMetadata\":null}", true), None);
        assert_eq!(add("{\"responsesapiClientMetadata\":3}", false), None);
    }
}
