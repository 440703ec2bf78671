//! The developer instructions of threads: written where a thread is opened, renewed before a turn.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::base::ids::ThreadId;
use crate::base::limits::{MAX_ERRANDS, MAX_POLICY_BYTES};
use crate::base::reason::Reason;
use crate::context::orders::{Orders, Parts, Text};
use crate::context::snapshot::Section;
use crate::context::turn_kind::TurnKind;
use crate::session::config_edit;
use crate::session::intercept::{Ask, ClientVerdict, Patience, Request, Then};
use crate::session::ledger::{Need, Told};
use crate::session::machine::{Denial, Meaning, Session};
use crate::session::methods::{INSTRUCTIONS_MEMBER, ThreadWay};
use crate::session::opening::{KeptConfig, Opening, Places};
use crate::session::own::OwnId;
use crate::session::registry::Thread;
use crate::session::renewal::{Settings, Step, Trouble};
use crate::session::threads::Route;
use crate::session::turns::Ready;
use crate::wire::edit::{Edit, apply};
use crate::wire::envelope::{Envelope, member, member_text};

/// A turn that waits until its thread's developer instructions are the current ones.
#[derive(Debug, PartialEq)]
pub(super) struct Renewing {
    ready: Ready,
    text: Text,
    steps: VecDeque<Step>,
    /// The step that was asked last.
    step: Step,
    own: OwnId,
    /// The thread's settings before it was left.
    before: Option<Settings>,
    /// Why the turn is refused, once the client is subscribed again.
    failed: Option<Trouble>,
}

/// A request of our own that nobody waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errand {
    own: OwnId,
    /// The request, a whole line.
    pub question: Bytes,
}

impl Session {
    /// What the client asks for that a renewal must give again.
    pub(super) fn opening(&self, line: &Bytes, route: &Route) -> Opening {
        let params = &route.thread.request.params;
        let way = route.thread.way;
        let source = member_text(line, params, &["threadId"])
            .and_then(ThreadId::new)
            .filter(|_| way != ThreadWay::Start);
        let known = source
            .as_ref()
            .filter(|_| way == ThreadWay::Resume)
            .and_then(|id| self.ledger.find(id.as_str()));
        let own: Option<Arc<str>> = own_instructions(line, params).map(Arc::from);
        let base = own
            .clone()
            .or_else(|| known.and_then(|it| it.base.clone()))
            .or_else(|| route.base.clone());
        let raw = |name: &str| {
            let value = member(line, params, &[name])?;
            line.get(value).filter(|value| *value != b"null")
        };
        let kept = |name| match KeptConfig::copy(raw(name)) {
            KeptConfig::Kept(value) => Some((name, value)),
            KeptConfig::Absent | KeptConfig::TooLarge => None,
        };
        let policy = route.thread.policy.clone();
        Opening {
            way,
            is_partial: ["lastTurnId", "beforeTurnId"]
                .iter()
                .any(|name| raw(name).is_some()),
            base,
            own,
            config: KeptConfig::copy(raw("config")),
            kept: ["modelProvider", "personality"]
                .into_iter()
                .filter_map(kept)
                .collect(),
            policy: policy.or_else(|| known.and_then(|it| it.policy.clone())),
            is_without_files: places(line, params).is_some_and(Places::are_elsewhere),
            is_routed: false,
            source,
        }
    }

    /// Plans the edit that gives a thread its route.
    ///
    /// The route makes codex load a thread anew that it would have kept as it was: then the thread
    /// is given its old `config` again, where the client brings none.
    pub(super) fn route_edit(
        &self,
        line: &[u8],
        params: &Range<usize>,
        opening: &mut Opening,
    ) -> Option<Edit> {
        let url = &self.config.base_url;
        let known = opening.source.as_ref();
        let known = known.and_then(|id| self.ledger.find(id.as_str()));
        if let Some(known) = known
            && opening.way == ThreadWay::Resume
            && opening.config == KeptConfig::Absent
            && let Some(old) = known.routed_config()
            && let Some(edit) = config_edit::old_config(line, params, old, url)
        {
            opening.config = KeptConfig::Kept(old.clone());
            return Some(edit);
        }
        config_edit::route(line, params, url)
    }

    /// The developer instructions that a thread is opened with.
    pub(super) fn opening_text(route: &Route, opening: &Opening, section: Option<&str>) -> Text {
        let is_routed = section.is_none();
        let kind = route.thread.habits.kind;
        let agents = agents(&route.orders, kind, is_routed, opening.is_without_files);
        let policy = opening.policy.as_deref();
        Text::new(Parts {
            base: opening.base.as_deref(),
            policy: policy.or(route.orders.policy.as_deref()),
            agents,
            section,
        })
    }

    /// Refuses developer instructions of the client's own that the relay's must go behind and can't
    /// keep.
    pub(super) fn measure_base(opening: &Opening, text: &Text) -> Result<(), Denial> {
        let bytes = opening.base.as_ref().map_or(0, |base| base.len());
        if !text.is_ours || bytes <= MAX_POLICY_BYTES {
            return Ok(());
        }
        let name = INSTRUCTIONS_MEMBER.to_owned();
        Err(Denial::ContextTooLarge {
            bytes,
            limit: MAX_POLICY_BYTES,
            sections: vec![Section { name, bytes }],
        })
    }

    /// Plans the edit that writes `text` into the params of a thread method, where it is any of
    /// the relay's business.
    pub(super) fn instructions_edit(
        &self,
        line: &Bytes,
        route: &Route,
        (opening, text): (&Opening, &Text),
        is_second: bool,
    ) -> Option<Edit> {
        let source = opening.source.as_ref();
        let known = source.and_then(|id| self.ledger.find(id.as_str()));
        let had_ours = opening.way == ThreadWay::Resume && known.is_some_and(Told::has_ours);
        let params = &route.thread.request.params;
        if !text.is_ours && !had_ours {
            return None;
        }
        config_edit::developer_instructions(line, params, &text.whole, is_second)
    }

    /// Renews the developer instructions of the turn's thread where that is due.
    pub(super) fn settle_orders(
        &mut self,
        line: &Bytes,
        ready: Ready,
        orders: &Orders,
    ) -> ClientVerdict {
        let thread = ready.turn.thread.as_str();
        let known = self.registry.find(thread);
        // What is put into a running turn would stand in the middle of it.
        if known.is_none_or(Thread::is_running) {
            return self.deliver(line, ready);
        }
        // Codex keeps the environments of a turn for those that follow.
        if let Some(places) = places(line, &ready.turn.request.params) {
            self.ledger.set_files(thread, !places.are_elsewhere());
        }
        let (Some(known), Some(told)) = (known, self.ledger.find(thread)) else {
            return self.deliver(line, ready);
        };
        let is_without_files = told.is_without_files;
        let section = (!known.routed).then(|| ready.prepared.snapshot.text());
        let agents = agents(orders, ready.wish.kind, known.routed, is_without_files);
        let text = Text::new(Parts {
            base: told.base.as_deref(),
            policy: told.policy.as_deref().or(orders.policy.as_deref()),
            agents,
            section,
        });
        let is_subscribed = known.is_subscribed();
        let has_too_much = told.config == KeptConfig::TooLarge;
        match self.ledger.need(thread, &text, known.routed, is_subscribed) {
            Need::Nothing => self.deliver(line, ready),
            Need::Refuse(trouble) => self.refuse_renewal(ready, trouble),
            Need::Steps(steps) if has_too_much && steps.contains(&Step::Return) => {
                self.refuse_renewal(ready, Trouble::TooLarge)
            }
            Need::Steps(steps) => self.next_step(line, ready, text, (steps.into(), None)),
        }
    }

    fn next_step(
        &mut self,
        line: &Bytes,
        ready: Ready,
        text: Text,
        (mut steps, before): (VecDeque<Step>, Option<Settings>),
    ) -> ClientVerdict {
        let Some(step) = steps.pop_front() else {
            return self.deliver(line, ready);
        };
        let (own, question) = self.ask_step(&ready.turn.thread, step, &text);
        let patience = match step {
            Step::Look | Step::Return => Patience::Renewal,
            Step::Leave | Step::Part | Step::Tell => Patience::Long,
        };
        let renewing = Renewing {
            ready,
            text,
            steps,
            step,
            own,
            before,
            failed: None,
        };
        ClientVerdict::Ask(Ask {
            question,
            id: own,
            patience,
            then: Then::Renew(Box::new(renewing)),
        })
    }

    fn ask_step(&mut self, thread: &ThreadId, step: Step, text: &Text) -> (OwnId, Bytes) {
        let told = self.ledger.find(thread.as_str());
        let params = told.map(|told| step.params(thread.as_str(), told, text));
        let mut params = Bytes::from(params.unwrap_or_default());
        let is_routed = self
            .registry
            .find(thread.as_str())
            .is_some_and(|it| it.routed);
        if step == Step::Return && is_routed {
            let edit = config_edit::route(&params, &(0..params.len()), &self.config.base_url);
            params = apply(&params, edit.into_iter().collect());
        }
        let (own, question) = self.own.ask_raw(step.method(), &params);
        self.ledger
            .asked(thread.as_str(), own, step, (text, is_routed));
        (own, question)
    }

    /// Goes on with a renewal once codex has answered its last step.
    pub(super) fn on_step_answer(
        &mut self,
        line: &Bytes,
        renewing: Renewing,
        answer: Option<&Bytes>,
    ) -> ClientVerdict {
        let Renewing {
            mut ready,
            text,
            steps,
            step,
            own,
            mut before,
            failed,
        } = renewing;
        let thread = ready.turn.thread.clone();
        if let Some(trouble) = failed {
            return self.refuse_renewal(ready, trouble);
        }
        if let Err(trouble) = self.ledger.outcome(thread.as_str(), own) {
            let is_left = (step, trouble) == (Step::Return, Trouble::Refused);
            if is_left && self.ledger.is_loaded(thread.as_str()) {
                return self.rejoin(ready, text, trouble);
            }
            return self.refuse_renewal(ready, trouble);
        }
        let told = self.ledger.find(thread.as_str());
        let told = told.and_then(|told| told.set.settings.clone());
        if let (Step::Look, Some(answer)) = (step, answer) {
            before = Some(Settings::read(answer, told.as_ref()));
        }
        if let (Step::Return, Some(answer), Some(before)) = (step, answer, &before) {
            let now = Settings::read(answer, None);
            ready.turn.lost = before.lost(&now, self.client.experimental_api);
        }
        self.next_step(line, ready, text, (steps, before))
    }

    pub(super) fn on_compact(
        &mut self,
        line: &Bytes,
        Request { id, params }: Request,
    ) -> ClientVerdict {
        if let Some(thread) = member_text(line, &params, &["threadId"]) {
            self.ledger.compaction_asked(&thread);
        }
        let _ = self.pending.try_note(id, Meaning::Other);
        ClientVerdict::Pass
    }

    /// Notes a compaction; what must be told again at once is for the driver to send.
    pub(super) fn on_compaction(&mut self, thread: &str) {
        let Some(text) = self.ledger.compacted(thread) else {
            return;
        };
        let (Some(id), true) = (
            ThreadId::new(thread),
            self.registry.find(thread).is_some_and(Thread::is_running),
        ) else {
            return;
        };
        let (own, question) = self.ask_step(&id, Step::Tell, &text);
        self.ledger.sent_off(thread);
        if self.errands_asked.len() >= MAX_ERRANDS {
            self.errands_asked.remove(0);
        }
        self.errands_asked.push(own);
        self.errands.push(Errand { own, question });
    }

    /// Whether nobody waits for the answer to a request of our own.
    pub(super) fn is_errand(&mut self, own: OwnId) -> bool {
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

    /// Subscribes the client again to a thread that was left and not loaded anew, then refuses.
    fn rejoin(&mut self, ready: Ready, text: Text, trouble: Trouble) -> ClientVerdict {
        let step = Step::Look;
        let (own, question) = self.ask_step(&ready.turn.thread, step, &text);
        let renewing = Renewing {
            ready,
            text,
            steps: VecDeque::new(),
            step,
            own,
            before: None,
            failed: Some(trouble),
        };
        ClientVerdict::Ask(Ask {
            question,
            id: own,
            patience: Patience::Renewal,
            then: Then::Renew(Box::new(renewing)),
        })
    }

    fn refuse_renewal(&mut self, ready: Ready, trouble: Trouble) -> ClientVerdict {
        let thread = ready.turn.thread.as_str();
        tracing::warn!(
            thread,
            "turn refused, its developer instructions can't be renewed: {trouble}"
        );
        self.ledger.done(thread);
        let id = ready.turn.thread.clone();
        let reason = Reason::PolicyChangeUnsupported.code();
        self.warn(Some(id), reason, trouble.to_string());
        self.refuse(ready.turn.request.id, Denial::PolicyChange(trouble))
    }
}

/// The copy of AGENTS.md, where the thread needs one.
fn agents(
    orders: &Orders,
    kind: TurnKind,
    is_routed: bool,
    is_without_files: bool,
) -> Option<&str> {
    let is_wanted = match kind {
        TurnKind::User | TurnKind::Heartbeat | TurnKind::Cron => true,
        // On a route the thread stays as it is.
        TurnKind::CronLightweight => is_routed,
        TurnKind::MessageOnly | TurnKind::ToolsDisabled | TurnKind::RingZero => false,
    };
    let agents = orders.agents.as_ref().filter(|_| is_wanted)?;
    (is_without_files || !agents.is_discovered).then_some(&*agents.text)
}

/// The developer instructions that the client itself gives: its own member beats its `config`.
pub(super) fn own_instructions(line: &[u8], params: &Range<usize>) -> Option<String> {
    member_text(line, params, &[INSTRUCTIONS_MEMBER])
        .or_else(|| member_text(line, params, &["config", "developer_instructions"]))
}

/// Where params say that commands run, if they say it.
fn places(line: &[u8], params: &Range<usize>) -> Option<Places> {
    Places::read(line, &member(line, params, &["environments"])?)
}

/// The developer instructions of the user's configuration, in codex's answer to `config/read`.
pub(super) fn configured_instructions(answer: &Bytes) -> Option<Arc<str>> {
    let envelope = Envelope::read(answer).filter(|envelope| !envelope.is_error)?;
    let path = ["config", "developer_instructions"];
    member_text(answer, &envelope.result?, &path).map(Arc::from)
}
