//! The one table of app-server methods that the relay does something with.
//!
//! Names and members: `proto/codex-app-server.toml`.

/// A method of the client that is more than passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientMethod {
    /// `thread/compact/start`: a compaction that isn't in the middle of a turn.
    Compact,
    /// `initialize`: tells what the client can do.
    Initialize,
    /// `thread/inject_items`: something is put into a history.
    Inject,
    /// `turn/interrupt`: nobody waits for the turn's answer any more.
    Interrupt,
    /// `thread/revert`, `thread/rollback`: what a thread was told may be gone.
    Revert,
    /// `thread/shellCommand`: a turn starts that asks no model.
    Shell,
    /// `thread/settings/update`: what the next turn goes by.
    Settings,
    /// `thread/start`, `thread/resume`, `thread/fork`: get the route.
    Thread(ThreadWay),
    /// `turn/start`: gets a context and a generation.
    TurnStart,
    /// `turn/steer`: keeps the generation of its turn.
    TurnSteer,
    /// `thread/unsubscribe`: the thread is the client's no more.
    Unsubscribe,
    /// `review/start` and its like: a turn starts that no `turn/start` asks for.
    Work,
    /// `thread/queue/add` and its like: so does one that the thread's own model answers.
    WorkOfModel,
}

/// How a client comes to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadWay {
    /// `thread/fork`
    Fork,
    /// `thread/resume`
    Resume,
    /// `thread/start`
    Start,
}

/// What a line of the client that names no thread has to do with a thread that is being renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It may change what holds for every thread.
    Everything,
    /// Nothing: it asks, or is about something of its own.
    Nothing,
    /// It asks about all threads, of which one would be missing.
    Threads,
}

/// How far a `method` reaches that names no thread.
pub fn reach(method: &str) -> Reach {
    const OF_THEIR_OWN: [&str; 7] = [
        "command/",
        "feedback/",
        "fs/",
        "fuzzyFileSearch",
        "relay/info",
        "relay/status",
        "thread/start",
    ];
    const ABOUT_THREADS: [&str; 3] = ["thread/list", "thread/loaded/list", "thread/search"];
    let begins_like = |names: &[&str]| names.iter().any(|it| method.starts_with(it));
    if begins_like(&ABOUT_THREADS) {
        Reach::Threads
    } else if begins_like(&OF_THEIR_OWN) || method.ends_with("/list") || method.ends_with("/read") {
        Reach::Nothing
    } else {
        Reach::Everything
    }
}

/// A notification of codex that teaches something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodexNotification {
    /// `account/login/completed`: a login, whose end `account/updated` may or may not tell.
    AccountLogin,
    /// `account/updated`: somebody logged in or out, or has a new token.
    AccountUpdated,
    /// `thread/compacted`, and `item/completed` of a compaction: the history was rewritten.
    Compacted(CompactionIs),
    /// `thread/goal/updated`, `thread/goal/cleared`: whether codex starts turns by itself.
    Goal,
    /// `thread/reverted`: the history is shorter.
    Reverted,
    /// `thread/settings/updated`: what a renewal must keep.
    Settings,
    /// `thread/status/changed`: the thread rests, or was unloaded.
    StatusChanged,
    /// `turn/completed`: the turn is over, however it went.
    TurnCompleted,
    /// `turn/started`: a turn runs, whoever started it.
    TurnStarted,
    /// `thread/deleted`: the thread never comes back.
    ThreadDeleted,
    /// `thread/archived`, `thread/closed`: the thread is loaded no more.
    ThreadGone,
}

/// What makes a notification one of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionIs {
    /// It is one.
    Told,
    /// The kind of its item says so.
    InItsItem,
}

/// Finds what is to be done with the client's `method`.
pub fn of_client(method: &str) -> Option<ClientMethod> {
    match method {
        "initialize" => Some(ClientMethod::Initialize),
        "thread/compact/start" => Some(ClientMethod::Compact),
        "thread/start" => Some(ClientMethod::Thread(ThreadWay::Start)),
        "thread/resume" => Some(ClientMethod::Thread(ThreadWay::Resume)),
        "thread/fork" => Some(ClientMethod::Thread(ThreadWay::Fork)),
        "thread/inject_items" => Some(ClientMethod::Inject),
        "thread/revert" | "thread/rollback" => Some(ClientMethod::Revert),
        "thread/settings/update" => Some(ClientMethod::Settings),
        "thread/shellCommand" => Some(ClientMethod::Shell),
        "thread/unsubscribe" => Some(ClientMethod::Unsubscribe),
        "turn/interrupt" => Some(ClientMethod::Interrupt),
        "turn/start" => Some(ClientMethod::TurnStart),
        "turn/steer" => Some(ClientMethod::TurnSteer),
        "review/start" | "thread/prepareApprovedPlan" | "thread/realtime/start" => {
            Some(ClientMethod::Work)
        }
        "thread/goal/set" | "thread/queue/add" | "thread/queue/start" => {
            Some(ClientMethod::WorkOfModel)
        }
        _ => None,
    }
}

/// A method that the relay itself answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayMethod {
    /// What this relay is and can do.
    Info,
    /// Gives a context.
    ContextSet,
    /// Takes it back.
    ContextClear,
    /// What became of contexts and requests.
    Status,
}

impl RelayMethod {
    /// Every method, with its name.
    pub const ALL: [(&'static str, Self); 4] = [
        ("relay/info", Self::Info),
        ("relay/context/set", Self::ContextSet),
        ("relay/context/clear", Self::ContextClear),
        ("relay/status", Self::Status),
    ];

    /// Finds a method by its name.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut all = Self::ALL.iter();
        all.find(|(known, _)| *known == name)
            .map(|(_, method)| *method)
    }
}

/// Whether a method is in the relay's own name space: codex never sees it.
pub fn is_ours(method: &str) -> bool {
    method.starts_with(OWN_NAMES)
}

/// What the names of the relay's own methods begin with.
pub const OWN_NAMES: &str = "relay/";

/// Finds what codex's notification `method` teaches.
pub fn of_codex(method: &str) -> Option<CodexNotification> {
    match method {
        "account/login/completed" => Some(CodexNotification::AccountLogin),
        "account/updated" => Some(CodexNotification::AccountUpdated),
        "item/completed" => Some(CodexNotification::Compacted(CompactionIs::InItsItem)),
        "thread/compacted" => Some(CodexNotification::Compacted(CompactionIs::Told)),
        "thread/goal/cleared" | "thread/goal/updated" => Some(CodexNotification::Goal),
        "thread/reverted" => Some(CodexNotification::Reverted),
        "thread/settings/updated" => Some(CodexNotification::Settings),
        "thread/status/changed" => Some(CodexNotification::StatusChanged),
        "turn/completed" => Some(CodexNotification::TurnCompleted),
        "turn/started" => Some(CodexNotification::TurnStarted),
        "thread/archived" | "thread/closed" => Some(CodexNotification::ThreadGone),
        "thread/deleted" => Some(CodexNotification::ThreadDeleted),
        _ => None,
    }
}

/// The member that carries a registration's generation through codex.
pub const GENERATION_MEMBER: &str = "codex_relay_generation";

/// The member of thread methods that takes the place of configured developer instructions.
pub const INSTRUCTIONS_MEMBER: &str = "developerInstructions";

/// The member of `turn/start` and `turn/steer` that codex merges into its metadata.
pub const METADATA_MEMBER: &str = "responsesapiClientMetadata";
