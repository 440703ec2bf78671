//! What codex does on a thread that no turn of the client's asks for: compactions, reviews, commands of
//! the user's, goals, queued messages.
//!
//! Codex answers for it before it says that a turn has started, and a goal starts turns whenever the
//! thread rests. Loading the thread anew in such a moment would end what has just begun (0.155.1), or
//! codex would not unload it (0.171.0).

use bytes::Bytes;

use crate::base::ids::{RequestId, ThreadId};
use crate::context::wish::Wish;
use crate::session::intercept::{ClientVerdict, Prepare, Target};
use crate::session::machine::{Meaning, Session};
use crate::session::parent::registry::Thread;
use crate::session::parent::turn::StartTurn;
use crate::session::reading::Request;
use crate::session::version::CodexVersion;
use crate::wire::envelope::{Envelope, member_text};
use crate::wire::known::Known;

/// What may begin on a thread at any moment, as far as it was asked for or told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Requests for it since a turn was last seen to start.
    asked: u8,
    /// Those of them that ask no model.
    shells: u8,
    /// Codex pursues a goal on the thread.
    has_goal: bool,
}

impl Work {
    /// Whether a turn may start that nobody has told of yet.
    pub fn may_begin(self) -> bool {
        self.asked > 0 || self.has_goal
    }

    /// Notes that somebody asks for it.
    pub fn ask(&mut self) {
        self.asked = self.asked.saturating_add(1);
    }

    /// Notes that somebody asks for a command of the user's.
    pub fn ask_shell(&mut self) {
        self.ask();
        self.shells = self.shells.saturating_add(1);
    }

    /// Whether the turn that starts now can only be that of such a command, unless it is the client's.
    pub fn is_shell(self) -> bool {
        self.asked > 0 && self.asked == self.shells && !self.has_goal
    }

    /// Notes that codex has refused a request for it.
    pub fn refuse(&mut self) {
        self.asked = self.asked.saturating_sub(1);
        self.shells = self.shells.min(self.asked);
    }

    /// Notes that a turn runs: whoever asks about it knows from now on.
    pub fn started(&mut self) {
        self.asked = 0;
        self.shells = 0;
    }

    /// Notes whether codex pursues a goal.
    pub fn set_goal(&mut self, is_active: bool) {
        self.has_goal = is_active;
    }
}

impl Session {
    pub(in crate::session) fn on_work(&mut self, line: &[u8], request: Request) -> ClientVerdict {
        self.on_work_of(line, request, Work::ask)
    }

    fn on_work_of(
        &mut self,
        line: &[u8],
        Request { id, params, .. }: Request,
        ask: fn(&mut Work),
    ) -> ClientVerdict {
        let thread = member_text(line, &params, &["threadId"]).and_then(ThreadId::new);
        let meaning = thread.map_or(Meaning::Other, |thread| {
            self.ledger.work(thread.as_str(), ask);
            Meaning::Work(thread)
        });
        let _ = self.pending.try_note(id, meaning);
        ClientVerdict::Pass
    }

    pub(in crate::session) fn on_shell(&mut self, line: &[u8], request: Request) -> ClientVerdict {
        self.on_work_of(line, request, Work::ask_shell)
    }

    /// Has the thread told of its current text before codex starts a turn of its own on it. The thread
    /// is not loaded anew for that: what it would lose by it only a `turn/start` can set again.
    pub(in crate::session) fn on_work_of_model(
        &mut self,
        line: &Bytes,
        request: Request,
    ) -> ClientVerdict {
        let thread = member_text(line, &request.params, &["threadId"]).and_then(ThreadId::new);
        let status = member_text(line, &request.params, &["status"]);
        let starts_none = status.is_some_and(|status| status != ACTIVE);
        let rests = |thread: &ThreadId| {
            let is_loaded = self.ledger.is_loaded(thread.as_str());
            is_loaded && !self.is_running(thread.as_str())
        };
        let Some(thread) = thread.filter(|thread| !starts_none && rests(thread)) else {
            return self.on_work(line, request);
        };
        let _ = self.pending.try_note(request.id.clone(), Meaning::Other);
        let told = self.ledger.find(thread.as_str());
        let wish = Wish {
            is_shared: told.is_some_and(|told| !told.is_routed()),
            ..self.usual_wish(thread.as_str())
        };
        let turn = StartTurn::of_codex(request, thread);
        ClientVerdict::Prepare(Prepare::new(wish, Target::Turn(turn)))
    }

    /// Sends a request for work whose thread has the current text.
    pub(in crate::session) fn send_work(
        &mut self,
        id: RequestId,
        thread: ThreadId,
    ) -> ClientVerdict {
        self.ledger.work(thread.as_str(), Work::ask);
        self.pending.settle(id, Meaning::Work(thread));
        ClientVerdict::Pass
    }

    /// Learns whether codex begins what it was asked for.
    pub(in crate::session) fn work_answered(&mut self, thread: &ThreadId, is_ok: bool) {
        let thread = thread.as_str();
        if !is_ok {
            self.ledger.work(thread, Work::refuse);
        } else if self.compacts_unseen(thread) {
            self.delivery.lost(thread);
            self.ledger.may_be_compacted(thread);
        }
    }

    /// Learns of the end of a compaction that nobody is told of otherwise.
    pub(in crate::session) fn rests_behind_compaction(&mut self, thread: &str) {
        if self.compacts_unseen(thread) {
            let version = self.client.codex_version;
            let tells_later = version.is_some_and(CodexVersion::tells_after_compaction);
            self.ledger.compacted(thread, tells_later);
        }
    }

    /// Whether a compaction runs whose end nobody is told of.
    fn compacts_unseen(&self, thread: &str) -> bool {
        !self.registry.is_subscribed(thread) && self.ledger.is_compacting(thread)
    }

    /// Whether a turn runs on a thread, or is about to start.
    pub(in crate::session) fn is_running(&self, thread: &str) -> bool {
        let is_running = self.registry.find(thread).is_some_and(Thread::is_running);
        is_running || self.ledger.is_about_to_run(thread)
    }

    /// Whether a turn has started on a thread while a renewal asked codex how it is, by codex's `answer`:
    /// then the renewal ends there.
    pub(in crate::session) fn is_at_work(&mut self, thread: &ThreadId, answer: &Bytes) -> bool {
        let thread = thread.as_str();
        let is_running = self.is_running(thread);
        let result = Envelope::read(answer).and_then(|it| it.result);
        let path = ["thread", "status", "type"];
        let status = result.and_then(|result| member_text(answer, &result, &path));
        let is_active = status.as_deref() == Some(ACTIVE);
        if is_active && !is_running {
            // Codex is about to say so.
            self.ledger.work(thread, Work::ask);
        }
        if is_active || is_running {
            self.ledger.renews_no_more(thread);
        }
        is_active || is_running
    }

    /// Learns whether codex pursues a goal on a thread.
    pub(in crate::session) fn learn_goal(&mut self, line: &[u8], params: &Known, thread: &str) {
        let status = member_text(line, params, &["goal", "status"]);
        let is_active = status.as_deref() == Some(ACTIVE);
        self.ledger.work(thread, |work| work.set_goal(is_active));
    }
}

/// The status of a thread on which a turn runs, and of a goal that codex pursues.
const ACTIVE: &str = "active";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_may_begin_until_a_turn_has_started_or_codex_has_refused_it() {
        let mut work = Work::default();
        assert!(!work.may_begin());
        work.ask();
        work.ask();
        work.refuse();
        assert!(work.may_begin());
        work.refuse();
        assert!(!work.may_begin());
        work.ask();
        work.started();
        assert!(!work.may_begin());
        work.set_goal(true);
        work.started();
        assert!(work.may_begin());
        work.set_goal(false);
        assert!(!work.may_begin());
    }

    #[test]
    fn turn_of_a_command_is_known_where_nothing_else_was_asked_for() {
        let mut work = Work::default();
        assert!(!work.is_shell());
        work.ask_shell();
        assert!(work.is_shell());
        work.ask();
        assert!(!work.is_shell());
        work.refuse();
        work.refuse();
        assert!(!work.is_shell());
        work.ask_shell();
        work.set_goal(true);
        assert!(!work.is_shell());
        work.set_goal(false);
        work.started();
        assert!(!work.is_shell());
    }
}
