//! The turns of a thread since its developer instructions were last said in its history: a revert to one
//! of them leaves what was said where it is.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::base::ids::TurnId;
use crate::base::limits::MAX_TURNS_SINCE;
use crate::session::instructions::ledger::Ledger;
use crate::session::intercept::ClientVerdict;
use crate::session::machine::{Meaning, Session};
use crate::session::reading::Request;
use crate::wire::envelope::member_text;

/// Turns that began since, oldest first; of many the newest.
#[derive(Clone, Debug, Default)]
pub struct Since {
    turns: VecDeque<TurnId>,
    /// What was said stands in a history that the client has reverted and that no turn followed yet.
    stands: bool,
    /// Reverts that the client asked for and that codex hasn't told of: it may do so long after its
    /// answer.
    reverts: u8,
    /// Codex has unloaded the thread for one.
    is_reloaded: bool,
}

impl Since {
    /// Notes that they were said just now.
    pub fn said(&mut self) {
        self.turns.clear();
        self.stands = false;
    }

    /// Notes that a turn begins.
    pub fn began(&mut self, turn: Option<TurnId>) {
        self.stands = false;
        if let Some(turn) = turn {
            if self.turns.len() >= MAX_TURNS_SINCE {
                self.turns.pop_front();
            }
            self.turns.push_back(turn);
        }
    }

    /// Notes that the client asks for the history as it was before `turn`.
    pub fn goes_back(&mut self, turn: Option<&str>) {
        let at = turn.and_then(|turn| self.turns.iter().position(|it| it.as_str() == turn));
        self.turns.truncate(at.unwrap_or_default());
        self.stands = at.is_some();
    }

    /// Notes that codex unloads the thread.
    pub fn unloaded(&mut self) {
        self.is_reloaded |= self.reverts > 0;
    }

    /// Whether what was said stands in a history that is shorter now.
    pub fn stands(&self) -> bool {
        self.stands
    }
}

impl Ledger {
    /// Notes that the client asks for the history as it was before `turn`.
    pub fn revert_asked(&mut self, thread: &str, turn: Option<&str>) {
        if let Some(told) = self.find_mut(thread) {
            told.since.goes_back(turn);
            told.since.reverts = told.since.reverts.saturating_add(1);
        }
    }

    /// Whether codex has loaded the thread anew for a revert, whatever it answers; then that is done with.
    pub fn is_reloaded(&mut self, thread: &str) -> bool {
        let told = self.find_mut(thread);
        told.is_some_and(|told| std::mem::take(&mut told.since.is_reloaded))
    }

    /// Whether codex tells of a revert that it has answered for, or will; then that is done with.
    pub fn is_known_revert(&mut self, thread: &str) -> bool {
        self.find_mut(thread).is_some_and(|told| {
            let is_known = told.since.reverts > 0;
            told.since.reverts = told.since.reverts.saturating_sub(1);
            is_known
        })
    }

    /// Notes that the history is shorter: what stands last in it may be an older text.
    pub fn reverted(&mut self, thread: &str) {
        if let Some(told) = self.find_mut(thread) {
            told.is_loaded = true;
            if told.past.is_layered && !told.since.stands() {
                told.past.seen = None;
            }
            told.disturb();
        }
    }
}

impl Session {
    pub(in crate::session) fn on_revert(
        &mut self,
        line: &Bytes,
        request: Request,
    ) -> ClientVerdict {
        let text = |name| member_text(line, &request.params, &[name]);
        if let Some(thread) = text("threadId") {
            let turn = text("beforeTurnId");
            self.ledger.revert_asked(&thread, turn.as_deref());
        }
        self.on_parting(line, request, Meaning::Reverted)
    }

    /// Learns whether codex has taken the end of a history away.
    pub(in crate::session) fn revert_answered(&mut self, thread: &str, is_ok: bool) {
        if self.ledger.is_reloaded(thread) {
            // By that the client is subscribed, also where it wasn't (0.155.1 and 0.171.0).
            self.registry.subscribed(thread);
        }
        if is_ok {
            self.on_reverted(thread);
        } else {
            // It tells of none.
            self.ledger.is_known_revert(thread);
        }
    }

    pub(in crate::session) fn on_reverted(&mut self, thread: &str) {
        self.delivery.lost(thread);
        self.ledger.reverted(thread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(turns: &[usize]) -> Since {
        let mut since = Since::default();
        for turn in turns {
            since.began(TurnId::new(turn.to_string()));
        }
        since
    }

    #[test]
    fn what_was_said_stands_before_each_turn_that_began_since() {
        for (turn, stands) in [("1", true), ("3", true), ("0", false)] {
            let mut since = since(&[1, 2, 3]);
            assert!(!since.stands());
            since.goes_back(Some(turn));
            assert_eq!(since.stands(), stands, "{turn}");
        }
    }

    #[test]
    fn turns_that_are_gone_are_no_place_to_go_back_to() {
        let mut since = since(&[1, 2, 3]);
        since.goes_back(Some("2"));
        since.goes_back(Some("3"));
        assert!(!since.stands());
        since.began(TurnId::new("4"));
        since.goes_back(Some("4"));
        assert!(since.stands());
        since.began(TurnId::new("5"));
        assert!(!since.stands(), "what comes next is another revert");
        since.goes_back(None);
        assert!(!since.stands());
    }

    #[test]
    fn of_many_turns_the_newest_are_known() {
        let turns: Vec<_> = (0..=MAX_TURNS_SINCE).collect();
        for (turn, stands) in [(0, false), (1, true), (MAX_TURNS_SINCE, true)] {
            let mut since = since(&turns);
            since.goes_back(Some(&turn.to_string()));
            assert_eq!(since.stands(), stands, "{turn}");
        }
    }
}
