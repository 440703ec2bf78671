//! Settings that a client changes between turns: the next turn goes by them, though codex tells of
//! them a moment after it has answered.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::ids::ThreadId;
use crate::session::instructions::documents::profile_of_turn;
use crate::session::instructions::opening::KeptConfig;
use crate::session::instructions::renewal::permissions_set_by;
use crate::session::intercept::ClientVerdict;
use crate::session::machine::{Meaning, Session};
use crate::session::reading::Request;
use crate::wire::envelope::member_text;

/// What a thread was set to before a change that codex may refuse.
#[derive(Debug)]
pub(in crate::session) struct Before {
    thread: ThreadId,
    profile: Option<Arc<str>>,
    policy: KeptConfig,
    folder: Option<PathBuf>,
    is_without_files: bool,
}

impl Session {
    pub(in crate::session) fn on_settings_update(
        &mut self,
        line: &[u8],
        Request { id, params, said }: Request,
    ) -> ClientVerdict {
        let thread = member_text(line, &params, &["threadId"]).and_then(ThreadId::new);
        let before = thread.and_then(|thread| self.set_to_now(thread));
        let Some(before) = before else {
            let _ = self.pending.try_note(id, Meaning::Other);
            return ClientVerdict::Pass;
        };
        let thread = before.thread.as_str();
        let profile = profile_of_turn(line, &params, before.profile.as_ref());
        self.ledger.set_profile(thread, profile);
        self.ledger.sets(thread, permissions_set_by(line, &params));
        if let Some(folder) = member_text(line, &params, &["cwd"]) {
            self.registry.note_folder(thread, folder.into());
            // Another folder brings the environments that are usual there.
            self.ledger.set_files(thread, true);
        }
        if let Some(places) = said.places {
            self.ledger.set_files(thread, !places.are_elsewhere());
        }
        let _ = self.pending.try_note(id, Meaning::Updated(before));
        ClientVerdict::Pass
    }

    fn set_to_now(&self, thread: ThreadId) -> Option<Before> {
        let told = self.ledger.find(thread.as_str())?;
        let known = self.registry.find(thread.as_str())?;
        Some(Before {
            profile: told.documents.profile.clone(),
            policy: told.set.policy.clone(),
            folder: known.habits.folder.clone(),
            is_without_files: told.is_without_files,
            thread,
        })
    }

    /// Takes a change back that codex has refused.
    pub(in crate::session) fn settings_answered(&mut self, before: Before, is_ok: bool) {
        if is_ok {
            return;
        }
        let thread = before.thread.as_str();
        self.ledger.set_profile(thread, before.profile);
        self.ledger.set_policy(thread, before.policy);
        self.ledger.set_files(thread, !before.is_without_files);
        if let Some(folder) = before.folder {
            self.registry.note_folder(thread, folder);
        }
    }
}
