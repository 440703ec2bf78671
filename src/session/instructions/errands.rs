//! Requests of our own that nobody waits for: what a compaction has taken from a thread, told again.

use bytes::Bytes;

use crate::base::ids::ThreadId;
use crate::base::limits::MAX_ERRANDS;
use crate::session::instructions::renewal::{Permissions, Step};
use crate::session::intercept::ClientVerdict;
use crate::session::machine::{Meaning, Session};
use crate::session::own::OwnId;
use crate::session::parent::registry::Thread;
use crate::session::reading::Request;
use crate::session::version::CodexVersion;
use crate::wire::envelope::member_text;

/// A request of our own that nobody waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errand {
    own: OwnId,
    /// The request, a whole line.
    pub question: Bytes,
}

impl Session {
    pub(in crate::session) fn on_compact(
        &mut self,
        line: &Bytes,
        request: Request,
    ) -> ClientVerdict {
        if let Some(thread) = member_text(line, &request.params, &["threadId"]) {
            self.ledger.compaction_asked(&thread);
        }
        self.on_work(line, request)
    }

    pub(in crate::session) fn on_inject(
        &mut self,
        line: &[u8],
        Request { id, params, .. }: Request,
    ) -> ClientVerdict {
        if let Some(thread) = member_text(line, &params, &["threadId"]) {
            self.ledger.injected(&thread);
        }
        let _ = self.pending.try_note(id, Meaning::Other);
        ClientVerdict::Pass
    }

    /// Notes a compaction; what must be told again at once is for the driver to send.
    pub(in crate::session) fn on_compaction(&mut self, thread: &str) {
        let version = self.client.codex_version;
        let tells_later = version.is_some_and(CodexVersion::tells_after_compaction);
        let Some(text) = self.ledger.compacted(thread, tells_later) else {
            return;
        };
        let (Some(id), true) = (
            ThreadId::new(thread),
            self.registry.find(thread).is_some_and(Thread::is_running),
        ) else {
            return;
        };
        let (own, question) = self.ask_step(&id, Step::Tell, (&text, Permissions::default()));
        self.ledger.sent_off(thread);
        if self.errands_asked.len() >= MAX_ERRANDS {
            self.errands_asked.remove(0);
        }
        self.errands_asked.push(own);
        self.errands.push(Errand { own, question });
    }

    /// Whether nobody waits for the answer to a request of our own.
    pub(in crate::session) fn is_errand(&mut self, own: OwnId) -> bool {
        let at = self.errands_asked.iter().position(|it| *it == own);
        at.map(|at| self.errands_asked.remove(at)).is_some()
    }

    /// What the driver should send to codex without waiting for an answer.
    pub fn take_errands(&mut self) -> Vec<Errand> {
        std::mem::take(&mut self.errands)
    }

    /// Notes that an errand wasn't sent.
    pub fn errand_failed(&mut self, errand: &Errand) {
        self.ledger.answered(errand.own, false);
    }
}
