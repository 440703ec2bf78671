//! What is known of one thread: what stands in its history, what it was loaded with, and what is open.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::base::limits::MAX_KEPT_CONFIG_BYTES;
use crate::context::digest::Digest;
use crate::context::orders::Text;
use crate::session::instructions::documents::Documents;
use crate::session::instructions::opening::{Base, KeptConfig, Opened, Opening};
use crate::session::instructions::places::Whereabouts;
use crate::session::instructions::renewal::{POLICY, PROFILE, Step, Trouble};
use crate::session::instructions::since::Since;
use crate::session::instructions::strays::Strays;
use crate::session::instructions::work::Work;
use crate::session::methods::ThreadWay;
use crate::session::own::OwnId;
use crate::session::route::eligibility::Ineligible;

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
    /// Whether the client has chosen its environments.
    pub has_chosen: bool,
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
    /// A turn of the client's is on its way, and codex hasn't said that it has started.
    pub(super) has_sent_turn: bool,
    /// Turns that may start without the client's asking: it isn't unloaded.
    pub(super) work: Work,
    /// The way that it is to go once it can be loaded anew, and what speaks against a route.
    pub(super) put_off: Option<(bool, Option<Ineligible>)>,
    /// How often codex has unloaded it.
    pub(super) unloads: u64,
    /// A write that codex hasn't answered for.
    pub(super) open: Option<Open>,
    /// Notifications that a resume of our own brings and that the client didn't ask for.
    pub(super) strays: Strays,
    /// What a thread was told last that couldn't be loaded with it, to be told again after a compaction.
    pub(super) restored: Option<Arc<Text>>,
    /// What a renewal has lost of its settings, until a turn has set it again.
    pub(super) owed: Owed,
    /// The turns that began since its developer instructions were last said in its history.
    pub(super) since: Since,
    /// Compactions that the client asked for.
    pub(super) compactions: u8,
    /// Where codex wrote its history down, while nobody has looked whether there is a section of
    /// ours in it.
    pub(super) history: Option<PathBuf>,
}

/// What a thread is set to, as far as codex told.
#[derive(Clone, Debug, Default)]
pub struct Set {
    /// What codex told last, as it stands.
    pub settings: Option<Bytes>,
    /// The policy that the client set last in place of a mode or a profile: codex tells another, with
    /// what follows from the thread's place among its roots.
    pub policy: KeptConfig,
    /// Whether its collaboration mode is the one of a heartbeat.
    pub is_in_heartbeat: bool,
}

/// Settings that a renewal has lost, and that no turn has set again so far.
#[derive(Clone, Debug, Default)]
pub struct Owed {
    /// Members of `turn/start`.
    pub lost: Vec<(String, Value)>,
    /// Where the thread was.
    pub place: Option<Whereabouts>,
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
    pub(super) is_layered: bool,
    /// There is none: the next turn brings the one that is loaded then.
    pub(super) is_untold: bool,
    /// The last one, where that is proven.
    pub(super) seen: Option<Digest>,
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, not states"
)]
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) own: OwnId,
    pub(super) step: Step,
    pub(super) text: Digest,
    pub(super) policy: Option<Digest>,
    pub(super) is_routed: bool,
    /// Codex had the thread in its memory before the steps.
    pub(super) was_loaded: bool,
    pub(super) unloads: u64,
    /// The history has lost something since.
    pub(super) is_disturbed: bool,
    /// A turn waits for it; if not, codex has it before the next turn.
    pub(super) is_awaited: bool,
    pub(super) outcome: Option<Result<(), Trouble>>,
}

impl Past {
    /// That of a thread that codex opens with `text`, where it was there `before`.
    pub(super) fn of(opening: &Opening, text: &Text, before: Option<Self>) -> Self {
        let is_new = opening.way == ThreadWay::Start;
        let is_resume = opening.way == ThreadWay::Resume;
        let is_untold = is_resume && before.is_some_and(|it| it.is_untold);
        Self {
            has_ours: text.is_ours || before.is_some_and(|it| it.has_ours),
            is_layered: !is_new,
            is_untold,
            seen: match before {
                _ if is_untold => Some(text.digest),
                Some(before) if !opening.is_partial => before.seen,
                Some(_) => None,
                None => is_new.then_some(text.digest),
            },
        }
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

    /// Whether it was loaded with the private route.
    pub fn is_routed(&self) -> bool {
        self.is_routed
    }

    /// The policy that the client set last.
    pub fn own_policy(&self) -> Option<Value> {
        match &self.set.policy {
            KeptConfig::Kept(policy) => serde_json::from_slice(policy).ok(),
            KeptConfig::Absent | KeptConfig::TooLarge => None,
        }
    }

    /// Whether something of it is too large to be kept, so that it can't be given again.
    pub fn has_too_much(&self) -> bool {
        let kept = [&self.config, &self.set.policy];
        kept.contains(&&KeptConfig::TooLarge)
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
    pub(super) fn rejoined(&mut self, opening: Opening, said: Opened) {
        // What it lists is of its last turn, whatever it was set to since.
        self.documents.profile = said.documents.profile;
        if let Some(places) = said.places {
            self.is_without_files = places.are_elsewhere();
        }
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

    /// Notes what is set; a policy of `null` is too large to be kept.
    pub(super) fn sets(&mut self, mut sets: Map<String, Value>) {
        if sets.remove(PROFILE).is_some() {
            self.set.policy = KeptConfig::Absent;
        }
        if let Some(policy) = sets.remove(POLICY) {
            self.set.policy = if policy.is_null() {
                KeptConfig::TooLarge
            } else {
                KeptConfig::copy(Some(policy.to_string().as_bytes()))
            };
        }
        if sets.is_empty() {
            return;
        }
        let settings = self.set.settings.as_ref();
        let settings = settings.and_then(|it| serde_json::from_slice(it).ok());
        let mut settings: Map<String, Value> = settings.unwrap_or_default();
        settings.extend(sets);
        let settings = Value::Object(settings).to_string();
        if settings.len() <= MAX_KEPT_CONFIG_BYTES {
            self.set.settings = Some(settings.into());
        }
    }

    pub(super) fn listed(&mut self, documents: Documents) {
        let older = std::mem::replace(&mut self.documents, documents);
        self.documents.keep_older(older);
    }

    pub(super) fn settle(&mut self, open: &Open, is_ok: bool) -> Result<(), Trouble> {
        if !is_ok {
            return Err(Trouble::Refused);
        }
        match open.step {
            Step::Look | Step::Leave | Step::Part => {}
            Step::Return if open.was_loaded && self.unloads == open.unloads => {
                return Err(Trouble::NotUnloaded);
            }
            Step::Return => {
                self.is_loaded = true;
                self.is_routed = open.is_routed;
                self.restored = None;
                self.loaded = Some(open.text);
                self.policy_loaded = open.policy;
                self.past.has_ours = true;
                if self.past.is_untold {
                    self.past.seen = self.loaded;
                    // An older one stands before the compaction.
                    self.past.is_layered = true;
                }
            }
            Step::Tell => {
                self.written();
                self.since.said();
                self.past = Past {
                    has_ours: true,
                    is_layered: true,
                    is_untold: false,
                    seen: (!open.is_disturbed).then_some(open.text),
                };
            }
        }
        Ok(())
    }

    pub(super) fn written(&mut self) {
        if self.storage == Storage::Unwritten {
            self.storage = Storage::Written;
        }
    }

    /// Notes that its history is rewritten: the model sees what is loaded.
    pub(super) fn shows_loaded(&mut self) {
        self.past.seen = self.loaded;
        self.since.said();
        self.disturb();
    }

    pub(super) fn disturb(&mut self) {
        if let Some(open) = &mut self.open {
            open.is_disturbed = true;
        }
    }
}
