//! What became of model requests: counters, and no work beyond them.

use std::sync::Arc;

use crate::base::bounded::Full;
use crate::base::ids::{ThreadId, TurnId};
use crate::context::account::Source;
use crate::context::compose::Prepared;
use crate::context::digest::Digest;
use crate::context::supplier::Supplier;
use crate::control::account::{Purposes, Requests};
use crate::session::machine::Session;

/// What is known of a request, whoever it belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The thread that it is counted for: of a child the parent's.
    pub thread: Option<String>,
    /// Its turn; none of a child.
    pub turn: Option<String>,
    /// What it is for.
    pub purpose: Counted,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counted {
    /// A step of a turn.
    Turn,
    /// A connection that is warmed up.
    Prewarm,
    /// The compaction of a history.
    Compaction,
    /// A memory job.
    Memory,
    /// Something of a sub-agent or a reviewer.
    Child,
    /// It doesn't say.
    #[default]
    Other,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It got a text of this size.
    Injected(usize),
    /// It went on as it came.
    Untouched,
    /// It went no further.
    Refused {
        /// The reason code.
        reason: &'static str,
        /// What codex was told.
        line: String,
    },
}

/// The counters of a thread.
#[derive(Debug, Default)]
pub struct Tally {
    /// All its requests.
    pub requests: Requests,
    /// Those since its last turn began.
    pub of_turn: Requests,
    /// The turn that the last text went to, how often, and its size.
    pub last_injection: Option<(Option<String>, u64, usize)>,
    /// The last refusal: its reason, and what codex was told.
    pub last_refusal: Option<(&'static str, String)>,
    /// The text that was prepared last.
    pub context: ContextAccount,
    /// The client's last turn.
    pub turn: Option<LastTurn>,
}

/// The account of a prepared text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContextAccount {
    /// Who gave it.
    pub from: &'static str,
    /// Its size.
    pub bytes: usize,
    /// What each source gave.
    pub sources: Vec<Source>,
    /// The references that belong to it.
    pub references: Vec<(String, Digest)>,
}

/// A turn that the client started.
#[derive(Clone, Debug, Default)]
pub struct LastTurn {
    /// Its id, once codex has answered.
    pub id: Option<TurnId>,
    /// The size of its text.
    pub bytes: usize,
}

impl ContextAccount {
    /// Notes what `prepared` is made of.
    pub fn of(prepared: &Prepared, from: &'static str) -> Self {
        let references = prepared.references.iter();
        Self {
            from,
            bytes: prepared.snapshot.text().len(),
            sources: prepared.account.clone(),
            references: references.map(|it| (it.path.clone(), it.digest)).collect(),
        }
    }
}

impl Tally {
    /// Begins a turn of the client's.
    pub fn begin(&mut self, context: ContextAccount) {
        self.of_turn = Requests::default();
        let bytes = context.bytes;
        self.turn = Some(LastTurn { id: None, bytes });
        self.context = context;
    }

    fn count(&mut self, about: &About, outcome: Outcome) {
        for requests in [&mut self.requests, &mut self.of_turn] {
            count(requests, about.purpose, &outcome);
        }
        match outcome {
            Outcome::Untouched => {}
            Outcome::Refused { reason, line } => self.last_refusal = Some((reason, line)),
            Outcome::Injected(bytes) => {
                let before = self.last_injection.take();
                let before = before.filter(|(turn, ..)| *turn == about.turn);
                let requests = before.map_or(0, |(_, requests, _)| requests);
                self.last_injection = Some((about.turn.clone(), requests + 1, bytes));
            }
        }
    }
}

impl Session {
    /// Counts what became of a request.
    pub fn note_outcome(&mut self, about: &About, outcome: Outcome) {
        count(&mut self.totals, about.purpose, &outcome);
        if let Outcome::Refused { reason, line } = &outcome {
            let thread = about.thread.clone().and_then(ThreadId::new);
            self.warn(thread, reason, line.clone());
        }
        let thread = about.thread.as_deref();
        if let Some(tally) = thread.and_then(|thread| self.registry.tally(thread)) {
            tally.count(about, outcome);
        }
    }

    /// Notes the text that a thread was opened with.
    pub(super) fn note_opened(
        &mut self,
        thread: &str,
        opened: Result<(), Full>,
        context: Option<Arc<ContextAccount>>,
    ) {
        if let Err(full) = opened {
            tracing::debug!(%full, "thread not registered");
        }
        if let (Some(context), Some(tally)) = (context, self.registry.tally(thread))
            && tally.turn.is_none()
        {
            tally.context = Arc::unwrap_or_clone(context);
        }
    }

    /// Who gives a thread its text, in a word; with `is_given` the client, for one turn.
    pub(super) fn source_of(&self, thread: Option<&str>, is_given: bool) -> &'static str {
        let has_own = thread.is_some_and(|thread| self.registrations.thread(thread).is_some());
        match self.config.supplier {
            _ if is_given => "turn",
            _ if has_own => "thread",
            _ if self.registrations.default().is_some() => "default",
            Supplier::Workspace => "workspace",
            Supplier::Client | Supplier::Nobody => "none",
        }
    }

    /// Notes the id of the turn whose account was begun last.
    pub(super) fn name_account(&mut self, thread: &str, turn: Option<&TurnId>) {
        let tally = self.registry.tally(thread);
        if let (Some(turn), Some(last)) = (turn, tally.and_then(|tally| tally.turn.as_mut())) {
            last.id = Some(turn.clone());
        }
    }

    /// Begins the account of a client's turn.
    pub(super) fn begin_account(&mut self, thread: &ThreadId, prepared: &Prepared, is_given: bool) {
        let from = self.source_of(Some(thread.as_str()), is_given);
        if let Some(tally) = self.registry.tally(thread.as_str()) {
            tally.begin(ContextAccount::of(prepared, from));
        }
        self.warn_of_losses(thread, &prepared.warnings);
    }
}

fn count(requests: &mut Requests, purpose: Counted, outcome: &Outcome) {
    let purposes = match outcome {
        Outcome::Injected(_) => &mut requests.injected,
        Outcome::Untouched => &mut requests.untouched,
        Outcome::Refused { .. } => {
            requests.refused += 1;
            return;
        }
    };
    *counter(purposes, purpose) += 1;
}

fn counter(purposes: &mut Purposes, purpose: Counted) -> &mut u64 {
    match purpose {
        Counted::Turn => &mut purposes.turn,
        Counted::Prewarm => &mut purposes.prewarm,
        Counted::Compaction => &mut purposes.compaction,
        Counted::Memory => &mut purposes.memory,
        Counted::Child => &mut purposes.child,
        Counted::Other => &mut purposes.other,
    }
}
