//! What each thread holds in its developer instructions, and what its model was told last.
//!
//! Codex never shows the model new developer instructions of a `thread/resume`, but falls back on
//! them at a compaction (0.155.1 and 0.171.0): so two texts are kept apart, the one that is loaded and
//! the one that was seen.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::base::bounded::BoundedMap;
use crate::base::ids::ThreadId;
use crate::base::limits::MAX_TOLD_THREADS;
use crate::context::digest::Digest;
use crate::context::orders::Text;
use crate::session::documents::Documents;
use crate::session::eligibility::Ineligible;
use crate::session::methods::ThreadWay;
use crate::session::opening::{Base, KeptConfig, Opened, Opening};
use crate::session::own::OwnId;
use crate::session::renewal::{Step, Trouble};
use crate::session::strays::Strays;

/// The threads whose developer instructions are known.
#[derive(Debug)]
pub struct Ledger {
    threads: BoundedMap<ThreadId, Told>,
}

/// What is known of one thread.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, not states"
)]
#[derive(Clone, Debug)]
pub struct Told {
    /// The client's own developer instructions, else those of the user's configuration.
    pub base: Option<Arc<str>>,
    /// The client's `config`: codex keeps none of it over a resume.
    pub config: KeptConfig,
    /// Other members of the client's that a resume takes.
    pub kept: Vec<(&'static str, Bytes)>,
    /// The policy that the client gave.
    pub policy: Option<Arc<str>>,
    /// Whether it has no native file system.
    pub is_without_files: bool,
    /// What it is set to.
    pub set: Set,
    /// What codex itself shows it of the workspace's AGENTS.md.
    pub documents: Documents,
    pub(super) storage: Storage,
    pub(super) past: Past,
    /// It is in codex's memory.
    pub(super) is_loaded: bool,
    /// It was loaded with the private route.
    pub(super) is_routed: bool,
    /// The text that codex falls back on.
    pub(super) loaded: Option<Digest>,
    /// The policy in the text that it was loaded with.
    pub(super) policy_loaded: Option<Digest>,
    /// Its last turn has failed: codex doesn't unload it.
    pub(super) has_failed: bool,
    /// Commands run in its background: it isn't unloaded for a text alone.
    pub(super) is_busy: bool,
    /// The way that it is to go once it can be loaded anew, and what speaks against a route.
    put_off: Option<(bool, Option<Ineligible>)>,
    /// How often codex has unloaded it.
    unloads: u64,
    /// A write that codex hasn't answered for.
    pub(super) open: Option<Open>,
    /// Notifications that a resume of our own brings and that the client didn't ask for.
    strays: Strays,
    /// What a thread was told last that couldn't be loaded with it, to be told again after a compaction.
    restored: Option<Arc<Text>>,
    /// Compactions that the client asked for.
    compactions: u8,
    /// Where codex wrote its history down, while nobody has looked whether there is a section of
    /// ours in it.
    history: Option<PathBuf>,
}

/// What a thread is set to, as far as codex told.
#[derive(Clone, Debug, Default)]
pub struct Set {
    /// What codex told last, as it stands.
    pub settings: Option<Bytes>,
    /// Whether its collaboration mode is the one of a heartbeat.
    pub is_in_heartbeat: bool,
}

/// Whether codex can load a thread again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storage {
    /// Never.
    Ephemeral,
    /// Once it has written something of it down.
    Unwritten,
    Written,
}

/// What stands in a thread's history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    /// The relay's own words are, or were, there.
    pub(super) has_ours: bool,
    /// There is more than one text.
    is_layered: bool,
    /// The last one, where that is proven.
    pub(super) seen: Option<Digest>,
}

#[derive(Clone, Debug)]
pub(super) struct Open {
    own: OwnId,
    step: Step,
    pub(super) text: Digest,
    policy: Option<Digest>,
    is_routed: bool,
    unloads: u64,
    /// The history has lost something since.
    is_disturbed: bool,
    /// A turn waits for it; if not, codex has it before the next turn.
    pub(super) is_awaited: bool,
    pub(super) outcome: Option<Result<(), Trouble>>,
}

impl Ledger {
    /// Starts without threads.
    pub fn new() -> Self {
        Self {
            threads: BoundedMap::new(MAX_TOLD_THREADS),
        }
    }

    /// What is known of a thread.
    pub fn find(&self, thread: &str) -> Option<&Told> {
        self.threads.find(thread)
    }

    /// Notes a thread that codex opened with `text`.
    pub fn opened(&mut self, id: &ThreadId, opening: Opening, text: &Text, said: Opened) {
        let source = opening.source.as_ref();
        let source = source.and_then(|it| self.threads.find(it)).cloned();
        if opening.way == ThreadWay::Resume
            && let Some(known) = self.threads.find_mut(id)
            && known.is_loaded
        {
            known.rejoined(opening, said.documents);
            return;
        }
        let before = source.filter(|_| opening.way != ThreadWay::Start);
        let is_new = opening.way == ThreadWay::Start;
        let seen = match &before {
            Some(before) if !opening.is_partial => before.past.seen,
            Some(_) => None,
            None => is_new.then_some(text.digest),
        };
        let told = Told {
            config: match &opening.base {
                // What isn't kept can't be given again.
                Some(Base::TooLarge(_)) => KeptConfig::TooLarge,
                Some(Base::Kept(_)) | None => opening.config,
            },
            base: opening.base.and_then(Base::into_text),
            kept: opening.kept,
            policy: opening.policy,
            is_without_files: said.is_without_files || opening.is_without_files,
            documents: said.documents,
            set: Set {
                settings: said.settings,
                is_in_heartbeat: false,
            },
            storage: match opening.way {
                _ if said.is_ephemeral => Storage::Ephemeral,
                ThreadWay::Resume => Storage::Written,
                ThreadWay::Start | ThreadWay::Fork => Storage::Unwritten,
            },
            past: Past {
                has_ours: text.is_ours || before.as_ref().is_some_and(|it| it.past.has_ours),
                is_layered: !is_new,
                seen,
            },
            is_loaded: true,
            is_routed: opening.is_routed,
            loaded: Some(text.digest),
            policy_loaded: text.policy,
            has_failed: false,
            is_busy: false,
            put_off: None,
            unloads: before
                .as_ref()
                .filter(|_| opening.way == ThreadWay::Resume)
                .map_or(0, |it| it.unloads),
            open: None,
            strays: Strays::default(),
            restored: None,
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
        // A resume is judged by what was there before the thread was left.
        let before = told.open.take().filter(|_| step == Step::Return);
        // A compaction falls back on what is loaded, which is another text here.
        let cannot_load = told.is_ephemeral() || told.must_stay_loaded();
        if cannot_load && step == Step::Tell {
            told.restored = Some(Arc::new(text.clone()));
        }
        told.open = Some(Open {
            own,
            step,
            text: text.digest,
            policy: text.policy,
            is_routed,
            unloads: before.map_or(told.unloads, |open| open.unloads),
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

    /// Notes that the client asks for a turn: no compaction of its own is on its way.
    ///
    /// Gives where a history is that began before this process, once.
    pub fn turn_asked(&mut self, thread: &str) -> Option<PathBuf> {
        let told = self.threads.find_mut(thread)?;
        told.compactions = 0;
        told.history.take()
    }

    /// Notes that the history was rewritten: the model sees what is loaded.
    ///
    /// Gives what the model of an ephemeral thread must be told again at once: where codex compacts
    /// in the middle of a turn, the turn goes on. It's told at its next turn otherwise.
    pub fn compacted(&mut self, thread: &str) -> Option<Arc<Text>> {
        let told = self.threads.find_mut(thread)?;
        told.past.seen = told.loaded;
        told.past.is_layered = false;
        told.disturb();
        if told.compactions > 0 {
            told.compactions -= 1;
            return None;
        }
        let is_free = told.open.as_ref().is_none_or(|open| open.outcome.is_some());
        let restored = told.restored.as_ref().filter(|_| is_free)?;
        (told.loaded != Some(restored.digest)).then(|| Arc::clone(restored))
    }

    /// Notes that the history is shorter: what stands last in it may be an older text.
    pub fn reverted(&mut self, thread: &str) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.is_loaded = true;
            if told.past.is_layered {
                told.past.seen = None;
            }
            told.disturb();
        }
    }

    /// Notes that codex has unloaded a thread.
    pub fn unloaded(&mut self, thread: &str) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.is_loaded = false;
            told.unloads += 1;
        }
    }

    /// Notes that a turn of the thread runs: what belongs to a resume is over.
    pub fn started(&mut self, thread: &str) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.written();
            told.strays = Strays::default();
        }
    }

    /// Notes whether a thread has a native file system from now on.
    pub fn set_files(&mut self, thread: &str, has_files: bool) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.is_without_files = !has_files;
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

    /// Notes which way a thread is to go later; none: it goes there now.
    pub fn put_off(&mut self, thread: &str, way: Option<(bool, Option<Ineligible>)>) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.put_off = way;
        }
    }

    /// The way that a thread can go now, and couldn't before.
    pub fn take_put_off(&mut self, thread: &str) -> Option<(bool, Option<Ineligible>)> {
        let told = self.threads.find_mut(thread)?;
        told.put_off.take_if(|_| !told.has_failed)
    }

    /// Notes the profile of permissions that is in force in a thread.
    pub fn set_profile(&mut self, thread: &str, profile: Option<Arc<str>>) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.documents.profile = profile;
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
    pub fn is_stray(&mut self, thread: &str, method: &str) -> bool {
        let told = self.threads.find_mut(thread);
        told.is_some_and(|told| told.strays.take(method))
    }

    /// Notes codex's answer to a turn of the client: one that doesn't start ends a renewal.
    pub fn turn_answered(&mut self, thread: &str, is_ok: bool) {
        if !is_ok {
            self.done(thread);
        }
    }

    /// Notes that the relay is done with a thread, or has given up.
    pub fn done(&mut self, thread: &str) {
        if let Some(told) = self.threads.find_mut(thread) {
            told.strays = Strays::default();
        }
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

impl Told {
    /// The client's `config` of a thread that is on the route.
    pub fn routed_config(&self) -> Option<&Bytes> {
        match &self.config {
            KeptConfig::Kept(config) if self.is_routed => Some(config),
            KeptConfig::Kept(_) | KeptConfig::Absent | KeptConfig::TooLarge => None,
        }
    }

    /// Whether codex never writes it down.
    pub fn is_ephemeral(&self) -> bool {
        self.storage == Storage::Ephemeral
    }

    /// Whether the relay's own words are, or were, in its history.
    pub fn has_ours(&self) -> bool {
        self.past.has_ours
    }

    /// Notes that a client resumed the thread while it was loaded: codex takes nothing new for it, so
    /// what is new goes into what it is renewed with.
    fn rejoined(&mut self, opening: Opening, documents: Documents) {
        self.listed(documents);
        self.policy = opening.policy.or_else(|| self.policy.take());
        if self.is_routed != opening.is_routed && opening.config != KeptConfig::Absent {
            // It goes another way from now on: the one that the client has told here.
            self.config = opening.config;
        }
        if let Some(own) = opening.own.and_then(Base::into_text) {
            self.base = Some(own);
        }
        // Whoever resumes a thread takes it as it is: no late answer is waited for.
        self.open = None;
    }

    fn listed(&mut self, documents: Documents) {
        let older = std::mem::replace(&mut self.documents, documents);
        self.documents.keep_older(older);
    }

    fn settle(&mut self, open: &Open, is_ok: bool) -> Result<(), Trouble> {
        if !is_ok {
            return Err(Trouble::Refused);
        }
        match open.step {
            Step::Look | Step::Leave | Step::Part => {}
            Step::Return if self.is_loaded && self.unloads == open.unloads => {
                return Err(Trouble::NotUnloaded);
            }
            Step::Return => {
                self.is_loaded = true;
                self.is_routed = open.is_routed;
                self.restored = None;
                self.loaded = Some(open.text);
                self.policy_loaded = open.policy;
                self.past.has_ours = true;
            }
            Step::Tell => {
                self.written();
                self.past = Past {
                    has_ours: true,
                    is_layered: true,
                    seen: (!open.is_disturbed).then_some(open.text),
                };
            }
        }
        Ok(())
    }

    fn written(&mut self) {
        if self.storage == Storage::Unwritten {
            self.storage = Storage::Written;
        }
    }

    fn disturb(&mut self) {
        if let Some(open) = &mut self.open {
            open.is_disturbed = true;
        }
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
