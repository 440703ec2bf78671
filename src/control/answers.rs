//! What the relay answers and tells.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::control::account::{Account, Requests};

/// The answer to `relay/info`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Info {
    /// The relay's version.
    pub version: String,
    /// Codex's version; null before it has answered `initialize`, or where it doesn't say.
    pub codex_version: Option<String>,
    /// Who supplies contexts: `workspace`, `client` or `none`.
    pub context: String,
    /// What is refused above them.
    pub limits: Limits,
    /// Where threads are routed.
    pub route: Route,
}

/// Bounds, in bytes where nothing else is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limits {
    /// A prepared context.
    pub context_bytes: usize,
    /// The texts of a turn's references, together.
    pub references_bytes: usize,
    /// A model request over HTTP: on the wire, inflated, and with its context.
    pub request_bytes: usize,
    /// A WebSocket message.
    pub message_bytes: usize,
    /// Threads that are open, and threads that have a registered context, each at once.
    pub threads: usize,
}

/// Whether model requests come to the relay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Route {
    /// Whether they do.
    pub status: RouteStatus,
    /// Why they don't; a stable word.
    pub reason: Option<String>,
    /// Whether the relay itself sees to it, request by request, that the parent alone gets the
    /// context. Without a route the context stands in the thread's developer instructions, which
    /// children may inherit, and nobody verifies who sees it.
    pub is_parent_only: bool,
    /// The host that they go on to; null while the account is unknown.
    pub upstream_host: Option<String>,
}

/// Whether model requests come to the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RouteStatus {
    /// They do.
    Active,
    /// They keep their own way.
    Fallback,
    /// No thread was opened yet.
    Pending,
}

/// The answer to `relay/context/set`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Registered {
    /// The registration's id.
    pub generation: String,
    /// Its size as UTF-8.
    pub bytes: usize,
}

/// The answer to `relay/context/clear`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cleared {}

/// The answer to `relay/status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Status {
    /// The threads that were asked for, in the order of their ids: open ones, and those that have a
    /// registered context.
    pub threads: Vec<ThreadStatus>,
    /// What is registered for threads that have nothing of their own.
    pub default: Option<Registration>,
    /// All requests since the relay was started, also those of threads that nobody here has opened.
    pub totals: Requests,
}

/// The account of one thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ThreadStatus {
    /// Its id.
    pub thread_id: String,
    /// Whether it is open: started, resumed or forked here, and not closed since.
    pub is_open: bool,
    /// Its route.
    pub route: Route,
    /// Turns that reached a model without the relay.
    pub bypasses: u64,
    /// What the client has registered for it.
    pub registrations: Vec<Registration>,
    /// The context that was prepared last: of the turn that runs, or ran last; before the first one,
    /// of the thread.
    pub context: Account,
    /// The last turn of the client's.
    pub turn: Option<Turn>,
    /// The last turn that codex started itself.
    pub codex_turn: Option<Turn>,
    /// Its model requests, and those of its children and of theirs, whatever turn they name.
    pub requests: Requests,
    /// The last text that went into a request.
    pub last_injection: Option<Injection>,
    /// What the thread was told of.
    pub references: Vec<Reference>,
    /// Why one of its requests went no further, the last time.
    pub last_refusal: Option<Refusal>,
}

/// One registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Registration {
    /// How long it lives: `turn` or `thread`.
    pub scope: String,
    /// Its id.
    pub generation: String,
    /// Its size as UTF-8.
    pub bytes: usize,
}

/// One turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Turn {
    /// Its id.
    pub turn_id: String,
    /// Whether it still runs.
    pub is_running: bool,
    /// Its context, in bytes.
    pub context: usize,
    /// The model requests that name it, also those of its children and of theirs: connections that
    /// are warmed up name none.
    pub requests: Requests,
}

/// What went into the requests of a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Injection {
    /// The turn; null for a prewarm.
    pub turn_id: Option<String>,
    /// How many of its requests have it.
    pub requests: u64,
    /// Its size as UTF-8.
    pub bytes: usize,
}

/// One reference of the last turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Reference {
    /// Its name.
    pub name: String,
    /// `delivered`: it stands in the thread's history as it is; `sent`: codex hasn't answered;
    /// `due`: the next turn brings it.
    pub state: String,
}

/// Why a request went no further.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Refusal {
    /// The reason code.
    pub reason: String,
    /// What codex was told.
    pub message: String,
}

/// The params of the notification `relay/warning`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Warning {
    /// The thread that it is about, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub thread_id: Option<String>,
    /// A stable word.
    pub reason: String,
    /// What a person may want to know.
    pub message: String,
}
