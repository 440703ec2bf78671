//! What became of model requests: counters, and no work beyond them.

use std::sync::Arc;

use crate::base::bounded::Full;
use crate::base::ids::{ThreadId, TurnId};
use crate::context::account::Source;
use crate::context::compose::Prepared;
use crate::context::digest::Digest;
use crate::context::snapshot::Snapshot;
use crate::context::supplier::Supplier;
use crate::control::account::{Purposes, Requests};
use crate::session::machine::{Remark, Session};
use crate::session::parent::registry::GivenFor;

/// What is known of a request, whoever it belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Its thread; of a child the parent's.
    pub thread: Option<String>,
    /// The thread that it goes back to in the end: counted for where the client doesn't drive
    /// [`Self::thread`], as of a child's child.
    pub root: Option<String>,
    /// Its turn; of a child that of the root which it goes back to.
    pub turn: Option<String>,
    /// It carries a generation: its turn was started by the client.
    pub is_of_client: bool,
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
    /// The turn that the last text went to, how often, and its size.
    pub last_injection: Option<(Option<String>, u64, usize)>,
    /// The last refusal: its reason, and what codex was told.
    pub last_refusal: Option<(&'static str, String)>,
    /// The text that was prepared last.
    pub context: ContextAccount,
    /// The client's last turn.
    pub turn: Option<OfTurn>,
    /// The last turn that codex started itself.
    pub codex_turn: Option<OfTurn>,
    /// A turn of which nobody has told who started it.
    early: Option<OfTurn>,
}

/// The account of a prepared text.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// The counters of a turn.
#[derive(Clone, Debug)]
pub struct OfTurn {
    /// Its id.
    pub id: TurnId,
    /// The size of its text.
    pub bytes: usize,
    /// Its requests, and those of its children.
    pub requests: Requests,
    /// Unless the client is about to be told of it, codex has started it.
    is_codexs: bool,
}

/// A turn of the client's on its way to codex, which may be a steer of one that runs: that is
/// codex's to say, and then the turn's account and text stay what they are.
#[derive(Debug)]
pub(in crate::session) struct Beginning {
    /// What its text is made of.
    pub(in crate::session) context: ContextAccount,
    /// What its text was given for.
    pub(in crate::session) given_for: GivenFor,
    /// Its text, and whether that is one for what happens between turns as well; none where it was
    /// noted already, or goes another way.
    pub(in crate::session) text: Option<(Arc<Snapshot>, bool)>,
}

impl Default for ContextAccount {
    fn default() -> Self {
        Self {
            from: "none",
            bytes: 0,
            sources: Vec::new(),
            references: Vec::new(),
        }
    }
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
    /// Whether codex has told already that this is the client's last turn.
    fn is_begun(&self, turn: &TurnId) -> bool {
        self.turn.as_ref().is_some_and(|known| known.id == *turn)
    }

    /// Begins a turn of the client's, whose requests may have come before codex's answer.
    fn begin(&mut self, id: TurnId, context: ContextAccount) {
        let early = self.early.take_if(|known| known.id == id);
        self.turn = Some(OfTurn {
            bytes: context.bytes,
            ..early.unwrap_or_else(|| OfTurn::new(id))
        });
        self.context = context;
    }

    /// Notes that no turn of the client's is on its way, but for those in `is_of_client`: what is
    /// nobody's was started by codex.
    pub(in crate::session) fn settle(&mut self, is_of_client: impl Fn(&TurnId) -> bool) {
        let is_codexs = |early: &mut OfTurn| early.is_codexs && !is_of_client(&early.id);
        if let Some(turn) = self.early.take_if(is_codexs) {
            self.codex_turn = Some(turn);
        }
    }

    /// The counters of the turn that a request belongs to, if it is one of those that are kept.
    fn of_turn(&mut self, about: &About) -> Option<&mut OfTurn> {
        let id = about.turn.clone().and_then(TurnId::new)?;
        let is_it = |known: &OfTurn| known.id == id;
        if self.turn.as_ref().is_some_and(is_it) {
            return self.turn.as_mut();
        }
        if self.codex_turn.as_ref().is_some_and(is_it) {
            return self.codex_turn.as_mut();
        }
        match about.purpose {
            Counted::Turn | Counted::Compaction => {}
            Counted::Prewarm | Counted::Memory | Counted::Child | Counted::Other => {
                return self.early.as_mut().filter(|known| known.id == id);
            }
        }
        let early = self.early.take().filter(is_it);
        Some(self.early.insert(early.unwrap_or_else(|| OfTurn::new(id))))
    }

    /// Counts what became of a request.
    pub(in crate::session) fn count(&mut self, about: &About, outcome: Outcome) {
        count(&mut self.requests, about.purpose, &outcome);
        if let Some(turn) = self.of_turn(about) {
            count(&mut turn.requests, about.purpose, &outcome);
            turn.is_codexs |= about.purpose == Counted::Turn && !about.is_of_client;
            if let Outcome::Injected(bytes) = outcome {
                turn.bytes = bytes;
            }
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
        let places = [&about.thread, &about.root];
        let mut places = places.into_iter().flatten();
        if let Some(thread) = places.find(|it| self.registry.find(it).is_some()) {
            self.registry.count(thread, about, outcome);
        }
    }

    /// Notes the text that a thread was opened with.
    pub(in crate::session) fn note_opened(
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
    pub(in crate::session) fn source_of(
        &self,
        thread: Option<&str>,
        is_given: bool,
    ) -> &'static str {
        let has_own = thread.is_some_and(|thread| self.registrations.thread(thread).is_some());
        match self.config.supplier {
            _ if is_given => "turn",
            _ if has_own => "thread",
            _ if self.registrations.default().is_some() => "default",
            Supplier::Workspace => "workspace",
            Supplier::Client | Supplier::Nobody => "none",
        }
    }

    /// Notes that codex has begun a turn of the client's, unless it is one that runs already: another of
    /// the client's, or one of codex's own.
    pub(in crate::session) fn begin_turn(
        &mut self,
        thread: &ThreadId,
        turn: &TurnId,
        beginning: Beginning,
    ) {
        let known = self.registry.find(thread.as_str());
        if known.is_some_and(|known| known.text_of_native(turn).is_some()) {
            return;
        }
        let tally = self.registry.tally(thread.as_str());
        let Some(tally) = tally.filter(|tally| !tally.is_begun(turn)) else {
            return;
        };
        tally.begin(turn.clone(), beginning.context);
        if let Some(text) = beginning.text {
            self.note_turns_text(thread, beginning.given_for, text);
        }
    }

    /// Notes the text of a turn of the client's.
    pub(in crate::session) fn note_turns_text(
        &mut self,
        thread: &ThreadId,
        given_for: GivenFor,
        (text, is_usual): (Arc<Snapshot>, bool),
    ) {
        self.registry.note_given(thread.as_str(), given_for);
        let change = self.registry.note_text(thread.as_str(), &text, is_usual);
        if let Some(change) = change {
            let thread = thread.clone();
            self.remarks.push(Remark::ContextChanged { thread, change });
        }
    }

    /// Notes what the text of a turn is made of that codex has started itself.
    pub(in crate::session) fn note_native(&mut self, thread: &str, prepared: &Prepared) {
        let from = self.source_of(Some(thread), false);
        if let Some(tally) = self.registry.tally(thread) {
            // It is told of no references.
            let references = std::mem::take(&mut tally.context.references);
            tally.context = ContextAccount {
                references,
                ..ContextAccount::of(prepared, from)
            };
        }
    }
}

impl OfTurn {
    fn new(id: TurnId) -> Self {
        Self {
            id,
            bytes: 0,
            requests: Requests::default(),
            is_codexs: false,
        }
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
