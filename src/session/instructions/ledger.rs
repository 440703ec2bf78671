//! What each thread holds in its developer instructions, and what its model was told last.
//!
//! Codex never shows the model new developer instructions of a `thread/resume`, but falls back on
//! them at a compaction (0.155.1 and 0.171.0): so two texts are kept apart, the one that is loaded and
//! the one that was seen.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::base::bounded::BoundedMap;
use crate::base::ids::{ThreadId, TurnId};
use crate::base::limits::MAX_TOLD_THREADS;
use crate::context::orders::Text;
use crate::session::instructions::documents::Documents;
use crate::session::instructions::opening::{Base, KeptConfig, Opened, Opening};
use crate::session::instructions::places::Whereabouts;
use crate::session::instructions::renewal::{Step, Trouble};
use crate::session::instructions::strays::Strays;
use crate::session::instructions::told::{Open, Owed, Past, Set, Storage, Told};
use crate::session::instructions::work::Work;
use crate::session::methods::ThreadWay;
use crate::session::own::OwnId;
use crate::session::route::eligibility::Ineligible;

/// The threads whose developer instructions are known.
#[derive(Debug)]
pub struct Ledger {
    threads: BoundedMap<ThreadId, Told>,
    /// This machine isn't among the environments that are usual.
    usual_are_elsewhere: bool,
}

impl Ledger {
    /// Starts without threads.
    pub fn new() -> Self {
        Self {
            threads: BoundedMap::new(MAX_TOLD_THREADS),
            usual_are_elsewhere: false,
        }
    }

    /// What is known of a thread.
    pub fn find(&self, thread: &str) -> Option<&Told> {
        self.threads.find(thread)
    }

    pub(super) fn find_mut(&mut self, thread: &str) -> Option<&mut Told> {
        self.threads.find_mut(thread)
    }

    /// Whether a thread has no native file system in the environments that are usual.
    pub fn usual_are_elsewhere(&self) -> bool {
        self.usual_are_elsewhere
    }

    /// Notes a thread that codex opened with `text`.
    pub fn opened(&mut self, id: &ThreadId, opening: Opening, text: &Text, said: Opened) {
        let source = opening.source.as_ref();
        let source = source.and_then(|it| self.threads.find(it)).cloned();
        if opening.way == ThreadWay::Resume
            && let Some(known) = self.threads.find_mut(id)
            && known.is_loaded
        {
            known.rejoined(opening, said);
            return;
        }
        let is_new = opening.way == ThreadWay::Start;
        let before = source.filter(|_| !is_new);
        let same = before.as_ref().filter(|_| opening.way == ThreadWay::Resume);
        let has_chosen = opening.places.is_some();
        if let Some(places) = said.places.as_ref().filter(|_| !has_chosen) {
            self.usual_are_elsewhere = places.are_elsewhere();
        }
        let past = Past::of(&opening, text, before.as_ref().map(|it| it.past));
        let places = said.places.or(opening.places);
        let told = Told {
            config: match &opening.base {
                // What isn't kept can't be given again.
                Some(Base::TooLarge(_)) => KeptConfig::TooLarge,
                Some(Base::Kept(_)) | None => opening.config,
            },
            base: opening.base.and_then(Base::into_text),
            kept: opening.kept,
            policy: opening.policy,
            is_without_files: places
                .map_or(self.usual_are_elsewhere, |places| places.are_elsewhere()),
            has_chosen,
            documents: said.documents,
            set: Set {
                settings: said.settings,
                policy: KeptConfig::Absent,
                is_in_heartbeat: false,
            },
            storage: match opening.way {
                _ if said.is_ephemeral => Storage::Ephemeral,
                ThreadWay::Resume => Storage::Written,
                ThreadWay::Start | ThreadWay::Fork => Storage::Unwritten,
            },
            past,
            is_loaded: true,
            is_routed: opening.is_routed,
            loaded: Some(text.digest),
            policy_loaded: text.policy,
            has_failed: false,
            is_busy: false,
            has_sent_turn: false,
            work: Work::default(),
            put_off: None,
            unloads: same.map_or(0, |it| it.unloads),
            open: None,
            strays: Strays::default(),
            restored: None,
            owed: Owed::default(),
            since: same.map(|it| it.since.clone()).unwrap_or_default(),
            compactions: 0,
            history: said.history.filter(|_| before.is_none() && !is_new),
        };
        self.keep(id, told);
    }

    fn keep(&mut self, id: &ThreadId, told: Told) {
        if self.threads.len() >= MAX_TOLD_THREADS {
            // What is proven of a thread that is closed goes first: it is told again then.
            let closed = self.threads.iter().find(|(_, told)| !told.is_loaded);
            if let Some(closed) = closed.map(|(id, _)| id.clone()) {
                self.threads.remove(&closed);
            }
        }
        if let Err(full) = self.threads.try_insert(id.clone(), told) {
            tracing::warn!(%full, "developer instructions of this thread are not looked after");
        }
    }

    /// Notes that codex was asked for a step.
    pub fn asked(
        &mut self,
        thread: &str,
        own: OwnId,
        step: Step,
        (text, is_routed): (&Text, bool),
    ) {
        let Some(told) = self.threads.find_mut(thread) else {
            return;
        };
        told.strays
            .expect(matches!(step, Step::Look | Step::Return));
        if step == Step::Tell {
            told.past.is_untold = false;
        }
        // A resume is judged by what was there before the thread was left.
        let before = told.open.take().filter(|_| step == Step::Return);
        if step == Step::Tell {
            // A compaction falls back on what is loaded.
            let is_another = told.loaded != Some(text.digest);
            told.restored = is_another.then(|| Arc::new(text.clone()));
        }
        told.open = Some(Open {
            own,
            step,
            text: text.digest,
            policy: text.policy,
            is_routed,
            unloads: before.as_ref().map_or(told.unloads, |open| open.unloads),
            was_loaded: before.map_or(told.is_loaded, |open| open.was_loaded),
            is_disturbed: false,
            is_awaited: true,
            outcome: None,
        });
    }

    /// Notes that no turn waits for the step that was asked last: it goes out before the next turn.
    pub fn sent_off(&mut self, thread: &str) {
        let told = self.threads.find_mut(thread);
        if let Some(open) = told.and_then(|told| told.open.as_mut()) {
            open.is_awaited = false;
        }
    }

    /// Notes codex's answer to a request of our own, whoever still waits for it.
    pub fn answered(&mut self, own: OwnId, is_ok: bool) {
        let is_it = |told: &Told| told.open.as_ref().is_some_and(|open| open.own == own);
        let thread = self.threads.iter().find(|(_, told)| is_it(told));
        let Some(thread) = thread.map(|(thread, _)| thread.clone()) else {
            return;
        };
        if let Some(told) = self.threads.find_mut(&thread)
            && let Some(mut open) = told.open.take()
        {
            open.outcome = Some(told.settle(&open, is_ok));
            told.open = Some(open);
        }
    }

    /// What became of the step that was asked last.
    pub fn outcome(&self, thread: &str, own: OwnId) -> Result<(), Trouble> {
        let open = self.threads.find(thread).and_then(|it| it.open.as_ref());
        let open = open.filter(|open| open.own == own);
        open.and_then(|open| open.outcome)
            .unwrap_or(Err(Trouble::Unknown))
    }

    /// Notes that the client asks for a compaction.
    pub fn compaction_asked(&mut self, thread: &str) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.compactions = told.compactions.saturating_add(1);
        }
    }

    /// Notes that a history is rewritten, or was: the model may see what is loaded alone.
    pub fn may_be_compacted(&mut self, thread: &str) {
        if let Some(told) = self.find_mut(thread) {
            told.shows_loaded();
        }
    }

    /// Whether the client has asked for a compaction that hasn't ended.
    pub fn is_compacting(&self, thread: &str) -> bool {
        self.find(thread).is_some_and(|told| told.compactions > 0)
    }

    /// Whether a turn of the client's is on its way.
    pub fn is_about_to_run(&self, thread: &str) -> bool {
        self.find(thread).is_some_and(|told| told.has_sent_turn)
    }

    /// Notes that the client asks for a turn: no compaction of its own is on its way.
    ///
    /// Gives where a history is that began before this process, once.
    pub fn turn_asked(&mut self, thread: &str) -> Option<PathBuf> {
        let told = self.threads.find_mut(thread)?;
        told.compactions = 0;
        told.history.take()
    }

    /// Notes that something is put into the history, which codex writes what is loaded down with.
    pub fn injected(&mut self, thread: &str) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.past.is_untold = false;
        }
    }

    /// Notes that the history was rewritten: the model sees what is loaded.
    ///
    /// Gives what the model of an ephemeral thread must be told again at once: where codex compacts
    /// in the middle of a turn, the turn goes on. It's told at its next turn otherwise.
    /// With `tells_later` a history that was compacted between two turns holds no text at all.
    pub fn compacted(&mut self, thread: &str, tells_later: bool) -> Option<Arc<Text>> {
        let told = self.threads.find_mut(thread)?;
        told.shows_loaded();
        if told.compactions > 0 {
            told.compactions -= 1;
            told.past.is_untold = tells_later;
            return None;
        }
        let is_free = told.open.as_ref().is_none_or(|open| open.outcome.is_some());
        let restored = told.restored.as_ref().filter(|_| is_free)?;
        (told.loaded != Some(restored.digest)).then(|| Arc::clone(restored))
    }

    /// Notes that codex has unloaded a thread.
    pub fn unloaded(&mut self, thread: &str) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.is_loaded = false;
            told.unloads += 1;
            told.since.unloaded();
        }
    }

    /// Notes that codex has a thread in its memory: it loads it anew for a revert.
    pub fn is_there(&mut self, thread: &str) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.is_loaded = true;
        }
    }

    /// Notes that a turn of the client's is on its way to codex, or is no more.
    pub fn turn_is_sent(&mut self, thread: &str, is_sent: bool) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.has_sent_turn = is_sent;
        }
    }

    /// Notes that a turn of the thread runs: what belongs to a resume is over.
    pub fn started(&mut self, thread: &str, turn: Option<TurnId>) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.written();
            told.since.began(turn);
            told.has_sent_turn = false;
            // The turn of a command brings no text to the history.
            told.past.is_untold &= told.work.is_shell();
            told.work.started();
            told.strays.end();
        }
    }

    /// Notes where a thread works from now on.
    pub fn set_place(&mut self, thread: &str, place: &Whereabouts) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.is_without_files = place.is_without_files;
            told.has_chosen = place.is_chosen;
        }
    }

    /// Notes whether a thread's last turn has failed.
    pub fn set_failed(&mut self, thread: &str, has_failed: bool) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.has_failed = has_failed;
        }
    }

    /// Notes whether commands run in a thread's background.
    pub fn set_busy(&mut self, thread: &str, is_busy: bool) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.is_busy = is_busy;
        }
    }

    /// Notes something of the work that may begin on a thread.
    pub fn work(&mut self, thread: &str, note: impl FnOnce(&mut Work)) {
        if let Some(told) = self.threads.find_mut(thread) {
            note(&mut told.work);
        }
    }

    /// Notes which way a thread is to go later; none: it goes there now.
    pub fn put_off(&mut self, thread: &str, way: Option<(bool, Option<Ineligible>)>) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.put_off = way;
        }
    }

    /// The way that a thread can go now, and couldn't before.
    pub fn take_put_off(&mut self, thread: &str) -> Option<(bool, Option<Ineligible>)> {
        let told = self.threads.find_mut(thread)?;
        let stays = told.keeps_its_way();
        told.put_off.take_if(|_| !stays)
    }

    /// Notes the profile of permissions that is in force in a thread.
    pub fn set_profile(&mut self, thread: &str, profile: Option<Arc<str>>) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.documents.profile = profile;
        }
    }

    /// Notes the policy that the client has set a thread to, if any.
    pub fn set_policy(&mut self, thread: &str, policy: KeptConfig) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.set.policy = policy;
        }
    }

    /// Notes what codex shows a thread, and under which profile.
    pub fn listed(&mut self, thread: &str, documents: Documents) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.listed(documents);
        }
    }

    /// Notes whether a thread's collaboration mode is the one of a heartbeat.
    pub fn set_heartbeat(&mut self, thread: &str, is_in_heartbeat: bool) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.set.is_in_heartbeat = is_in_heartbeat;
        }
    }

    /// Notes what codex says of a thread's settings.
    pub fn settled(&mut self, thread: &str, settings: Bytes) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.set.settings = Some(settings);
        }
    }

    /// Notes what a turn has set a thread to.
    pub fn sets(&mut self, thread: &str, sets: Map<String, Value>) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.sets(sets);
        }
    }

    /// Notes that the relay's words are in a history that began before this process.
    pub fn has_ours(&mut self, thread: &str) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.past.has_ours = true;
        }
    }

    /// Whether codex has a thread in its memory.
    pub fn is_loaded(&self, thread: &str) -> bool {
        self.threads.find(thread).is_some_and(|told| told.is_loaded)
    }

    /// Whether the relay is about to renew a thread.
    pub fn is_renewing(&self, thread: &str) -> bool {
        let told = self.threads.find(thread);
        told.is_some_and(|told| told.strays.is_renewing)
    }

    /// Whether a notification comes of a resume of our own, and isn't for the client.
    ///
    /// Of an MCP server it says which, and how far it is.
    pub fn is_stray(&mut self, thread: &str, method: &str, server: Option<(&str, &str)>) -> bool {
        let told = self.threads.find_mut(thread);
        told.is_some_and(|told| told.strays.take(method, server))
    }

    /// Notes codex's answer to a turn of the client: one that doesn't start ends a renewal.
    pub fn turn_answered(&mut self, thread: &str, is_ok: bool) {
        if !is_ok {
            self.done(thread);
            self.turn_is_sent(thread, false);
        } else if let Some(told) = self.threads.find_mut(thread) {
            told.owed = Owed::default();
            // Where its start isn't told: nobody is subscribed.
            told.past.is_untold = false;
        }
    }

    /// Notes that a turn sets again what a renewal has lost, and nothing else.
    pub fn sets_again(&mut self, thread: &str) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.strays.expect_settings();
        }
    }

    /// Notes what a renewal has lost, in case that the turn that sets it again doesn't start.
    pub fn owe(&mut self, thread: &str, owed: Owed) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.owed = owed;
        }
    }

    /// Notes that a renewal ends before the thread was left: what codex tells of it is the client's.
    pub fn renews_no_more(&mut self, thread: &str) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.strays.is_renewing = false;
        }
    }

    /// Notes that the relay is done with a thread, or has given up.
    pub fn done(&mut self, thread: &str) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.strays.end();
        }
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
