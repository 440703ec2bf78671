//! Codex to client: what each line teaches, and whether the client sees it.

use bytes::Bytes;

use crate::base::ids::{ThreadId, TurnId};
use crate::session::machine::{Meaning, Session};
use crate::session::methods::{self, CodexNotification};
use crate::session::own::OwnAnswer;
use crate::wire::envelope::{Envelope, member_text};

/// Whether the client sees a line of codex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodexVerdict {
    /// The relay needed it; the client opted out of it.
    Keep,
    /// It answers a request of our own: for the driver that waits for it, not for the client.
    Own(OwnAnswer),
    /// It goes on to the client.
    Pass,
}

impl Session {
    /// Learns from a line of codex. Lines that can't be read pass.
    pub fn on_codex_line(&mut self, line: &Bytes) -> CodexVerdict {
        let Some(envelope) = Envelope::read(line) else {
            return CodexVerdict::Pass;
        };
        match (&envelope.method, &envelope.id) {
            (None, Some(id)) => {
                if let Some(id) = self.own.recognize(id) {
                    let line = line.clone();
                    return CodexVerdict::Own(OwnAnswer { id, line });
                }
                if let Some(meaning) = self.pending.answered(id) {
                    self.on_answer(line, &envelope, meaning);
                }
                CodexVerdict::Pass
            }
            (Some(method), None) => self.on_notification(line, &envelope, method),
            // Codex's own requests number from zero in a space of their own.
            (Some(_), Some(_)) | (None, None) => CodexVerdict::Pass,
        }
    }

    fn on_answer(&mut self, line: &Bytes, envelope: &Envelope, meaning: Meaning) {
        let result = envelope.result.clone().filter(|_| !envelope.is_error);
        match meaning {
            Meaning::Other => {}
            Meaning::Initialize => self.client.initialized |= result.is_some(),
            Meaning::Thread { routed, snapshot } => {
                let id = result
                    .and_then(|result| member_text(line, &result, &["thread", "id"]))
                    .and_then(ThreadId::new);
                if let Some(id) = id
                    && let Err(full) = self.registry.opened(id, routed, snapshot)
                {
                    tracing::debug!(%full, "thread not registered");
                }
            }
            Meaning::Turn { thread, generation } => {
                let turn = result
                    .and_then(|result| member_text(line, &result, &["turn", "id"]))
                    .and_then(TurnId::new);
                self.registry.answered(thread.as_str(), &generation, turn);
            }
        }
    }

    fn on_notification(&mut self, line: &Bytes, envelope: &Envelope, method: &str) -> CodexVerdict {
        let Some(kind) = methods::of_codex(method) else {
            return CodexVerdict::Pass;
        };
        let params = envelope.params.clone();
        let text = |path: &[&str]| member_text(line, params.as_ref()?, path);
        if let Some(thread) = text(&["threadId"]) {
            match kind {
                CodexNotification::ThreadGone => self.registry.gone(&thread),
                CodexNotification::TurnCompleted => {
                    if let Some(turn) = text(&["turn", "id"]) {
                        self.registry.completed(&thread, &turn);
                    }
                }
            }
        }
        if self.client.unwanted.iter().any(|name| name == method) {
            return CodexVerdict::Keep;
        }
        CodexVerdict::Pass
    }
}
