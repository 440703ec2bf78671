//! Threads that the client drives, and the registrations of their turns.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::bounded::{BoundedMap, Full};
use crate::base::ids::{Generation, ThreadId, TurnId};
use crate::base::limits::{MAX_THREADS, MAX_TURNS};
use crate::context::snapshot::Snapshot;
use crate::session::parent::admitted::{Admitted, Ticket};
use crate::session::parent::tally::{About, Outcome, Tally};
use crate::session::parent::threads::Habits;

/// The threads that the client started, resumed or forked here.
#[derive(Debug)]
pub struct Registry {
    threads: BoundedMap<ThreadId, Thread>,
}

/// One thread of the client.
#[derive(Debug)]
pub struct Thread {
    /// Whether its model requests come to us.
    pub routed: bool,
    /// What its turns are like where they don't say.
    pub habits: Habits,
    /// The text that was prepared last for a turn like most: for prewarms.
    pub current: Option<Arc<Snapshot>>,
    /// The text of the turn before.
    last: Option<Arc<Snapshot>>,
    /// Turns that run, whoever started them.
    running: Vec<TurnId>,
    /// Whether codex tells the client, and so us, of the ends of its turns.
    is_subscribed: bool,
    /// The turns that the client started, while they are admitted or run.
    admitted: Admitted,
    /// The text of a turn that codex started itself.
    native: Option<(TurnId, Arc<Snapshot>)>,
    /// A message of it was too long for a WebSocket with its text.
    pub needs_http: bool,
    /// What the text of the client's last turn was given for.
    pub given_for: GivenFor,
    /// What became of its requests.
    pub tally: Tally,
}

/// What a text was given for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GivenFor {
    /// Turns like the others.
    #[default]
    AnyTurn,
    /// One turn of the client's: none that codex starts itself may get it.
    OneTurn,
}

/// How the text of a thread changed from one turn to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Bytes before.
    pub before: usize,
    /// Bytes now.
    pub now: usize,
}

impl Registry {
    /// Starts without threads.
    pub fn new() -> Self {
        Self {
            threads: BoundedMap::new(MAX_THREADS),
        }
    }

    /// How many more threads there is room for.
    pub fn room(&self) -> usize {
        MAX_THREADS.saturating_sub(self.threads.len())
    }

    /// Notes a thread that codex started, resumed or forked for the client.
    ///
    /// A thread that is known already (a resume of a loaded one) keeps its turn.
    pub fn opened(
        &mut self,
        id: ThreadId,
        routed: bool,
        current: Option<Arc<Snapshot>>,
        habits: Habits,
    ) -> Result<(), Full> {
        if let Some(known) = self.threads.find_mut(&id) {
            known.routed = routed;
            known.habits = habits;
            known.is_subscribed = true;
            if current.is_some() {
                known.current = current;
            }
            return Ok(());
        }
        let thread = Thread {
            routed,
            habits,
            current,
            last: None,
            running: Vec::new(),
            is_subscribed: true,
            admitted: Admitted::default(),
            native: None,
            needs_http: false,
            given_for: GivenFor::default(),
            tally: Tally::default(),
        };
        self.threads.try_insert(id, thread).map(|_| ())
    }

    /// Forgets a thread that is loaded no more.
    pub fn gone(&mut self, id: &str) {
        self.threads.remove(id);
    }

    /// Counts what became of a request of a thread.
    pub fn count(&mut self, id: &str, about: &About, outcome: Outcome) {
        if let Some(thread) = self.threads.find_mut(id) {
            thread.tally.count(about, outcome);
            thread.settle();
        }
    }

    /// The counters of a thread, to count on.
    pub fn tally(&mut self, id: &str) -> Option<&mut Tally> {
        self.threads.find_mut(id).map(|thread| &mut thread.tally)
    }

    /// Finds a thread of the client.
    pub fn find(&self, id: &str) -> Option<&Thread> {
        self.threads.find(id)
    }

    /// Notes whether a thread is on the route from now on.
    pub fn set_routed(&mut self, thread: &str, routed: bool) {
        if let Some(thread) = self.threads.find_mut(thread) {
            thread.routed = routed;
        }
    }

    /// Notes the folder that a thread works in from now on.
    pub fn note_folder(&mut self, thread: &str, folder: PathBuf) {
        if let Some(thread) = self.threads.find_mut(thread) {
            thread.habits.folder = Some(folder);
        }
    }

    /// Admits a turn with its text and gives the generation that its requests carry; `None` for a
    /// thread we don't know.
    pub fn admit(
        &mut self,
        thread: &str,
        fresh: Generation,
        snapshot: Arc<Snapshot>,
        given: Option<Generation>,
    ) -> Option<(Generation, Ticket)> {
        let thread = self.threads.find_mut(thread)?;
        Some(thread.admitted.admit(fresh, snapshot, given))
    }

    /// Notes that a request of a turn came.
    pub fn requested(&mut self, thread: &str, generation: &Generation, turn: &TurnId) {
        if let Some(thread) = self.threads.find_mut(thread) {
            thread.admitted.requested(generation, turn);
        }
    }

    /// Notes codex's answer to a `turn/start`: the turn's id, or none where it failed. Like the other
    /// ends of a turn it gives what the client registered for that turn alone.
    #[must_use]
    pub fn answered(
        &mut self,
        thread: &str,
        ticket: Ticket,
        turn: Option<TurnId>,
    ) -> Option<Generation> {
        let thread = self.threads.find_mut(thread)?;
        let ended = thread.admitted.answered(ticket, turn);
        thread.settle();
        ended
    }

    /// Notes the text of the turn that begins now; tells where it is another than before.
    ///
    /// With `is_usual` it is the text for what happens between turns as well.
    pub fn note_text(
        &mut self,
        thread: &str,
        snapshot: &Arc<Snapshot>,
        is_usual: bool,
    ) -> Option<Change> {
        let thread = self.threads.find_mut(thread)?;
        if is_usual {
            thread.current = Some(Arc::clone(snapshot));
        }
        let before = thread.last.replace(Arc::clone(snapshot))?;
        (before.text() != snapshot.text()).then(|| Change {
            before: before.text().len(),
            now: snapshot.text().len(),
        })
    }

    /// Notes that a turn runs, whoever started it.
    pub fn started(&mut self, thread: &str, turn: TurnId) {
        if let Some(thread) = self.threads.find_mut(thread)
            && thread.running.len() < MAX_TURNS
            && !thread.running.contains(&turn)
        {
            thread.running.push(turn);
        }
    }

    /// Notes that codex will not tell of the ends of a thread's turns.
    pub fn unsubscribed(&mut self, thread: &str) {
        if let Some(thread) = self.threads.find_mut(thread) {
            thread.is_subscribed = false;
        }
    }

    /// Notes that codex tells the client of a thread.
    pub fn subscribed(&mut self, thread: &str) {
        if let Some(thread) = self.threads.find_mut(thread) {
            thread.is_subscribed = true;
        }
    }

    /// Whether codex tells the client of a thread, as far as known.
    pub fn is_subscribed(&self, thread: &str) -> bool {
        self.find(thread).is_none_or(Thread::is_subscribed)
    }

    /// Notes that no turn runs.
    ///
    /// The registration waits for the end of its turn, which comes behind this; without a
    /// subscription nothing else comes.
    #[must_use]
    pub fn rests(&mut self, thread: &str) -> Option<Generation> {
        let known = self.threads.find_mut(thread)?;
        known.running.clear();
        if known.is_subscribed {
            return None;
        }
        known.admitted.rest()
    }

    /// Whether the client started this turn, and its requests should come to us.
    pub fn is_turn_of_client(&self, thread: &str, turn: &str) -> bool {
        let Some(thread) = self.threads.find(thread) else {
            return false;
        };
        thread.routed && thread.admitted.has_turn(turn)
    }

    /// Notes the end of a turn.
    #[must_use]
    pub fn completed(&mut self, thread: &str, turn: &str) -> Option<Generation> {
        let thread = self.threads.find_mut(thread)?;
        thread.native.take_if(|(known, _)| known.as_str() == turn);
        thread.running.retain(|known| known.as_str() != turn);
        thread.admitted.completed(turn)
    }

    /// Binds a turn that codex started itself to its text.
    pub fn bind_native(&mut self, thread: &str, turn: Option<TurnId>, snapshot: &Arc<Snapshot>) {
        if let Some(thread) = self.threads.find_mut(thread) {
            thread.native = turn.map(|turn| (turn, Arc::clone(snapshot)));
        }
    }

    /// Notes whether a thread has tools for the memory; none where it must be asked for.
    pub fn note_memory_tools(&mut self, thread: &str, has: Option<bool>) {
        if let Some(thread) = self.threads.find_mut(thread) {
            thread.habits.memory_tools = has;
        }
    }

    /// Notes that the messages of a thread are too long for a WebSocket.
    pub fn note_http(&mut self, thread: &str) {
        if let Some(thread) = self.threads.find_mut(thread) {
            thread.needs_http = true;
        }
    }

    /// Every turn of the client that runs.
    pub fn running(&self) -> Vec<(ThreadId, TurnId)> {
        let of_thread = |(id, thread): (&ThreadId, &Thread)| {
            let id = id.clone();
            let mut turns = thread.admitted.turns();
            let is_further = |turn: &&TurnId| !thread.admitted.has_turn(turn.as_str());
            turns.extend(thread.running.iter().filter(is_further).cloned());
            turns.into_iter().map(move |turn| (id.clone(), turn))
        };
        self.threads.iter().flat_map(of_thread).collect()
    }

    /// Notes what the text of a thread's turn that begins now was given for.
    pub fn note_given(&mut self, thread: &str, given_for: GivenFor) {
        if let Some(thread) = self.threads.find_mut(thread) {
            thread.given_for = given_for;
        }
    }

    /// Notes the text for what happens between the turns of a thread.
    pub fn note_current(&mut self, thread: &str, current: Option<Arc<Snapshot>>) {
        if let Some(thread) = self.threads.find_mut(thread) {
            thread.current = current;
        }
    }

    /// The ids of all threads.
    pub fn ids(&self) -> Vec<ThreadId> {
        self.threads.iter().map(|(id, _)| id.clone()).collect()
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Thread {
    /// Whether a turn runs, whoever started it.
    pub fn is_running(&self) -> bool {
        !self.admitted.is_empty() || !self.running.is_empty()
    }

    /// Whether a turn runs that codex has told of.
    pub fn has_started(&self) -> bool {
        !self.running.is_empty()
    }

    /// Whether this turn runs, whoever started it.
    pub fn runs(&self, turn: &TurnId) -> bool {
        self.admitted.has_turn(turn.as_str()) || self.running.contains(turn)
    }

    /// Sees whose a turn is that nobody has told of, once that is clear.
    fn settle(&mut self) {
        if !self.admitted.is_awaited() {
            let admitted = &self.admitted;
            let native = self.native.as_ref().map(|(turn, _)| turn);
            let is_of_client =
                |turn: &TurnId| native != Some(turn) && admitted.has_turn(turn.as_str());
            self.tally.settle(is_of_client);
        }
    }

    /// Whether codex tells the client, and so us, of its turns.
    pub fn is_subscribed(&self) -> bool {
        self.is_subscribed
    }

    /// The turns that the client started and that are live.
    pub fn admitted(&self) -> &Admitted {
        &self.admitted
    }

    /// The text that a turn of codex's own was bound to.
    pub fn text_of_native(&self, turn: &TurnId) -> Option<&Arc<Snapshot>> {
        let (known, snapshot) = self.native.as_ref()?;
        (known == turn).then_some(snapshot)
    }
}
