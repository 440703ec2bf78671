//! Codex to client: what each line teaches, and whether the client sees it.

use std::ops::Range;

use bytes::Bytes;

use crate::base::ids::{ThreadId, TurnId};
use crate::session::machine::{Meaning, Session};
use crate::session::methods::{self, CodexNotification, CompactionIs};
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
                    // Noted here and not where it is waited for: what codex says behind it, a
                    // compaction perhaps, comes later.
                    self.delivery.answered(id, !envelope.is_error);
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
            Meaning::Reverted(thread) => {
                if result.is_some() {
                    self.delivery.lost(thread.as_str());
                }
            }
            Meaning::Unsubscribed(thread) => {
                if result.is_some() {
                    self.delivery.forget(thread.as_str());
                }
            }
            Meaning::Initialize => self.client.initialized |= result.is_some(),
            Meaning::Thread {
                routed,
                snapshot,
                habits,
            } => {
                let id = result
                    .and_then(|result| member_text(line, &result, &["thread", "id"]))
                    .and_then(ThreadId::new);
                if let Some(id) = id
                    && let Err(full) = self.registry.opened(id, routed, snapshot, habits)
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
        if let Some(params) = &envelope.params
            && let Some(thread) = member_text(line, params, &["threadId"])
        {
            self.learn(line, params, kind, &thread);
        }
        if self.client.unwanted.iter().any(|name| name == method) {
            return CodexVerdict::Keep;
        }
        CodexVerdict::Pass
    }

    fn learn(&mut self, line: &[u8], params: &Range<usize>, kind: CodexNotification, thread: &str) {
        let text = |path: &[&str]| member_text(line, params, path);
        match kind {
            CodexNotification::Compacted(sign) => {
                let is_compaction = match sign {
                    CompactionIs::Told => true,
                    CompactionIs::InItsItem => {
                        text(&["item", "type"]).as_deref() == Some("contextCompaction")
                    }
                };
                if is_compaction {
                    self.delivery.lost(thread);
                }
            }
            CodexNotification::Reverted => self.delivery.lost(thread),
            CodexNotification::StatusChanged => match text(&["status", "type"]).as_deref() {
                Some("notLoaded") => {
                    self.registry.rests(thread);
                    self.delivery.lost(thread);
                }
                Some("idle" | "systemError") => self.registry.rests(thread),
                Some(_) | None => {}
            },
            CodexNotification::ThreadGone => {
                self.registry.gone(thread);
                self.delivery.forget(thread);
            }
            CodexNotification::TurnCompleted => {
                if let Some(turn) = text(&["turn", "id"]) {
                    self.registry.completed(thread, &turn);
                }
            }
            CodexNotification::TurnStarted => {
                if let Some(turn) = text(&["turn", "id"]).and_then(TurnId::new) {
                    self.registry.started(thread, turn);
                }
            }
        }
    }
}
