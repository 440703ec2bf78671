//! What the client is told by `relay/warning`, if it asked for it.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use serde_json::json;

use crate::base::ids::ThreadId;
use crate::base::limits::{MAX_QUEUED_WARNINGS, MAX_TOLD_WARNINGS};
use crate::control::answers::Warning;
use crate::session::machine::Session;
use crate::wire::envelope::member;
use crate::wire::known::Known;
use crate::wire::scan;

/// Warnings that wait to be sent. Full, the oldest make room: they are in the log all the same.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    /// The client wants them.
    pub(super) is_wanted: bool,
    queue: VecDeque<Warning>,
    /// What of the workspace was told already.
    told: BTreeSet<String>,
}

impl Warnings {
    /// Starts with nothing to say.
    pub(super) fn new(is_wanted: bool) -> Self {
        Self {
            is_wanted,
            ..Self::default()
        }
    }
}

impl Session {
    /// Notes a warning for the client, which has been logged.
    pub(super) fn warn(&mut self, thread: Option<ThreadId>, reason: &str, message: String) {
        if !self.warnings.is_wanted {
            return;
        }
        if self.warnings.queue.len() >= MAX_QUEUED_WARNINGS {
            self.warnings.queue.pop_front();
        }
        self.warnings.queue.push_back(Warning {
            thread_id: thread.map(|thread| thread.as_str().to_owned()),
            reason: reason.to_owned(),
            message,
        });
    }

    /// Notes what was lost of a workspace, each once.
    pub(super) fn warn_of_losses(&mut self, thread: &ThreadId, losses: &[String]) {
        for loss in losses {
            if self.warnings.told.len() >= MAX_TOLD_WARNINGS {
                self.warnings.told.clear();
            }
            if self.warnings.is_wanted && self.warnings.told.insert(loss.clone()) {
                self.warn(Some(thread.clone()), "workspace", loss.clone());
            }
        }
    }

    /// Notes what became of the credential that the relay brings, which has been logged.
    pub fn warn_of_credential(&mut self, words: String) {
        self.warn(None, "upstream_credential", words);
    }

    /// Whether there is something to send.
    pub fn has_warnings(&self) -> bool {
        !self.warnings.queue.is_empty()
    }

    /// The lines to send, each once.
    pub fn take_warnings(&mut self) -> Vec<Bytes> {
        let line = |warning: Warning| {
            let line = json!({ "method": "relay/warning", "params": warning });
            Bytes::from(format!("{line}\n"))
        };
        self.warnings.queue.drain(..).map(line).collect()
    }
}

/// Whether the `params` of an `initialize` ask for warnings: `capabilities.relay` is there, and is
/// neither null nor false.
pub(super) fn are_asked_for(line: &[u8], params: &Known) -> bool {
    let asked = member(line, params, &["capabilities", "relay"]);
    asked.is_some_and(|at| !scan::is_null(line, &at) && line.get(at) != Some(b"false"))
}
