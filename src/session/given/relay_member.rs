//! The `relay` member of a thread's or turn's params: read strictly, and taken out of the line.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::base::ids::ProfileId;
use crate::base::limits::MAX_POLICY_BYTES;
use crate::context::given::Given;
use crate::context::reference::Reference;
use crate::context::turn_kind::TurnKind;
use crate::session::given::given_params::{self, Excess};
use crate::wire::envelope::member;
use crate::wire::scan::{Members, key_is};

/// What a client says to the relay in the params of a thread or a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayMember {
    /// The context, in place of all others.
    pub context: Option<Arc<Given>>,
    /// The references, in place of all others.
    pub references: Option<Arc<[Reference]>>,
    /// What the turn, or the turns of the thread, are for.
    pub kind: Option<TurnKind>,
    /// What goes at the end of a heartbeat's input.
    pub scratch: Option<String>,
    /// Whose overlay is wanted.
    pub profile: Option<ProfileId>,
    /// The developer policy of a thread.
    pub policy: Option<String>,
    /// Whether there are tools for the memory.
    pub memory_tools: Option<bool>,
    /// Whether the turn is without tools.
    pub tools_disabled: Option<bool>,
}

/// Whose params they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of `thread/start`, `thread/resume` and `thread/fork`.
    Thread,
    /// Those of `turn/start`.
    Turn,
}

/// The member, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// What it says, or everything that is wrong with it.
    pub member: Result<RelayMember, String>,
    /// A context in it that is too large to be read.
    pub excess: Option<Excess>,
    /// Every copy of it, with a comma.
    pub cuts: Vec<Range<usize>>,
}

/// Finds the member in the params of `line`; nothing where there is none. Of copies the last one
/// counts.
pub fn find(line: &Bytes, params: &Range<usize>, scope: Scope) -> Option<Taken> {
    let mut scan = Members::at(line, params.start).ok()?;
    let mut cuts: Vec<Range<usize>> = Vec::new();
    let mut last = None;
    // Where the member before ends; none in front of the first that stays.
    let mut before: Option<usize> = None;
    let mut first: Option<Range<usize>> = None;
    while let Some(member) = scan.next_member().ok()? {
        if let Some(first) = first.take() {
            // Nothing stays in front of it: the comma behind it goes.
            push(&mut cuts, first.start..member.key.start - 1);
        }
        if !key_is(line, &member.key, NAME) {
            before = Some(member.value.end);
            continue;
        }
        let end = member.value.end;
        if let Some(before) = &mut before {
            push(&mut cuts, *before..end);
            *before = end;
        } else {
            first = Some(member.key.start - 1..end);
        }
        last = Some(member.value);
    }
    if let Some(first) = first {
        push(&mut cuts, first);
    }
    let value = last?;
    let context = member(line, &value, &["context"]);
    Some(Taken {
        excess: context.and_then(|context| Excess::of(line, &context)),
        member: parse(line, value, scope),
        cuts,
    })
}

fn push(cuts: &mut Vec<Range<usize>>, cut: Range<usize>) {
    match cuts.last_mut() {
        Some(last) if last.end == cut.start => last.end = cut.end,
        Some(_) | None => cuts.push(cut),
    }
}

fn parse(line: &Bytes, value: Range<usize>, scope: Scope) -> Result<RelayMember, String> {
    given_params::fits(value.len()).map_err(|expected| format!("relay: expected {expected}"))?;
    let value = line.get(value).unwrap_or_default();
    let value = serde_json::from_slice::<Value>(value)
        .map_err(|error| format!("relay: can't be read: {error}"))?;
    read(&value, scope)
}

fn read(value: &Value, scope: Scope) -> Result<RelayMember, String> {
    let mut member = RelayMember::default();
    let map = match value {
        Value::Null => return Ok(member),
        Value::Object(map) => map,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err("relay: expected an object".to_owned());
        }
    };
    let mut faults = Vec::new();
    for (name, value) in map {
        let name_is = |names: &[&str]| names.contains(&name.as_str());
        let elsewhere = match scope {
            Scope::Thread if name_is(&OF_TURN) => Some("turn/start"),
            Scope::Turn if name_is(&OF_THREAD) => {
                Some("thread/start, thread/resume and thread/fork")
            }
            Scope::Thread | Scope::Turn => None,
        };
        let known = match scope {
            Scope::Thread => name_is(&OF_BOTH) || name_is(&OF_THREAD),
            Scope::Turn => name_is(&OF_BOTH) || name_is(&OF_TURN),
        };
        if !known {
            faults.push(unknown(name, elsewhere, scope));
        } else if !value.is_null()
            && let Err(expected) = member.set(name, value)
        {
            faults.push(format!("relay.{name}: expected {expected}"));
        }
    }
    // Whether the turn is a heartbeat may be up to the thread: told later.
    if faults.is_empty() {
        Ok(member)
    } else {
        Err(faults.join("; "))
    }
}

impl RelayMember {
    fn set(&mut self, name: &str, value: &Value) -> Result<(), String> {
        let text = || value.as_str();
        let flag = || {
            let expected = || "true or false".to_owned();
            value.as_bool().map(Some).ok_or_else(expected)
        };
        match name {
            "context" => self.context = Some(given_params::context(value)?),
            "references" => self.references = Some(given_params::references(value)?),
            "kind" => {
                let words: Vec<&str> = TurnKind::ALL.iter().map(|(word, _)| *word).collect();
                let expected = || format!("one of {}", words.join(", "));
                let kind = text().and_then(TurnKind::from_word);
                self.kind = Some(kind.ok_or_else(expected)?);
            }
            "profile" => {
                let expected = || "an id of letters, digits, _ and -".to_owned();
                let profile = text().and_then(ProfileId::new);
                self.profile = Some(profile.ok_or_else(expected)?);
            }
            "policy" => {
                let policy = text().filter(|it| it.len() <= MAX_POLICY_BYTES);
                let expected = || format!("a text of at most {MAX_POLICY_BYTES} bytes");
                self.policy = Some(policy.ok_or_else(expected)?.trim().to_owned());
            }
            "scratch" => {
                let scratch = text().ok_or_else(|| "a text".to_owned())?;
                self.scratch = (!scratch.trim().is_empty()).then(|| scratch.to_owned());
            }
            "memoryTools" => self.memory_tools = flag()?,
            _ => self.tools_disabled = flag()?,
        }
        Ok(())
    }
}

fn unknown(name: &str, elsewhere: Option<&str>, scope: Scope) -> String {
    let shown: String = name.chars().take(SHOWN_CHARS).collect();
    let both = OF_BOTH.join(", ");
    let (known, place) = match scope {
        Scope::Thread => (format!("{both}, {}", OF_THREAD.join(", ")), "a thread"),
        Scope::Turn => (format!("{both}, {}", OF_TURN.join(", ")), "a turn"),
    };
    let what = match elsewhere {
        Some(methods) => format!("is a member for {methods} alone"),
        None => "is no member that this relay knows".to_owned(),
    };
    format!("relay.{shown}: {what}; {place} takes {known}")
}

/// What it may hold on a thread and on a turn.
pub const OF_BOTH: [&str; 4] = ["context", "kind", "profile", "memoryTools"];

/// Members of a thread alone.
pub const OF_THREAD: [&str; 1] = ["policy"];

/// What it may hold on a turn beside that.
pub const OF_TURN: [&str; 3] = ["references", "scratch", "toolsDisabled"];

/// The member's name.
const NAME: &str = "relay";

/// How much of a strange name is shown.
const SHOWN_CHARS: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::MAX_RELAY_MEMBER_BYTES;
    use crate::context::snapshot::Section;
    use crate::wire::edit::cut;

    fn taken(params: &str, scope: Scope) -> Option<Taken> {
        find(&Bytes::from(params.to_owned()), &(0..params.len()), scope)
    }

    #[test]
    fn every_copy_is_taken_out_and_the_rest_stays() {
        let own = r#""relay":{"kind":"cron"}"#;
        for (params, bare) in [
            (format!("{{{own}}}"), "{}"),
            (format!("{{ {own} }}"), "{  }"),
            (format!("{{{own},\"a\":1}}"), "{\"a\":1}"),
            (format!("{{\"a\":1, {own}}}"), "{\"a\":1}"),
            (
                format!("{{\"a\":1 , {own} ,\"b\":2}}"),
                "{\"a\":1 ,\"b\":2}",
            ),
            (format!("{{\"relay\":7,{own}}}"), "{}"),
            (format!("{{\"relay\":7,\"a\":1,{own}}}"), "{\"a\":1}"),
            (
                format!("{{\"relay\":7,\"relay\":8,\"a\":1,\"b\":2,{own}}}"),
                "{\"a\":1,\"b\":2}",
            ),
            (
                format!("{{\"a\":1,\"relay\":7,{own},\"b\":2}}"),
                "{\"a\":1,\"b\":2}",
            ),
            ("{\"rel\\u0061y\":{\"kind\":\"cron\"}}".to_owned(), "{}"),
        ] {
            let taken = taken(&params, Scope::Turn).unwrap();
            let line = cut(Bytes::from(params.clone()), &taken.cuts);
            assert_eq!(line, bare, "{params}");
            assert_eq!(taken.member.unwrap().kind, Some(TurnKind::Cron), "{params}");
        }
        for params in ["{}", "[]", "{\"a\":{\"relay\":1}}", "{\"relays\":1}"] {
            assert_eq!(taken(params, Scope::Turn), None, "{params}");
        }
    }

    fn read(member: &str, scope: Scope) -> Result<RelayMember, String> {
        let params = format!("{{\"relay\":{member}}}");
        taken(&params, scope).unwrap().member
    }

    #[test]
    fn members_are_read_as_they_are_meant() {
        assert_eq!(
            read(
                r#"{"kind":"heartbeat","scratch":"s","profile":"ada","memoryTools":true,"toolsDisabled":false}"#,
                Scope::Turn
            ),
            Ok(RelayMember {
                kind: Some(TurnKind::Heartbeat),
                scratch: Some("s".to_owned()),
                profile: ProfileId::new("ada"),
                policy: None,
                memory_tools: Some(true),
                tools_disabled: Some(false),
                ..RelayMember::default()
            })
        );
        let given = r#"{"context":{"text":"t"},"references":[{"name":"n","text":"r"}]}"#;
        let member = read(given, Scope::Turn).unwrap();
        assert_eq!(
            member.context.as_deref(),
            Some(&Given::of_text("t".to_owned()))
        );
        assert_eq!(member.references.unwrap().len(), 1);
        for empty in ["null", "{}", r#"{"kind":null,"scratch":" \n"}"#] {
            assert_eq!(
                read(empty, Scope::Turn),
                Ok(RelayMember::default()),
                "{empty}"
            );
        }
    }

    #[test]
    fn member_that_is_too_large_is_measured_and_not_read() {
        let long = "\\n".repeat(MAX_RELAY_MEMBER_BYTES / 2);
        let params = |member: &str| {
            let params = format!("{{\"relay\":{member}}}");
            taken(&params, Scope::Turn).unwrap()
        };
        let text = params(&format!(r#"{{"context":{{"text":"{long}"}}}}"#));
        let section = |name: &str, bytes| Section {
            name: name.to_owned(),
            bytes,
        };
        let bytes = MAX_RELAY_MEMBER_BYTES / 2;
        let sections = vec![section("text", bytes)];
        assert_eq!(text.excess, Some(Excess { bytes, sections }));
        let parts = format!(r#"[{{"name":"a","text":"a"}},{{"name":"b","text":"{long}"}}]"#);
        let parts = params(&format!(r#"{{"context":{{"sections":{parts}}}}}"#));
        let sections = vec![section("a", 1), section("b", bytes)];
        let bytes = bytes + 1;
        assert_eq!(parts.excess, Some(Excess { bytes, sections }));
        let other = params(&format!(r#"{{"scratch":"{long}"}}"#));
        assert_eq!(other.excess, None);
        let fault = other.member.unwrap_err();
        assert!(
            fault.starts_with("relay: expected at most 8388608 bytes"),
            "{fault}"
        );
    }

    #[test]
    fn everything_that_is_wrong_is_named() {
        for (member, scope, named) in [
            ("7", Scope::Turn, "expected an object"),
            (
                r#"{"scratch":"\ud800"}"#,
                Scope::Turn,
                "relay: can't be read",
            ),
            (
                r#"{"kind":"hourly"}"#,
                Scope::Turn,
                "relay.kind: expected one of user, heartbeat",
            ),
            (r#"{"profile":"../x"}"#, Scope::Turn, "relay.profile"),
            (
                r#"{"memoryTools":"yes"}"#,
                Scope::Turn,
                "relay.memoryTools: expected true or false",
            ),
            (
                r#"{"context":{}}"#,
                Scope::Turn,
                "relay.context: expected text or sections",
            ),
            (
                r#"{"references":[]}"#,
                Scope::Thread,
                "relay.references: is a member for turn/start alone",
            ),
            (
                r#"{"policy":""}"#,
                Scope::Turn,
                "relay.policy: is a member for thread/start, thread/resume and thread/fork alone",
            ),
            (
                r#"{"policy":7}"#,
                Scope::Thread,
                "relay.policy: expected a text",
            ),
            (
                r#"{"scratch":"s"}"#,
                Scope::Thread,
                "relay.scratch: is a member for turn/start alone",
            ),
            (
                r#"{"a":1,"kind":7}"#,
                Scope::Turn,
                "relay.kind: expected one of",
            ),
            (r#"{"a":1,"kind":7}"#, Scope::Turn, "relay.a: is no member"),
        ] {
            let fault = read(member, scope).unwrap_err();
            assert!(fault.contains(named), "{member}: {fault}");
        }
    }
}
