//! What stands in a thread's developer instructions, and the message that takes an older text's place.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::context::digest::Digest;

/// What the relay has to say in the developer instructions of a thread, but for its section.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Orders {
    /// The developer policy: absent, in force, or withdrawn where it is empty.
    pub policy: Option<Arc<str>>,
    /// The workspace's AGENTS.md, where there is one and the thread's folder is known.
    pub agents: Option<Agents>,
    /// Whether there is one, whatever the folder.
    pub has_document: bool,
}

/// A bounded copy of the workspace's AGENTS.md.
#[derive(Clone, PartialEq, Eq)]
pub struct Agents {
    /// The copy, between its markers.
    pub text: Arc<str>,
    /// The workspace, as the thread's folder or one above it; none where it is neither.
    pub found_at: Option<PathBuf>,
    /// Whether codex looks for the file there, as long as it may read it.
    pub is_discovered: bool,
}

impl fmt::Debug for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The texts are private: a log must not hold them.
        f.debug_struct("Orders")
            .field("policy_bytes", &self.policy.as_ref().map(|it| it.len()))
            .field("agents", &self.agents)
            .field("has_document", &self.has_document)
            .finish()
    }
}

impl fmt::Debug for Agents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agents")
            .field("bytes", &self.text.len())
            .field("found_at", &self.found_at)
            .field("is_discovered", &self.is_discovered)
            .finish()
    }
}

/// What developer instructions are made of, in this order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts<'a> {
    /// The client's own, or those of the user's configuration.
    pub base: Option<&'a str>,
    /// The developer policy.
    pub policy: Option<&'a str>,
    /// The copy of AGENTS.md.
    pub agents: Option<&'a str>,
    /// What a thread without a route is told of the context.
    pub section: Option<&'a str>,
}

/// The complete developer instructions of a thread.
#[derive(Clone, PartialEq, Eq)]
pub struct Text {
    /// The text; empty where there is nothing to say.
    pub whole: String,
    /// Its digest.
    pub digest: Digest,
    /// The digest of the policy in it; an absent policy is another than an empty one.
    pub policy: Option<Digest>,
    /// Whether any part of it is the relay's.
    pub is_ours: bool,
}

impl Text {
    /// Joins the parts that have something to say by one blank line.
    pub fn new(parts: Parts<'_>) -> Self {
        let says = |part: &&str| !part.trim().is_empty();
        let section = parts.section.filter(says).map(section);
        let all = [parts.base, parts.policy, parts.agents, section.as_deref()];
        let said: Vec<&str> = all.into_iter().flatten().filter(says).collect();
        let whole = said.join("\n\n");
        Self {
            digest: Digest::of(&whole),
            whole,
            policy: parts.policy.map(Digest::of),
            is_ours: parts.policy.is_some() || parts.agents.is_some() || section.is_some(),
        }
    }

    /// The message that puts this text in the place of every older one.
    pub fn item(&self) -> Value {
        let words = if self.whole.is_empty() {
            WITHDRAWN.to_owned()
        } else {
            let whole = &self.whole;
            format!("{REPLACED}\n\n<developer_instructions>\n{whole}\n</developer_instructions>")
        };
        json!({
            "type": "message",
            "role": "developer",
            "content": [{ "type": "input_text", "text": words }],
        })
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Text")
            .field("bytes", &self.whole.len())
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}

fn section(text: &str) -> String {
    format!("{SECTION_OPENS}\n{text}\n{SECTION_CLOSES}")
}

/// Begins the section that a thread without a route is told.
pub const SECTION_OPENS: &str = "<agent_workspace_section>";
const SECTION_CLOSES: &str = "</agent_workspace_section>";

/// Old texts stay in the history: the model must be told that they count no more.
const REPLACED: &str = "# Developer instructions replaced\n\n\
    The text below is all that holds of this thread's developer instructions from here on. Every older \
    version of them above, a section of the agent's workspace included, is withdrawn: what isn't said \
    again below holds no longer.";

/// How every message begins that takes older texts' place.
pub const REPLACEMENT_HEAD: &str = "# Developer instructions ";

/// The message that withdraws everything.
pub const WITHDRAWN: &str = "# Developer instructions withdrawn\n\n\
    The developer instructions that were given for this thread above, a section of the agent's \
    workspace included, are withdrawn. None of them holds any longer.";

#[cfg(test)]
mod tests {
    use super::*;

    fn text(parts: Parts<'_>) -> Text {
        Text::new(parts)
    }

    #[test]
    fn parts_stand_in_order_and_blank_ones_are_left_out() {
        let all = text(Parts {
            base: Some("base"),
            policy: Some("policy"),
            agents: Some("agents"),
            section: Some("section"),
        });
        assert_eq!(
            all.whole,
            "base\n\npolicy\n\nagents\n\n\
             <agent_workspace_section>\nsection\n</agent_workspace_section>"
        );
        assert!(all.is_ours);
        let bare = text(Parts {
            base: Some("base"),
            section: Some(" \n"),
            ..Parts::default()
        });
        assert_eq!((&*bare.whole, bare.is_ours), ("base", false));
        assert_eq!(text(Parts::default()).whole, "");
    }

    #[test]
    fn empty_policy_is_another_than_none() {
        let empty = text(Parts {
            policy: Some(""),
            ..Parts::default()
        });
        let none = text(Parts::default());
        assert_eq!(empty.digest, none.digest);
        assert_ne!(empty.policy, none.policy);
        assert!(empty.is_ours && !none.is_ours);
    }

    #[test]
    fn message_says_the_whole_text_or_that_nothing_holds() {
        assert!(
            [REPLACED, WITHDRAWN]
                .iter()
                .all(|it| it.starts_with(REPLACEMENT_HEAD))
        );
        let said = text(Parts {
            base: Some("base"),
            ..Parts::default()
        });
        let words = said.item()["content"][0]["text"].to_string();
        assert!(words.contains("<developer_instructions>\\nbase\\n</developer_instructions>"));
        assert_eq!(said.item()["role"], "developer");
        let nothing = text(Parts::default()).item();
        assert_eq!(nothing["content"][0]["text"], WITHDRAWN);
    }
}
