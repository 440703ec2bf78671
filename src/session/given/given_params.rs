//! Contexts and references in a client's params: read strictly.
//!
//! What is wrong is told by name and kind, never by value: the texts are private.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::base::limits::{
    MAX_CONTEXT_BYTES, MAX_GIVEN_PARTS, MAX_PART_NAME_BYTES, MAX_REFERENCES_BYTES,
    MAX_RELAY_MEMBER_BYTES,
};
use crate::context::given::{Given, Part};
use crate::context::reference::Reference;
use crate::context::snapshot::Section;
use crate::wire::envelope::{member, member_text};
use crate::wire::literal;
use crate::wire::scan::{self, Elements};

/// A context that is far over every bound: it is measured and not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Its size.
    pub bytes: usize,
    /// What each of its parts contributes.
    pub sections: Vec<Section>,
}

impl Excess {
    /// Measures the `text` or `sections` of the object at `object`; none where they may be read, or
    /// can't be measured.
    pub fn of(line: &[u8], object: &Range<usize>) -> Option<Self> {
        if object.len() <= MAX_RELAY_MEMBER_BYTES {
            return None;
        }
        let length = |at: &Range<usize>| {
            let within = line.get(scan::string_within(line, at)?)?;
            literal::length(within).ok()
        };
        let [text, list] = scan::find(line, object.start, ["text", "sections"]).ok()?;
        let mut sections = Vec::new();
        if let Some(bytes) = text.last.and_then(|at| length(&at)) {
            let name = "text".to_owned();
            sections.push(Section { name, bytes });
        } else {
            let mut parts = Elements::at(line, list.last?.start).ok()?;
            while let Some(part) = parts.next_element().ok()? {
                let name = member_text(line, &part, &["name"])?;
                let bytes = length(&member(line, &part, &["text"])?)?;
                sections.push(Section { name, bytes });
                if sections.len() > MAX_GIVEN_PARTS {
                    return None;
                }
            }
        }
        let bytes = sections.iter().map(|section| section.bytes).sum();
        (bytes > MAX_CONTEXT_BYTES).then_some(Self { bytes, sections })
    }
}

/// Says that a value is too long to be read.
pub fn fits(bytes: usize) -> Result<(), String> {
    if bytes <= MAX_RELAY_MEMBER_BYTES {
        return Ok(());
    }
    Err(format!(
        "at most {MAX_RELAY_MEMBER_BYTES} bytes in all; they are {bytes}"
    ))
}

/// Reads `{text}` or `{sections}`; the error says what was expected.
pub fn context(value: &Value) -> Result<Arc<Given>, String> {
    let expected = || "an object with text or sections".to_owned();
    let map = value.as_object().ok_or_else(expected)?;
    let unknown = unknown(map, &["text", "sections"]);
    if !unknown.is_empty() {
        return Err(format!("{}; not {}", expected(), unknown.join(", ")));
    }
    text_or_sections(map)
}

/// Reads the members `text` or `sections` of `map`, exactly one of them.
pub fn text_or_sections(map: &Map<String, Value>) -> Result<Arc<Given>, String> {
    let find = |name| map.get(name).filter(|value: &&Value| !value.is_null());
    match (find("text"), find("sections")) {
        (Some(Value::String(text)), None) => Ok(Arc::new(Given::of_text(text.clone()))),
        (Some(_), None) => Err("text to be a text".to_owned()),
        (None, Some(list)) => {
            let parts = named(list).map_err(|expected| format!("sections to be {expected}"))?;
            Ok(Arc::new(Given::of_sections(parts)))
        }
        (Some(_), Some(_)) => Err("either text or sections, not both".to_owned()),
        (None, None) => Err("text or sections".to_owned()),
    }
}

/// Reads a list of references.
pub fn references(value: &Value) -> Result<Arc<[Reference]>, String> {
    let parts = named(value)?;
    let mut names = BTreeSet::new();
    if let Some(twice) = parts.iter().find(|part| !names.insert(part.name.as_str())) {
        return Err(format!(
            "a list of different names; {} is there twice",
            shown(&twice.name)
        ));
    }
    let bytes: usize = parts.iter().map(|part| part.text.len()).sum();
    if bytes > MAX_REFERENCES_BYTES {
        return Err(format!(
            "at most {MAX_REFERENCES_BYTES} bytes of text together; they are {bytes}"
        ));
    }
    let parts = parts.into_iter().filter(|part| !part.text.is_empty());
    let references = parts.map(|part| Reference::named(part.name, &part.text));
    Ok(references.collect())
}

/// The members of `map` whose names aren't known, as they can be shown.
pub fn unknown(map: &Map<String, Value>, known: &[&str]) -> Vec<String> {
    let names = map.keys().map(String::as_str);
    let unknown = names.filter(|name| !known.contains(name));
    unknown.map(shown).collect()
}

/// A name of the client's, cut to what an error has room for.
pub fn shown(name: &str) -> String {
    name.chars().take(SHOWN_CHARS).collect()
}

fn named(value: &Value) -> Result<Vec<Part>, String> {
    let expected = || {
        format!("a list of at most {MAX_GIVEN_PARTS} objects, each with a name and a text alone")
    };
    let list = value.as_array().ok_or_else(expected)?;
    if list.len() > MAX_GIVEN_PARTS {
        return Err(format!("{}; it has {}", expected(), list.len()));
    }
    let part = |(index, value): (usize, &Value)| {
        let wrong = || format!("{}; see the one at index {index}", expected());
        let map = value.as_object().ok_or_else(wrong)?;
        let text = |name| map.get(name).and_then(Value::as_str);
        let (Some(name), Some(text), 2) = (text("name"), text("text"), map.len()) else {
            return Err(wrong());
        };
        if name.trim().is_empty() || name.len() > MAX_PART_NAME_BYTES {
            return Err(format!(
                "names of 1 to {MAX_PART_NAME_BYTES} bytes; see the one at index {index}"
            ));
        }
        Ok(Part {
            name: name.to_owned(),
            text: text.to_owned(),
        })
    };
    list.iter().enumerate().map(part).collect()
}

/// How much of a strange name is shown.
const SHOWN_CHARS: usize = 40;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn contexts_are_one_text_or_sections() {
        let text = context(&json!({"text": "", "sections": null})).unwrap();
        assert_eq!(*text, Given::of_text(String::new()));
        assert!(context(&json!({"sections": []})).is_ok());
        assert!(context(&json!({"sections": [{"name": "persona", "text": "p"}]})).is_ok());
        let long = "n".repeat(MAX_PART_NAME_BYTES + 1);
        for (value, words) in [
            (json!("x"), "an object with text or sections"),
            (json!({}), "text or sections"),
            (
                json!({"text": "SECRET", "sections": []}),
                "either text or sections, not both",
            ),
            (json!({"text": ["SECRET"]}), "text to be a text"),
            (json!({"text": "SECRET", "mood": 1}), "not mood"),
            (json!({"sections": "SECRET"}), "sections to be a list"),
            (json!({"sections": [{"name": "SECRET"}]}), "index 0"),
            (
                json!({"sections": [{"name": "a", "text": "b", "c": "SECRET"}]}),
                "index 0",
            ),
            (
                json!({"sections": [{"name": " ", "text": "SECRET"}]}),
                "1 to 256 bytes",
            ),
            (
                json!({"sections": [{"name": long, "text": "SECRET"}]}),
                "1 to 256 bytes",
            ),
            (
                json!({"sections": vec![json!({"name": "a", "text": "b"}); 257]}),
                "it has 257",
            ),
        ] {
            let fault = context(&value).unwrap_err();
            assert!(fault.contains(words), "{value}: {fault}");
            assert!(!fault.contains("SECRET"), "{fault}");
        }
    }

    #[test]
    fn references_have_different_names_and_a_bound() {
        let list = |parts: &[(&str, usize)]| {
            let part =
                |(name, bytes): &(&str, usize)| json!({"name": name, "text": "x".repeat(*bytes)});
            references(&parts.iter().map(part).collect::<Value>())
        };
        assert_eq!(list(&[("a", 1), ("b", 0)]).unwrap().len(), 1);
        assert!(list(&[("a", MAX_REFERENCES_BYTES)]).is_ok());
        let fault = list(&[("a", MAX_REFERENCES_BYTES), ("b", 1)]).unwrap_err();
        assert!(fault.contains("they are 1048577"), "{fault}");
        assert!(
            list(&[("a", 1), ("a", 1)])
                .unwrap_err()
                .contains("a is there twice")
        );
    }
}
