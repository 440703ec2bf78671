//! What clients send: the schema of it. It is read by hand (`session::given::given_params`,
//! `session::given::relay_member`, `session::given::relay_methods`), so that every mistake is named at once and no
//! private text stands in an error.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// No params.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// The params of `relay/context/set`. Exactly one of `text` and `sections` is given.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContextSet {
    /// The thread; without it the registration is for all threads that have none of their own.
    pub thread_id: Option<String>,
    /// How long it lives. `turn` needs a thread.
    pub scope: Scope,
    /// The whole context.
    pub text: Option<String>,
    /// The context in parts: `persona`, `skills` and `memory` come first, others as they are given.
    pub sections: Option<Vec<NamedText>>,
    /// What the thread must have been told of; without it that of the thread, else of the default.
    pub references: Option<Vec<NamedText>>,
    /// Whether the thread has tools for the memory.
    pub memory_tools: Option<bool>,
}

/// How long a registration lives.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Scope {
    /// Until the turn that gets it has ended.
    Turn,
    /// Until it is replaced or cleared.
    Thread,
}

/// A text with a name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamedText {
    /// Its name, 1 to 256 bytes.
    pub name: String,
    /// The text.
    pub text: String,
}

/// The params of `relay/context/clear` and `relay/status`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OfThread {
    /// The thread; without it `relay/context/clear` clears the default, and `relay/status` tells of
    /// all threads.
    pub thread_id: Option<String>,
}

/// The member `relay` of `thread/start`, `thread/resume` and `thread/fork`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ThreadMember {
    /// The context of the thread's turns.
    pub context: Option<Context>,
    /// The developer policy; an empty text withdraws the one before.
    pub policy: Option<String>,
    /// What its turns are for.
    pub kind: Option<Kind>,
    /// Whose overlay they get.
    pub profile: Option<String>,
    /// Whether they have tools for the memory.
    pub memory_tools: Option<bool>,
}

/// The member `relay` of `turn/start`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TurnMember {
    /// The context of this turn.
    pub context: Option<Context>,
    /// What the thread must have been told of.
    pub references: Option<Vec<NamedText>>,
    /// What the turn is for.
    pub kind: Option<Kind>,
    /// What goes at the end of a heartbeat's input.
    pub scratch: Option<String>,
    /// Whose overlay it gets.
    pub profile: Option<String>,
    /// Whether it has tools for the memory.
    pub memory_tools: Option<bool>,
    /// Whether it is without tools.
    pub tools_disabled: Option<bool>,
}

/// A context: exactly one of its members is given.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Context {
    /// The whole context.
    pub text: Option<String>,
    /// The context in parts.
    pub sections: Option<Vec<NamedText>>,
}

/// What a turn is for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Somebody wrote something.
    User,
    /// The agent is to look around.
    Heartbeat,
    /// A job is due.
    Cron,
    /// A job that needs nothing of the agent's own.
    CronLightweight,
    /// The agent may answer and do nothing else.
    MessageOnly,
    /// The turn has no tools.
    ToolsDisabled,
    /// The turn looks after the agent itself.
    RingZero,
}
