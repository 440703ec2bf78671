//! The one table of app-server methods that the relay does something with.
//!
//! Names and members: `proto/codex-app-server.toml`.

/// A method of the client that is more than passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientMethod {
    /// `initialize`: tells what the client can do.
    Initialize,
    /// `thread/start`, `thread/resume`, `thread/fork`: get the route.
    Thread,
    /// `turn/start`: gets a context and a generation.
    TurnStart,
    /// `turn/steer`: keeps the generation of its turn.
    TurnSteer,
}

/// A notification of codex that teaches something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodexNotification {
    /// `turn/completed`: the turn is over, however it went.
    TurnCompleted,
    /// `thread/archived`, `thread/closed`, `thread/deleted`: the thread is loaded no more.
    ThreadGone,
}

/// Finds what is to be done with the client's `method`.
pub fn of_client(method: &str) -> Option<ClientMethod> {
    match method {
        "initialize" => Some(ClientMethod::Initialize),
        "thread/start" | "thread/resume" | "thread/fork" => Some(ClientMethod::Thread),
        "turn/start" => Some(ClientMethod::TurnStart),
        "turn/steer" => Some(ClientMethod::TurnSteer),
        _ => None,
    }
}

/// Finds what codex's notification `method` teaches.
pub fn of_codex(method: &str) -> Option<CodexNotification> {
    match method {
        "turn/completed" => Some(CodexNotification::TurnCompleted),
        "thread/archived" | "thread/closed" | "thread/deleted" => {
            Some(CodexNotification::ThreadGone)
        }
        _ => None,
    }
}

/// The member that carries a registration's generation through codex.
pub const GENERATION_MEMBER: &str = "codex_relay_generation";

/// The member of `turn/start` and `turn/steer` that codex merges into its metadata.
pub const METADATA_MEMBER: &str = "responsesapiClientMetadata";
