//! The session: everything that is remembered between the client, codex and the model requests.
//!
//! Fails open on lines it can't read: they pass, and codex answers for them.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::base::ids::{RequestId, ThreadId, TurnId};
use crate::base::limits::{MAX_OPEN_REQUESTS, MAX_THREADS};
use crate::base::reason::Reason;
use crate::context::compose::Prepared;
use crate::context::orders::Text;
use crate::context::snapshot::{Section, Snapshot};
use crate::context::supplier::Supplier;
use crate::context::wish::Wish;
use crate::control::account::Requests;
use crate::session::given::registrations::{Registered, Registrations};
use crate::session::given::relay_member::RelayMember;
use crate::session::instructions::errands::Errand;
use crate::session::instructions::ledger::Ledger;
use crate::session::instructions::opening::Opening;
use crate::session::instructions::renewal::Trouble;
use crate::session::instructions::updates::Before;
use crate::session::methods::ThreadWay;
use crate::session::own::{OwnId, OwnRequests};
use crate::session::parent::admitted::Ticket;
use crate::session::parent::decide::{self, Decision, ParentRequest, Purpose};
use crate::session::parent::delivery::Delivery;
use crate::session::parent::memory::ToolQuestions;
use crate::session::parent::registry::{Change, Registry};
use crate::session::parent::tally::{Beginning, ContextAccount};
use crate::session::parent::threads::Habits;
use crate::session::pending::Pending;
use crate::session::route::eligibility::Ineligible;
use crate::session::route::routes::Routes;
use crate::session::version::CodexVersion;
use crate::session::warnings::Warnings;

/// What the session must know from the start.
#[derive(Clone)]
pub struct Config {
    /// The base URL that codex is given, secret included.
    pub base_url: String,
    /// The bound of a prepared context, in bytes of UTF-8.
    pub max_context_bytes: usize,
    /// What bars every thread from the route, known before codex is there.
    pub bar: Option<Ineligible>,
    /// What ids of our own requests begin with; random.
    pub own_prefix: String,
    /// Who supplies contexts.
    pub supplier: Supplier,
    /// Where requests go.
    pub upstreams: Upstreams,
    /// Whether the client gets warnings that it didn't ask for.
    pub notifications: bool,
}

/// Where model requests go, by the account that codex is logged in with.
#[derive(Clone, Debug, Default)]
pub struct Upstreams {
    /// The host for an API key, and where nobody is logged in.
    pub api_key: String,
    /// The host for a ChatGPT account.
    pub chatgpt: String,
    /// The relay brings a credential of its own: codex's account doesn't matter.
    pub has_bearer: bool,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("max_context_bytes", &self.max_context_bytes)
            .finish_non_exhaustive()
    }
}

/// One client, one codex, and what passes between them.
#[derive(Debug)]
pub struct Session {
    pub(super) config: Config,
    pub(super) client: Client,
    pub(super) registry: Registry,
    pub(super) registrations: Registrations,
    pub(super) pending: Pending<Meaning>,
    /// Requests that stay behind others; their number has the bound of the lines that are held.
    pub(super) held: Vec<RequestId>,
    pub(super) own: OwnRequests,
    pub(super) delivery: Delivery,
    pub(super) ledger: Ledger,
    /// What the driver has not sent yet.
    pub(super) errands: Vec<Errand>,
    /// Those whose answers nobody waits for.
    pub(super) errands_asked: Vec<OwnId>,
    /// What the driver has not logged yet.
    pub(super) remarks: Vec<Remark>,
    pub(super) routes: Routes,
    pub(super) warnings: Warnings,
    /// What became of all requests.
    pub(super) totals: Requests,
    pub(super) tools: ToolQuestions,
    /// How often codex has answered for the opening of a thread.
    pub(super) openings: u64,
    /// Model requests pass unread: whose they are isn't known.
    pub(super) reads_nothing: bool,
    /// Codex passes generations on: a turn without one isn't the client's.
    pub(super) has_generations: bool,
    /// Codex left a question of ours without an answer: it isn't asked again.
    pub(super) is_silent: bool,
}

/// What the client said of itself in `initialize`.
#[derive(Debug, Default)]
pub(super) struct Client {
    /// Codex accepted an `initialize`; later ones change nothing.
    pub(super) initialized: bool,
    /// Codex takes experimental members from it.
    pub(super) experimental_api: bool,
    /// Codex's version, where it says so.
    pub(super) codex_version: Option<CodexVersion>,
    /// Notifications that it opted out of and that the relay needs all the same.
    pub(super) unwanted: Vec<String>,
}

/// What the answer to an open request will mean.
#[derive(Debug)]
pub(super) enum Meaning {
    Initialize,
    Other,
    Reverted(ThreadId),
    Thread {
        routed: bool,
        ineligible: Option<Ineligible>,
        snapshot: Option<Arc<Snapshot>>,
        habits: Habits,
        registered: Option<Registered>,
        telling: Box<(Opening, Text)>,
        account: Option<Arc<ContextAccount>>,
    },
    Turn {
        thread: ThreadId,
        /// What it was admitted under; nothing on a thread without a route.
        ticket: Option<Ticket>,
        beginning: Box<Beginning>,
        /// What it sets its thread to that no answer of codex has.
        sets: Map<String, Value>,
        /// What its thread was set to, where the turn sets it to something else.
        before: Option<Box<Before>>,
    },
    Unsubscribed(ThreadId),
    /// Settings of a thread, which stay what they were where codex refuses others.
    Updated(Before),
    /// Something on this thread that is no turn of the client's.
    Work(ThreadId),
}

/// Something that a person may want to know: the driver logs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remark {
    /// A thread's text is another than in its turn before.
    ContextChanged {
        /// The thread.
        thread: ThreadId,
        /// What changed.
        change: Change,
    },
    /// A thread wasn't told of its references: they are due at the next turn.
    NotDelivered {
        /// The thread.
        thread: ThreadId,
        /// The files.
        files: Vec<String>,
        /// Why.
        why: &'static str,
    },
}

/// What a thread needs of its WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketWish {
    /// None: its messages are too long for one.
    Http,
    /// Room for a text of this size in each message.
    Insertions {
        /// Bytes of the text as it stands in JSON; 0 where there is none.
        text: usize,
    },
}

/// Why the session doesn't let a request of the client through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// A bounded resource is used up.
    Busy {
        /// What there is too much of.
        what: &'static str,
        /// The bound.
        limit: usize,
        /// What makes room.
        remedy: &'static str,
    },
    /// The prepared context is over its bound.
    ContextTooLarge {
        /// Its size.
        bytes: usize,
        /// The bound.
        limit: usize,
        /// What each source contributes.
        sections: Vec<Section>,
    },
    /// The workspace root can't be read.
    ContextUnavailable,
    /// Contexts were switched off.
    NoContext,
    /// What was asked for in the params of a `relay/` method can't be used.
    RelayParams {
        /// The method.
        method: String,
        /// Everything that is wrong.
        fault: String,
    },
    /// A line of the relay's own name space that isn't one JSON object, or too deep.
    RelayLine,
    /// There is no such method of the relay's.
    RelayMethodUnknown {
        /// Its name, as far as it can be shown.
        method: String,
    },
    /// The thread isn't one that the client started, resumed or forked here.
    ThreadUnknown,
    /// The file of the developer policy can't be used.
    PolicyUnavailable {
        /// What is wrong with it, and with which.
        fault: String,
    },
    /// The thread's developer instructions are not the current ones, and can't be made so.
    PolicyChange {
        /// Why not.
        trouble: Trouble,
        /// What codex said to it, if it did.
        said: Option<String>,
    },
    /// The `relay` member of its params can't be used.
    RelayMember {
        /// What is wrong with it.
        fault: String,
    },
    /// The thread's route is closed: what it led to isn't what codex would ask now.
    RouteClosed(Ineligible),
    /// The line is longer than lines that are read, and of a method that must be read.
    LineTooLong {
        /// The bound.
        limit: usize,
    },
}

impl Denial {
    /// So many requests are open that another couldn't be followed.
    pub(super) fn requests_are_open() -> Self {
        Self::Busy {
            what: "requests are open",
            limit: MAX_OPEN_REQUESTS,
            remedy: "wait for answers and try again",
        }
    }

    /// So many threads are open that another couldn't be looked after.
    pub(super) fn threads_are_open() -> Self {
        Self::Busy {
            what: "threads are open",
            limit: MAX_THREADS,
            remedy: "archive or delete some, or unsubscribe from them and wait for thread/closed",
        }
    }

    /// So many threads have a registered context that there is no place for another one.
    pub(super) fn contexts_are_kept() -> Self {
        Self::Busy {
            what: "threads have a registered context",
            limit: MAX_THREADS,
            remedy: "take one back with relay/context/clear: it stays until then, also where its \
                     thread is closed (relay/status: isOpen)",
        }
    }
}

impl Session {
    /// Starts before the client's first line.
    pub fn new(config: Config) -> Self {
        Self {
            own: OwnRequests::new(config.own_prefix.clone()),
            is_silent: false,
            tools: ToolQuestions::default(),
            openings: 0,
            reads_nothing: false,
            has_generations: false,
            delivery: Delivery::new(),
            ledger: Ledger::new(),
            errands: Vec::new(),
            errands_asked: Vec::new(),
            remarks: Vec::new(),
            warnings: Warnings::new(config.notifications),
            totals: Requests::default(),
            routes: Routes::new(config.bar, config.upstreams.has_bearer),
            config,
            client: Client::default(),
            registry: Registry::new(),
            registrations: Registrations::new(),
            pending: Pending::new(MAX_OPEN_REQUESTS),
            held: Vec::new(),
        }
    }

    /// Decides on a parent's model request.
    pub fn decide(&self, request: &ParentRequest) -> Decision {
        decide::decide(
            &self.registry,
            &self.registrations,
            self.has_generations,
            request,
        )
    }

    /// What the driver should log, each once.
    pub fn take_remarks(&mut self) -> Vec<Remark> {
        std::mem::take(&mut self.remarks)
    }

    /// What a turn that codex starts itself on `thread` wishes.
    pub fn usual_wish(&self, thread: &str) -> Wish {
        let known = self.registry.find(thread);
        known.map_or_else(Wish::default, |known| {
            let in_force = self.registrations.usual(Some(thread));
            known.habits.wish(&RelayMember::default(), in_force)
        })
    }

    /// Takes the text that was read for a turn that codex started itself.
    pub fn on_native_context(
        &mut self,
        request: &ParentRequest,
        prepared: Option<&Prepared>,
    ) -> Decision {
        let Some(prepared) = prepared else {
            return Decision::Refuse(Reason::ContextUnavailable);
        };
        let snapshot = Arc::clone(&prepared.snapshot);
        if self.measure(&snapshot).is_err() {
            return Decision::Refuse(Reason::ContextTooLarge);
        }
        let turn = request.turn.clone();
        let thread = &request.thread;
        if let Some(change) = self.registry.note_text(thread.as_str(), &snapshot, true) {
            let thread = thread.clone();
            self.remarks.push(Remark::ContextChanged { thread, change });
        }
        self.registry
            .bind_native(request.thread.as_str(), turn, &snapshot);
        self.note_native(request.thread.as_str(), prepared);
        Decision::Inject(snapshot)
    }

    /// How a WebSocket of `thread` must be answered.
    pub fn socket_wish(&self, thread: &str) -> SocketWish {
        match self.registry.find(thread) {
            Some(known) if known.needs_http => SocketWish::Http,
            Some(known) => {
                let text = known
                    .current
                    .as_ref()
                    .map_or(0, |text| text.escaped().len());
                SocketWish::Insertions { text }
            }
            None => SocketWish::Insertions { text: 0 },
        }
    }

    /// Notes that a message of `thread` was too long for a WebSocket with its context.
    pub fn note_http(&mut self, thread: &ThreadId) {
        self.registry.note_http(thread.as_str());
    }

    /// Notes that a model request of a turn came here, whatever becomes of it.
    pub fn note_request(&mut self, request: &ParentRequest) {
        self.reads_nothing = false;
        self.has_generations |= request.generation.is_some();
        if request.purpose == Purpose::Turn {
            let turn = request.turn.as_ref();
            self.routes.requested(request.thread.as_str(), turn);
            if let (Some(generation), Some(turn)) = (&request.generation, turn) {
                self.registry
                    .requested(request.thread.as_str(), generation, turn);
            }
        }
    }

    /// Whether a model request passes unread where no workspace has anything to say: the client has
    /// given nothing either. It is noted, since nobody knows then whose turn it was.
    pub fn passes_unread(&mut self) -> bool {
        let has_given = self.has_given();
        self.reads_nothing |= !has_given;
        !has_given
    }

    /// How often codex has answered for the opening of a thread.
    pub fn openings(&self) -> u64 {
        self.openings
    }

    /// Whether codex has yet to answer for the resume of a thread.
    pub fn is_opening(&self, thread: &ThreadId) -> bool {
        let is_it = |meaning: &Meaning| {
            let Meaning::Thread { telling, .. } = meaning else {
                return false;
            };
            let opening = &telling.0;
            opening.way == ThreadWay::Resume && opening.source.as_ref() == Some(thread)
        };
        self.pending.count(is_it) > 0
    }

    /// What is known of the routes.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Every turn that runs on a thread that the client drives.
    pub fn running_turns(&self) -> Vec<(ThreadId, TurnId)> {
        self.registry.running()
    }

    pub(super) fn measure(&self, snapshot: &Snapshot) -> Result<(), Denial> {
        let bytes = snapshot.text().len();
        let limit = self.config.max_context_bytes;
        if bytes <= limit {
            return Ok(());
        }
        let sections = snapshot.sections().to_vec();
        Err(Denial::ContextTooLarge {
            bytes,
            limit,
            sections,
        })
    }
}

#[cfg(test)]
impl Config {
    /// What the tests of this crate begin with.
    pub fn of_tests(supplier: Supplier) -> Self {
        Self {
            base_url: "http://127.0.0.1:1/s/v1".to_owned(),
            max_context_bytes: 100,
            bar: None,
            own_prefix: "own-".to_owned(),
            supplier,
            upstreams: Upstreams::default(),
            notifications: false,
        }
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
