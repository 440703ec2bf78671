//! The front matter of a SKILL.md: what the skill is called, what it is for, what it needs.
//!
//! The format is that of the agent-skills convention (`name`, `description`,
//! `disable-model-invocation`) with the `metadata.openclaw` of `OpenClaw` (`os`, `requires.bins`,
//! `requires.anyBins`, `requires.env`, `always`); `os` and `requires` may stand at the top too.

use std::borrow::Cow;

use serde_json::Value;

/// What the head of a SKILL.md says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontMatter {
    /// The skill's name.
    pub name: Option<String>,
    /// When to use it, white space collapsed.
    pub description: String,
    /// The model is not to be told of it.
    pub is_hidden: bool,
    /// What it needs.
    pub needs: Needs,
}

/// What must be there for a skill to be of use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Nothing is: the rest doesn't count.
    pub nothing: bool,
    /// Systems that it is for; empty for all.
    pub os: Vec<String>,
    /// Programs on PATH, every one.
    pub bins: Vec<String>,
    /// Programs on PATH, one of them.
    pub any_bins: Vec<String>,
    /// Variables of the environment, every one.
    pub env: Vec<String>,
}

/// Why a SKILL.md can't be listed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrontMatterError {
    /// It doesn't begin with one.
    #[error("has no front matter: expected --- in the first line")]
    Absent,
    /// It begins with one that has no end.
    #[error("has a front matter without an end: expected a line of ---")]
    Endless,
    /// It isn't a map.
    #[error("has a front matter that can't be read as YAML: {0}")]
    Yaml(String),
    /// It doesn't say when to use the skill.
    #[error("has no description in its front matter")]
    NoDescription,
}

impl FrontMatter {
    /// Reads the head of `text`.
    pub fn read(text: &str) -> Result<Self, FrontMatterError> {
        let yaml = between_fences(text)?;
        let map = match serde_saphyr::from_str::<Value>(yaml) {
            Ok(map @ Value::Object(_)) => map,
            first => {
                // Descriptions with a colon in them are common, and no YAML: `Use when: …`.
                let second = serde_saphyr::from_str::<Value>(&quote_plain_texts(yaml));
                match (second, first) {
                    (Ok(map @ Value::Object(_)), _) => map,
                    (_, Err(error)) => {
                        return Err(FrontMatterError::Yaml(first_line(&error.to_string())));
                    }
                    (_, Ok(_)) => return Err(FrontMatterError::Yaml("expected a map".to_owned())),
                }
            }
        };
        let description = texts(map.get("description")).concat();
        let description = one_line(&description);
        if description.is_empty() {
            return Err(FrontMatterError::NoDescription);
        }
        let name = one_line(&texts(map.get("name")).concat());
        Ok(Self {
            name: (!name.is_empty()).then_some(name),
            description,
            is_hidden: is_true(map.get("disable-model-invocation")),
            needs: needs(&map),
        })
    }
}

/// The lines between the first two lines of `---`.
fn between_fences(text: &str) -> Result<&str, FrontMatterError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    if first.trim_end() != FENCE {
        return Err(FrontMatterError::Absent);
    }
    let mut length = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == FENCE {
            return Ok(rest.get(..length).unwrap_or_default());
        }
        length += line.len();
    }
    Err(FrontMatterError::Endless)
}

/// Quotes the texts of `name` and `description` that stand plain in one line.
fn quote_plain_texts(yaml: &str) -> String {
    let quoted = |line: &str| -> Option<String> {
        let (key, text) = line.split_once(':')?;
        let text = text.trim();
        let is_plain = !text.is_empty() && !text.starts_with(['"', '\'', '|', '>', '&', '*', '!']);
        (matches!(key, "name" | "description") && is_plain)
            .then(|| format!("{key}: {}", Value::from(text)))
    };
    let lines = yaml.lines().map(|line| match quoted(line) {
        Some(line) => Cow::Owned(line),
        None => Cow::Borrowed(line),
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn needs(map: &Value) -> Needs {
    // Some write the metadata as JSON in a string.
    let metadata = match map.get("metadata") {
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_default(),
        Some(value) => value.clone(),
        None => Value::Null,
    };
    let own = ["openclaw", "clawdbot"]
        .iter()
        .find_map(|name| metadata.get(name));
    let mut needs = Needs::default();
    for place in [Some(map), own].into_iter().flatten() {
        let requires = place.get("requires");
        let of = |name: &str| texts(requires.and_then(|requires| requires.get(name)));
        needs.nothing |= is_true(place.get("always"));
        needs.os.extend(texts(place.get("os")));
        needs.bins.extend(of("bins"));
        needs.any_bins.extend(of("anyBins"));
        needs.env.extend(of("env"));
    }
    needs
}

/// A text, or the texts of a list.
fn texts(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Number(number)) => vec![number.to_string()],
        Some(Value::Array(list)) => list.iter().flat_map(|one| texts(Some(one))).collect(),
        Some(Value::Null | Value::Bool(_) | Value::Object(_)) | None => Vec::new(),
    }
}

fn is_true(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Bool(it)) => *it,
        Some(Value::String(text)) => text.eq_ignore_ascii_case("true"),
        Some(Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_)) | None => false,
    }
}

/// What is wrong, without the picture of where.
fn first_line(error: &str) -> String {
    one_line(error.lines().next().unwrap_or_default())
}

/// `text` with every run of white space and control characters as one space.
fn one_line(text: &str) -> String {
    let is_gap = |it: char| it.is_whitespace() || it.is_control();
    let words = text.split(is_gap).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// What stands above and below a front matter.
const FENCE: &str = "---";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(yaml: &str) -> FrontMatter {
        FrontMatter::read(&format!("---\n{yaml}\n---\nbody")).unwrap()
    }

    #[test]
    fn descriptions_of_every_style_become_one_line() {
        for yaml in [
            "name: a\ndescription: one two",
            "name: a\r\ndescription: one two\r",
            "name: a\ndescription: >\n  one\n  two\n",
            "name: a\ndescription: |-\n  one\n\n  two\n",
            "name: \"a\"\ndescription: 'one\n  two'",
            "description: one\n  two\nname: a # a comment",
        ] {
            let read = read(yaml);
            assert_eq!(
                (read.name.as_deref(), read.description.as_str()),
                (Some("a"), "one two"),
                "{yaml}"
            );
        }
        let colon = read("name: a\ndescription: Use when: asked: \"x\" # no comment");
        assert_eq!(colon.description, "Use when: asked: \"x\" # no comment");
    }

    #[test]
    fn needs_are_read_where_openclaw_and_others_write_them() {
        let expected = Needs {
            nothing: false,
            os: vec!["linux".to_owned()],
            bins: vec!["git".to_owned(), "gh".to_owned()],
            any_bins: vec!["a".to_owned()],
            env: vec!["TOKEN".to_owned()],
        };
        for yaml in [
            "description: d\nos: linux\nrequires:\n  bins: [git, gh]\n  anyBins: [a]\n  env: TOKEN",
            "description: d\nmetadata: {\"openclaw\": {\"os\": [\"linux\"], \"requires\": {\"bins\": [\"git\", \"gh\"],\n  \"anyBins\": [\"a\"], \"env\": [\"TOKEN\"]}}}",
            "description: d\nmetadata: '{\"openclaw\": {\"os\": [\"linux\"], \"requires\": {\"bins\": [\"git\", \"gh\"], \"anyBins\": [\"a\"], \"env\": [\"TOKEN\"]}}}'",
        ] {
            assert_eq!(read(yaml).needs, expected, "{yaml}");
        }
        assert!(
            read("description: d\nmetadata:\n  openclaw:\n    always: true")
                .needs
                .nothing
        );
        assert!(read("description: d\ndisable-model-invocation: true").is_hidden);
    }

    #[test]
    fn faults_are_told_apart() {
        let fault = |text: &str| FrontMatter::read(text).unwrap_err();
        assert_eq!(fault(""), FrontMatterError::Absent);
        assert_eq!(fault("# Title\n---\n"), FrontMatterError::Absent);
        assert_eq!(fault("---\nname: a\n"), FrontMatterError::Endless);
        assert_eq!(fault("---\nname: a\n---"), FrontMatterError::NoDescription);
        assert_eq!(
            fault("---\n---\n"),
            FrontMatterError::Yaml("expected a map".to_owned())
        );
        assert!(matches!(fault("---\n[a\n---\n"), FrontMatterError::Yaml(_)));
    }

    proptest! {
        #[test]
        fn any_head_is_read_or_refused(text in "(---\n)?(\\PC|[\n:\\-&*{}\\[\\]|>#'\" ]){0,200}(\n---\n)?") {
            if let Ok(read) = FrontMatter::read(&text) {
                prop_assert!(!read.description.is_empty());
                prop_assert!(!read.description.contains('\n'));
            }
        }
    }
}
