//! Settings that a client changes, between turns or with one: the next turn goes by them, though codex
//! tells of them a moment after it has answered.

use std::sync::Arc;

use bytes::Bytes;

use crate::base::ids::ThreadId;
use crate::session::instructions::documents::profile_of_turn;
use crate::session::instructions::opening::KeptConfig;
use crate::session::instructions::places::{Places, Whereabouts};
use crate::session::instructions::renewal::{permissions_set_by, still_lost};
use crate::session::instructions::told::Owed;
use crate::session::intercept::ClientVerdict;
use crate::session::machine::{Meaning, Session};
use crate::session::reading::Request;
use crate::session::version::CodexVersion;
use crate::wire::envelope::{Envelope, member, member_text};
use crate::wire::known::Known;

/// What a thread was set to before a change that codex may refuse.
#[derive(Debug)]
pub(in crate::session) struct Before {
    thread: ThreadId,
    profile: Option<Arc<str>>,
    policy: KeptConfig,
    place: Whereabouts,
    owed: Owed,
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
        let version = self.client.codex_version;
        let is_taken = version.is_none_or(CodexVersion::takes_places_in_settings);
        let places = said.places.as_ref().filter(|_| is_taken);
        let usual = self.ledger.usual_are_elsewhere();
        let place = before.place.of_request(line, &params, (places, usual));
        if !before.owed.lost.is_empty() {
            // What the client sets now isn't owed any more.
            let Owed {
                lost,
                place: was_at,
            } = before.owed.clone();
            let mut lost = still_lost(line, (&params, said.places.as_ref()), lost);
            lost.retain(|(name, _)| member(line, &params, &[name]).is_none());
            let place = was_at.filter(|_| place.is_none());
            self.ledger.owe(thread, Owed { lost, place });
        }
        if let Some(place) = place {
            self.set_place(thread, place);
        }
        let _ = self.pending.try_note(id, Meaning::Updated(before));
        ClientVerdict::Pass
    }

    fn set_to_now(&self, thread: ThreadId) -> Option<Before> {
        let told = self.ledger.find(thread.as_str())?;
        Some(Before {
            profile: told.documents.profile.clone(),
            policy: told.set.policy.clone(),
            place: self.place(thread.as_str())?,
            owed: told.owed.clone(),
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
        self.ledger.owe(thread, before.owed);
        self.set_place(thread, before.place);
    }

    /// Where a thread works, as far as known.
    pub(in crate::session) fn place(&self, thread: &str) -> Option<Whereabouts> {
        let told = self.ledger.find(thread)?;
        let known = self.registry.find(thread)?;
        Some(Whereabouts {
            folder: known.habits.folder.clone(),
            is_without_files: told.is_without_files,
            is_chosen: told.has_chosen,
        })
    }

    /// Where a turn goes that says something of it.
    pub(in crate::session) fn place_of_turn(
        &self,
        line: &[u8],
        request: &Request,
        thread: &ThreadId,
    ) -> Option<Whereabouts> {
        let now = self.place(thread.as_str())?;
        let usual = self.ledger.usual_are_elsewhere();
        let places = request.said.places.as_ref();
        now.of_request(line, &request.params, (places, usual))
    }

    /// Notes where a turn goes that is sent to codex: it keeps that for the turns that follow.
    pub(in crate::session) fn turn_goes(
        &mut self,
        thread: &ThreadId,
        place: Option<Whereabouts>,
    ) -> Option<Before> {
        let place = place?;
        let before = self.set_to_now(thread.clone())?;
        self.set_place(thread.as_str(), place);
        Some(before)
    }

    fn set_place(&mut self, thread: &str, place: Whereabouts) {
        self.ledger.set_place(thread, &place);
        if let Some(folder) = place.folder {
            self.registry.note_folder(thread, folder);
        }
    }

    /// Learns where codex says that a thread works from now on.
    pub(in crate::session) fn learn_place(&mut self, line: &[u8], params: &Known, thread: &str) {
        let places = Places::find(line, params, &["threadSettings", "environments"]);
        let cwd = member_text(line, params, &["threadSettings", "cwd"]);
        if let Some(mut place) = self.place(thread) {
            place.learn(cwd.map(Into::into), places.as_ref());
            self.set_place(thread, place);
        } else if let Some(cwd) = cwd {
            self.registry.note_folder(thread, cwd.into());
        }
    }

    /// Learns where a thread works that was loaded anew. Gives where it has worked.
    pub(in crate::session) fn place_after_return(
        &mut self,
        answer: &Bytes,
        thread: &str,
    ) -> Option<Whereabouts> {
        let before = self.place(thread)?;
        let envelope = Envelope::read(answer)?;
        let result = envelope.result?;
        let places = Places::find(answer, &result, &["thread", "environments"]);
        let cwd = member_text(answer, &result, &["cwd"]);
        let mut now = Whereabouts {
            is_chosen: false,
            ..before.clone()
        };
        now.learn(cwd.map(Into::into), places.as_ref());
        self.set_place(thread, now);
        Some(before)
    }
}
