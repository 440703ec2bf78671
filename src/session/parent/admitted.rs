//! The turns that the client has started on one thread, each with its text.
//!
//! Whether a `turn/start` begins a turn or steers one that runs is codex's to say: until it answers,
//! each has its own text, though one that is sent while a turn runs carries that turn's generation. A
//! request is known by the turn that it names, so that a turn keeps its text when a later
//! `turn/start` steers it, and a new one never gets that of another.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::ids::{Generation, TurnId};
use crate::base::limits::MAX_TURNS;
use crate::context::snapshot::Snapshot;

/// All of them, in the order in which they were admitted.
#[derive(Debug, Default)]
pub struct Admitted {
    live: Vec<Registration>,
    next: u64,
    /// Turns that ended while a `turn/start` was unanswered: it may be a steer of one of them.
    ended: VecDeque<TurnId>,
}

/// Which admission codex answers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

/// One turn: its text, whatever is set while it runs.
#[derive(Debug)]
struct Registration {
    ticket: Ticket,
    /// Its own, that of the turn that ran when it was admitted, and those of what has steered it.
    generations: Vec<Generation>,
    snapshot: Arc<Snapshot>,
    /// `turn/start` requests that codex hasn't answered: they keep it alive.
    unanswered: usize,
    /// The native turns that it serves.
    turns: Vec<TurnId>,
    /// What the client registered for this turn alone.
    given: Option<Generation>,
    /// Codex has begun the turn: what was given for it ends with it.
    has_begun: bool,
}

impl Admitted {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Admits a turn and gives the generation that its requests carry.
    pub fn admit(
        &mut self,
        fresh: Generation,
        snapshot: Arc<Snapshot>,
        given: Option<Generation>,
    ) -> (Generation, Ticket) {
        let is_it = |it: &&mut Registration| it.generations.first() == Some(&fresh);
        if let Some(known) = self.live.iter_mut().find(is_it) {
            // What the client gave for one turn, and codex has yet to answer for.
            known.unanswered += 1;
            return (fresh, known.ticket);
        }
        let running = self.live.iter().find(|it| it.has_begun);
        let running = running.and_then(|it| it.generations.first()).cloned();
        if self.live.len() >= MAX_TURNS
            && let Some(last) = self.live.last_mut()
        {
            // So many at once can only be steers.
            last.unanswered += 1;
            let generation = last.generations.first().cloned();
            return (running.or(generation).unwrap_or(fresh), last.ticket);
        }
        let ticket = Ticket(self.next);
        self.next += 1;
        let generation = running.clone().unwrap_or_else(|| fresh.clone());
        self.live.push(Registration {
            ticket,
            generations: std::iter::once(fresh).chain(running).collect(),
            snapshot,
            unanswered: 1,
            turns: Vec::new(),
            given,
            has_begun: false,
        });
        (generation, ticket)
    }

    /// Notes that a request of a turn came: of several that are unanswered it tells which is which.
    pub fn requested(&mut self, generation: &Generation, turn: &TurnId) {
        if self.of_turn(turn.as_str()).is_some() {
            return;
        }
        let mut live = self.live.iter_mut();
        let begins = |it: &&mut Registration| !it.has_begun && it.generations.contains(generation);
        if let Some(found) = live.find(begins) {
            found.begin(turn.clone());
        }
    }

    /// Notes codex's answer to a `turn/start`: the turn's id, or none where it failed. Like the other
    /// ends of a turn it gives what the client registered for that turn alone.
    pub fn answered(&mut self, ticket: Ticket, turn: Option<TurnId>) -> Option<Generation> {
        let own = self.live.iter().position(|it| it.ticket == ticket)?;
        let of_turn = turn.as_ref().and_then(|turn| self.of_turn(turn.as_str()));
        let found = self.live.get_mut(own)?;
        found.unanswered = found.unanswered.saturating_sub(1);
        let Some(turn) = turn else {
            return self.sweep();
        };
        if let Some(at) = self.ended.iter().position(|ended| *ended == turn) {
            self.ended.remove(at);
            return self.sweep();
        }
        match of_turn {
            None => {
                found.begin(turn);
                None
            }
            // A steer: its words are for the turn that runs, which keeps its text.
            Some(at) if at != own && found.unanswered == 0 && !found.has_begun => {
                let steer = self.live.remove(own);
                let at = if own < at { at - 1 } else { at };
                if let Some(steered) = self.live.get_mut(at)
                    && steered.generations.len() < MAX_TURNS
                {
                    steered.generations.extend(steer.generations);
                }
                steer.given
            }
            Some(_) => None,
        }
    }

    /// Notes the end of a turn.
    pub fn completed(&mut self, turn: &str) -> Option<Generation> {
        for registration in &mut self.live {
            registration.turns.retain(|known| known.as_str() != turn);
        }
        if self.is_awaited() {
            if self.ended.len() >= ENDED_TURNS {
                self.ended.pop_front();
            }
            self.ended.extend(TurnId::new(turn.to_owned()));
        }
        self.sweep()
    }

    /// Notes that none runs.
    pub fn rest(&mut self) -> Option<Generation> {
        for registration in &mut self.live {
            registration.turns.clear();
        }
        self.sweep()
    }

    /// Whether codex has yet to say of one whether it begins a turn.
    pub fn is_awaited(&self) -> bool {
        self.live
            .iter()
            .any(|it| it.unanswered > 0 && !it.has_begun)
    }

    /// Whether the client started this turn.
    pub fn has_turn(&self, turn: &str) -> bool {
        self.live
            .iter()
            .any(|it| it.turns.iter().any(|it| it.as_str() == turn))
    }

    /// Whether the turn of this generation has begun: what was given for it is taken.
    pub fn has_begun(&self, generation: &Generation) -> bool {
        let mut live = self.live.iter();
        live.any(|it| it.has_begun && it.generations.contains(generation))
    }

    /// The turns that run.
    pub fn turns(&self) -> Vec<TurnId> {
        let turns = self.live.iter().flat_map(|it| &it.turns);
        turns.cloned().collect()
    }

    /// The text of a request with this generation, of this turn where it names one.
    pub fn text_of(
        &self,
        generation: &Generation,
        turn: Option<&TurnId>,
    ) -> Option<&Arc<Snapshot>> {
        let of_turn = turn.and_then(|turn| self.live.get(self.of_turn(turn.as_str())?));
        let is_it = |it: &&Registration| it.generations.contains(generation);
        let found = of_turn
            .filter(|_| self.live.iter().any(|it| is_it(&it)))
            .or_else(|| self.live.iter().find(|it| is_it(it) && !it.has_begun))
            .or_else(|| self.live.iter().find(is_it));
        found.map(|it| &it.snapshot)
    }

    /// The text of a request without a generation: that of its turn; else, where no turn of the
    /// client's has one, of the turn that begins. A turn that neither names is codex's own.
    pub fn text_of_turn(
        &self,
        turn: Option<&TurnId>,
        has_generations: bool,
    ) -> Option<&Arc<Snapshot>> {
        let found = match turn {
            Some(turn) => self.of_turn(turn.as_str()).and_then(|at| self.live.get(at)),
            None => self.live.last(),
        };
        let begins = || self.live.iter().find(|it| !it.has_begun);
        let found = found.or_else(|| begins().filter(|_| !has_generations));
        found.map(|it| &it.snapshot)
    }

    /// The generation of the turn that runs, else of the one that begins.
    pub fn generation(&self) -> Option<&Generation> {
        let running = self.live.iter().find(|it| !it.turns.is_empty());
        running.or_else(|| self.live.first())?.generations.first()
    }

    fn of_turn(&self, turn: &str) -> Option<usize> {
        self.live
            .iter()
            .position(|it| it.turns.iter().any(|it| it.as_str() == turn))
    }

    /// Forgets what is over; gives what the client gave for it alone.
    fn sweep(&mut self) -> Option<Generation> {
        let is_over = |it: &Registration| it.unanswered == 0 && it.turns.is_empty();
        let at = self.live.iter().position(is_over)?;
        let ended = self.live.remove(at);
        // A turn that codex refused never was: what was given waits for the next.
        ended.given.filter(|_| ended.has_begun)
    }
}

impl Registration {
    fn begin(&mut self, turn: TurnId) {
        self.has_begun = true;
        if self.turns.len() < MAX_TURNS && !self.turns.contains(&turn) {
            self.turns.push(turn);
        }
    }
}

/// Ends that are remembered.
const ENDED_TURNS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn generation(name: &str) -> Generation {
        Generation::new(name).unwrap()
    }

    fn turn(id: &str) -> TurnId {
        TurnId::new(id.to_owned()).unwrap()
    }

    fn admit(all: &mut Admitted, name: &str) -> (Generation, Ticket) {
        let snapshot = Arc::new(Snapshot::new(name.to_owned(), Vec::new()));
        all.admit(generation(name), snapshot, Some(generation(name)))
    }

    fn text(all: &Admitted, name: &str, id: &str) -> Option<String> {
        let found = all.text_of(&generation(name), Some(&turn(id)));
        found.map(|it| it.text().to_owned())
    }

    #[test]
    fn steer_keeps_the_text_of_its_turn_before_and_behind_its_answer() {
        let mut all = Admitted::default();
        let (_, first) = admit(&mut all, "a");
        assert_eq!(all.answered(first, Some(turn("u"))), None);
        let (carried, steer) = admit(&mut all, "b");
        assert_eq!(carried, generation("a"));
        assert_eq!(text(&all, "a", "u").as_deref(), Some("a"));
        let given = all.answered(steer, Some(turn("u")));
        assert_eq!(given, Some(generation("b")));
        assert_eq!(text(&all, "a", "u").as_deref(), Some("a"));
        assert_eq!(all.completed("u"), Some(generation("a")));
        assert!(all.is_empty() && text(&all, "a", "u").is_none());
    }

    #[test]
    fn turn_behind_one_that_ends_gets_its_own_text() {
        let mut all = Admitted::default();
        let (_, old) = admit(&mut all, "old");
        assert_eq!(all.answered(old, Some(turn("u"))), None);
        // Interrupted meanwhile: codex begins another, whose requests may come first.
        let (carried, new) = admit(&mut all, "new");
        assert_eq!(carried, generation("old"));
        assert_eq!(text(&all, "old", "v").as_deref(), Some("new"));
        all.requested(&generation("old"), &turn("v"));
        assert_eq!(text(&all, "old", "u").as_deref(), Some("old"));
        assert_eq!(all.completed("u"), Some(generation("old")));
        assert_eq!(all.answered(new, Some(turn("v"))), None);
        assert_eq!(text(&all, "old", "v").as_deref(), Some("new"));
        assert_eq!(all.completed("v"), Some(generation("new")));
        assert!(all.is_empty());
    }

    #[test]
    fn turn_behind_one_that_codex_refused_gets_its_own_text() {
        let mut all = Admitted::default();
        let (_, bad) = admit(&mut all, "bad");
        let (carried, good) = admit(&mut all, "good");
        assert_eq!(carried, generation("good"));
        assert_eq!(text(&all, "good", "v").as_deref(), Some("good"));
        // What was given for it waits.
        assert_eq!(all.answered(bad, None), None);
        assert_eq!(all.answered(good, Some(turn("v"))), None);
        assert_eq!(text(&all, "bad", "v"), None);
        assert_eq!(all.completed("v"), Some(generation("good")));
    }

    #[test]
    fn answer_behind_the_end_of_its_turn_leaves_nothing() {
        let mut all = Admitted::default();
        let (_, first) = admit(&mut all, "a");
        assert_eq!(all.answered(first, Some(turn("u"))), None);
        let (_, steer) = admit(&mut all, "b");
        assert_eq!(all.completed("u"), Some(generation("a")));
        all.answered(steer, Some(turn("u")));
        assert!(all.is_empty());
    }
}
