//! How a thread is opened: what the client asks for, and what codex's answer says.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::base::ids::ThreadId;
use crate::base::limits::{MAX_KEPT_CONFIG_BYTES, MAX_POLICY_BYTES};
use crate::session::instructions::documents::Documents;
use crate::session::instructions::places::Places;
use crate::session::methods::{INSTRUCTIONS_MEMBER, ThreadWay};
use crate::wire::envelope::{member, member_text, text};
use crate::wire::known::Place;
use crate::wire::literal;
use crate::wire::scan;

/// What a client asks codex for when it starts, resumes or forks a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// How it comes to the thread.
    pub way: ThreadWay,
    /// The thread that is resumed or forked.
    pub source: Option<ThreadId>,
    /// Whether a fork leaves the newest turns out.
    pub is_partial: bool,
    /// The client's own developer instructions, else those of the user's configuration.
    pub base: Option<Base>,
    /// The client's own, where it gives some here.
    pub own: Option<Base>,
    /// The client's `config`.
    pub config: KeptConfig,
    /// The client's `modelProvider` and `personality`, and the `baseInstructions` of a resume, as they stand.
    pub kept: Vec<(&'static str, Bytes)>,
    /// The policy that the client gave.
    pub policy: Option<Arc<str>>,
    /// The environments that the client has it started in.
    pub places: Option<Places>,
    /// Whether it is given the private route.
    pub is_routed: bool,
    /// Whether the workspace has an AGENTS.md.
    pub has_document: bool,
}

/// Developer instructions that aren't the relay's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// Ones that are kept, to be given again.
    Kept(Arc<str>),
    /// Ones of so many bytes: too large to be kept, or to have anything put behind them.
    TooLarge(usize),
}

impl Base {
    /// Reads the string at `value`; none where it isn't text.
    pub fn read(line: &[u8], value: &Range<usize>) -> Option<Self> {
        let within = line.get(scan::string_within(line, value)?)?;
        match literal::length(within).ok()? {
            bytes if bytes > MAX_POLICY_BYTES => Some(Self::TooLarge(bytes)),
            _ => Some(Self::Kept(literal::unescape(within).ok()?.into())),
        }
    }

    /// Reads those that the client itself gives: its own member beats its `config`.
    pub fn of_params(line: &[u8], params: &impl Place) -> Option<Self> {
        let paths: [&[&str]; 2] = [
            &[INSTRUCTIONS_MEMBER],
            &["config", "developer_instructions"],
        ];
        let mut paths = paths.iter();
        paths.find_map(|path| Self::read(line, &member(line, params, path)?))
    }

    /// The text, where it is kept.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Kept(text) => Some(text),
            Self::TooLarge(_) => None,
        }
    }

    /// The text, where it is kept.
    pub fn into_text(self) -> Option<Arc<str>> {
        match self {
            Self::Kept(text) => Some(text),
            Self::TooLarge(_) => None,
        }
    }
}

/// The `config` of a client, which codex keeps none of over a resume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeptConfig {
    /// The client gave none.
    #[default]
    Absent,
    /// It, as it stands.
    Kept(Bytes),
    /// It is too large to be kept.
    TooLarge,
}

impl KeptConfig {
    /// Keeps a copy of `raw`, which may be a part of something large.
    pub fn copy(raw: Option<&[u8]>) -> Self {
        match raw {
            None => Self::Absent,
            Some(raw) if raw.len() > MAX_KEPT_CONFIG_BYTES => Self::TooLarge,
            Some(raw) => Self::Kept(Bytes::copy_from_slice(raw)),
        }
    }
}

/// What codex's answer says of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// It is never written down, so that it can't be resumed.
    pub is_ephemeral: bool,
    /// The environments that it is in.
    pub places: Option<Places>,
    /// The folder that codex calls its own.
    pub cwd: Option<PathBuf>,
    /// Where codex writes it down.
    pub history: Option<PathBuf>,
    /// Its model and the like, as `thread/settings/updated` would tell them.
    pub settings: Option<Bytes>,
    /// The documents that codex shows it.
    pub documents: Documents,
}

impl Opened {
    /// Reads the result of codex's answer; with `has_document` the workspace has an AGENTS.md.
    pub fn read(line: &Bytes, result: Option<&impl Place>, has_document: bool) -> Self {
        let mut documents = Documents::default();
        if let Some(result) = result {
            documents.learn(line, result, has_document);
        }
        let find = |name| member(line, result?, &["thread", name]);
        let is_true = |at: Range<usize>| line.get(at) == Some(b"true");
        let settings = [("model", "model"), ("effort", "reasoningEffort")]
            .into_iter()
            .chain([("collaborationMode", "collaborationMode")])
            .filter_map(|(name, path)| {
                let value = line.get(member(line, result?, &[path])?)?;
                let value: Value = serde_json::from_slice(value).ok()?;
                Some((name.to_owned(), value))
            });
        let settings: Map<String, Value> = settings.collect();
        Self {
            documents,
            settings: Some(Value::Object(settings).to_string().into())
                .filter(|it: &Bytes| it.len() <= MAX_KEPT_CONFIG_BYTES),
            is_ephemeral: find("ephemeral").is_some_and(is_true),
            places: result.and_then(|it| Places::find(line, it, &["thread", "environments"])),
            cwd: result
                .and_then(|result| member_text(line, result, &["cwd"]))
                .map(PathBuf::from),
            history: find("path")
                .and_then(|at| text(line, &at))
                .map(PathBuf::from),
        }
    }
}

impl Opened {
    /// The folder of this machine that codex reads documents and skills from.
    pub fn folder(&self) -> Option<&PathBuf> {
        let chosen = self.places.as_ref().and_then(Places::folder);
        chosen.or(self.cwd.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_is_kept_as_long_as_its_text_fits() {
        let read = |bytes: usize| {
            let literal = format!("\"{}\"", "\\n".repeat(bytes));
            Base::read(literal.as_bytes(), &(0..literal.len()))
        };
        let kept = "\n".repeat(MAX_POLICY_BYTES);
        assert_eq!(read(MAX_POLICY_BYTES), Some(Base::Kept(kept.into())));
        let over = MAX_POLICY_BYTES + 1;
        assert_eq!(read(over), Some(Base::TooLarge(over)));
        assert_eq!(Base::read(b"7", &(0..1)), None);
        let params = br#"{"config":{"developer_instructions":"b"},"developerInstructions":null}"#;
        let own = Base::of_params(params, &(0..params.len()));
        assert_eq!(own, Some(Base::Kept("b".into())));
    }
}
