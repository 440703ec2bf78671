//! The developer instructions of threads: written where a thread is opened, renewed before a turn.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::base::ids::ThreadId;
use crate::base::limits::MAX_POLICY_BYTES;
use crate::context::orders::{Parts, Text};
use crate::context::snapshot::Section;
use crate::session::instructions::documents::{self, Documents, profile_of_turn};
use crate::session::instructions::need::{Asked, Need};
use crate::session::instructions::opening::{Base, KeptConfig, Opening};
use crate::session::instructions::places::Places;
use crate::session::instructions::renewal::{Permissions, Settings, Step, Trouble};
use crate::session::instructions::told::{Owed, Told};
use crate::session::intercept::{Ask, ClientVerdict, Patience, Then};
use crate::session::machine::{Denial, Session};
use crate::session::methods::{INSTRUCTIONS_MEMBER, ThreadWay};
use crate::session::own::OwnId;
use crate::session::parent::threads::Route;
use crate::session::parent::turn::{Ready, Starter};
use crate::session::route::config_edit;
use crate::wire::edit::{Edit, apply};
use crate::wire::envelope::{Envelope, member, member_text};
use crate::wire::known::Known;
use crate::wire::scan;

/// A turn that waits until its thread's developer instructions are the current ones.
#[derive(Debug, PartialEq)]
pub(in crate::session) struct Renewing {
    pub(super) ready: Ready,
    pub(super) text: Text,
    pub(super) steps: VecDeque<Step>,
    /// The step that was asked last.
    pub(super) step: Step,
    pub(super) own: OwnId,
    /// The thread's settings before it was left.
    pub(super) before: Option<Settings>,
    /// Why the turn is refused, once the client is subscribed again.
    pub(super) failed: Option<(Trouble, Option<String>)>,
}

impl Session {
    /// What the client asks for that a renewal must give again.
    pub(in crate::session) fn opening(&self, line: &Bytes, route: &Route) -> Opening {
        let params = &route.thread.request.params;
        let way = route.thread.way;
        let source = member_text(line, params, &["threadId"])
            .and_then(ThreadId::new)
            .filter(|_| way != ThreadWay::Start);
        let known = source
            .as_ref()
            .filter(|_| way == ThreadWay::Resume)
            .and_then(|id| self.ledger.find(id.as_str()));
        let said = &route.thread.request.said;
        let own = said.own.clone();
        let base = own
            .clone()
            .or_else(|| known.and_then(|it| it.base.clone()).map(Base::Kept))
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
        // Those of a start or a fork are kept by codex.
        let instructions = raw(BASE_MEMBER).filter(|_| way == ThreadWay::Resume);
        let instructions = KeptConfig::copy(instructions);
        let mut config = KeptConfig::copy(raw("config"));
        let mut members: Vec<_> = ["modelProvider", "personality"]
            .into_iter()
            .filter_map(kept)
            .collect();
        match instructions {
            KeptConfig::Kept(instructions) => members.push((BASE_MEMBER, instructions)),
            KeptConfig::TooLarge => config = KeptConfig::TooLarge,
            KeptConfig::Absent => {}
        }
        Opening {
            way,
            is_partial: ["lastTurnId", "beforeTurnId"]
                .iter()
                .any(|name| raw(name).is_some()),
            base,
            own,
            config,
            kept: members,
            policy: policy.or_else(|| known.and_then(|it| it.policy.clone())),
            places: route.thread.request.places_of_thread(way).cloned(),
            is_routed: false,
            has_document: route.orders.has_document,
            source,
        }
    }

    /// Plans the edit that gives a thread its route.
    ///
    /// The route makes codex load a thread anew that it would have kept as it was: then the thread
    /// is given its old `config` again, where the client brings none.
    pub(in crate::session) fn route_edit(
        &self,
        line: &[u8],
        params: &Known,
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
    pub(in crate::session) fn opening_text(
        &self,
        route: &Route,
        opening: &Opening,
        section: Option<&str>,
    ) -> Text {
        let is_routed = section.is_none();
        let kind = route.thread.habits.kind;
        let usual = self.ledger.usual_are_elsewhere();
        let places = opening.places.as_ref();
        let is_elsewhere = places.map_or(usual, Places::are_elsewhere);
        let is_shown = route.orders.agents.as_ref().is_some_and(|agents| {
            // Of a profile that a client names here codex tells at once what it shows.
            agents.is_discovered && !is_elsewhere && route.has_room != Some(false)
        });
        let agents = documents::copy(&route.orders, kind, is_routed, is_shown);
        let policy = opening.policy.as_deref();
        Text::new(Parts {
            base: opening.base.as_ref().and_then(Base::text),
            policy: policy.or(route.orders.policy.as_deref()),
            agents,
            section,
        })
    }

    /// Refuses developer instructions of the client's own that the relay's must go behind and can't
    /// keep.
    pub(in crate::session) fn measure_base(opening: &Opening, text: &Text) -> Result<(), Denial> {
        let bytes = match opening.base {
            Some(Base::TooLarge(bytes)) if text.is_ours => bytes,
            Some(Base::TooLarge(_) | Base::Kept(_)) | None => return Ok(()),
        };
        let name = INSTRUCTIONS_MEMBER.to_owned();
        Err(Denial::ContextTooLarge {
            bytes,
            limit: MAX_POLICY_BYTES,
            sections: vec![Section { name, bytes }],
        })
    }

    /// Plans the edit that writes `text` into the params of a thread method, where it is any of
    /// the relay's business.
    pub(in crate::session) fn instructions_edit(
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
        // What isn't kept stays as the client has it.
        let is_kept = !matches!(opening.base, Some(Base::TooLarge(_)));
        if !(text.is_ours || had_ours && is_kept) {
            return None;
        }
        config_edit::developer_instructions(line, params, &text.whole, is_second)
    }

    /// Renews the developer instructions of the turn's thread where that is due.
    pub(in crate::session) fn settle_orders(
        &mut self,
        line: &Bytes,
        mut ready: Ready,
    ) -> ClientVerdict {
        let thread = ready.turn.thread.as_str();
        if let Some(told) = self.ledger.find(thread) {
            // A turn before this one was to set it again, and didn't start.
            let owed = told.owed.clone();
            ready.turn.renewed.loses(owed.lost);
            ready.turn.renewed.place = ready.turn.renewed.place.or(owed.place);
        }
        // What is put into a running turn would stand in the middle of it.
        if self.registry.find(thread).is_none() || self.is_running(thread) {
            return self.deliver(line, ready);
        }
        if !ready.turn.renewed.has_counted {
            // What was true before another turn need not be so any more.
            self.ledger.set_busy(thread, false);
        }
        let (Some(known), Some(told)) = (self.registry.find(thread), self.ledger.find(thread))
        else {
            return self.deliver(line, ready);
        };
        let now = told.documents.profile.as_ref();
        ready.turn.renewed.profile = profile_of_turn(line, &ready.turn.request.params, now);
        let is_shown = shows(line, &ready, told);
        // Codex tells it when it loads the thread, once for a turn.
        let must_ask = is_shown.is_none() && !ready.turn.renewed.is_checked;
        // A turn that codex starts takes the way that the thread is on.
        let is_routed = match ready.turn.starter {
            Starter::Client => known.routed,
            Starter::Codex => told.is_routed(),
        };
        let text = Self::text_of_turn(&ready, told, is_routed, is_shown);
        let has_too_much = told.has_too_much();
        let asked = Asked {
            is_routed,
            is_subscribed: known.is_subscribed(),
            starter: ready.turn.starter,
            must_ask,
        };
        let need = self.ledger.need(thread, &text, asked);
        match need {
            Need::Nothing => self.deliver(line, ready),
            Need::Refuse(trouble) => self.refuse_renewal(ready, trouble, None),
            Need::Steps(steps) if self.must_count(&ready, &steps) => self.ask_for_commands(ready),
            Need::Steps(steps) if has_too_much && steps.contains(&Step::Return) => {
                self.refuse_renewal(ready, Trouble::TooLarge, None)
            }
            Need::Steps(steps) => self.next_step(line, ready, text, (steps.into(), None)),
        }
    }

    /// Whether codex must say first whether commands run that these steps would end.
    fn must_count(&self, ready: &Ready, steps: &[Step]) -> bool {
        steps.contains(&Step::Leave)
            && self.client.experimental_api
            && !ready.turn.renewed.has_counted
    }

    /// The developer instructions that the thread of a turn needs.
    fn text_of_turn(ready: &Ready, told: &Told, is_routed: bool, is_shown: Option<bool>) -> Text {
        let (orders, wish) = (&ready.orders, &ready.wish);
        let section = (!is_routed).then(|| ready.prepared.snapshot.text());
        Text::new(Parts {
            base: told.base.as_deref(),
            policy: told.policy.as_deref().or(orders.policy.as_deref()),
            agents: documents::copy(orders, wish.kind, is_routed, is_shown == Some(true)),
            section,
        })
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
        let profile = ready.turn.renewed.profile.clone();
        let profile = profile.filter(|_| self.client.experimental_api);
        let permissions = Permissions {
            profile: profile.as_deref(),
            mode: before.as_ref().and_then(Settings::mode),
        };
        let (own, question) = self.ask_step(&ready.turn.thread, step, (&text, permissions));
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
            thread: Some(renewing.ready.turn.thread.clone()),
            then: Then::Renew(Box::new(renewing)),
        })
    }

    pub(in crate::session) fn ask_step(
        &mut self,
        thread: &ThreadId,
        step: Step,
        (text, permissions): (&Text, Permissions<'_>),
    ) -> (OwnId, Bytes) {
        let told = self.ledger.find(thread.as_str());
        let params = told.map(|told| step.params(thread.as_str(), told, (text, permissions)));
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
    pub(in crate::session) fn on_step_answer(
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
        if let Some((trouble, said)) = failed {
            return self.refuse_renewal(ready, trouble, said);
        }
        if let Err(trouble) = self.ledger.outcome(thread.as_str(), own) {
            let said = answer.and_then(|answer| self.said(answer));
            let is_left = (step, trouble) == (Step::Return, Trouble::Refused);
            if is_left && self.ledger.is_loaded(thread.as_str()) {
                return self.rejoin(ready, text, (trouble, said));
            }
            return self.refuse_renewal(ready, trouble, said);
        }
        let told = self.ledger.find(thread.as_str());
        let told = told.and_then(|told| told.set.settings.clone());
        if let (Step::Look, Some(answer)) = (step, answer) {
            if self.is_at_work(&thread, answer) {
                return self.settle_orders(line, ready);
            }
            before = Some(Settings::read(answer, told.as_ref()));
        }
        if let (Step::Return, Some(answer)) = (step, answer) {
            let now = Settings::read(answer, None);
            let told = self.ledger.find(thread.as_str());
            let policy = told.and_then(Told::own_policy);
            let is_experimental = self.client.experimental_api;
            let lost = before
                .as_ref()
                .map(|before| before.lost(&now, policy.as_ref(), is_experimental));
            ready.turn.renewed.loses(lost.unwrap_or_default());
            let before = self.place_after_return(answer, thread.as_str());
            let told = self.ledger.find(thread.as_str());
            let place = told.and_then(|told| told.owed.place.clone()).or(before);
            // The turn takes it there again.
            let own = ready.turn.renewed.place.take();
            ready.turn.renewed.place = own.or_else(|| place.clone());
            let lost = ready.turn.renewed.lost().to_vec();
            self.ledger.owe(thread.as_str(), Owed { lost, place });
            if self.must_tell_another(line, &mut ready, &text, answer) {
                return self.settle_orders(line, ready);
            }
        }
        self.next_step(line, ready, text, (steps, before))
    }

    /// Whether a thread that was loaded anew needs another text than the one that it was loaded with:
    /// codex has told just now what it shows. It does so once for each turn.
    fn must_tell_another(
        &mut self,
        line: &Bytes,
        ready: &mut Ready,
        text: &Text,
        answer: &Bytes,
    ) -> bool {
        let result = Envelope::read(answer).and_then(|it| it.result);
        let Some(result) = result else {
            return false;
        };
        let thread = ready.turn.thread.as_str();
        let mut documents = Documents::default();
        documents.learn(answer, &result, ready.orders.has_document);
        if let Some(agents) = &ready.orders.agents {
            // Asked once and not told, it isn't asked at every turn.
            let profile = ready.turn.renewed.profile.as_ref();
            documents.suppose(agents, ready.wish.folder.as_deref(), profile);
        }
        self.ledger.listed(thread, documents);
        let is_routed = self.registry.find(thread).is_some_and(|it| it.routed);
        let is_first = !std::mem::replace(&mut ready.turn.renewed.is_checked, true);
        let told = self.ledger.find(thread).filter(|_| is_first);
        told.is_some_and(|told| {
            let is_shown = shows(line, ready, told);
            Self::text_of_turn(ready, told, is_routed, is_shown) != *text
        })
    }
}

/// The instructions that codex begins with in place of its own.
const BASE_MEMBER: &str = "baseInstructions";

/// Whether codex itself shows the workspace's document to a turn; none where it has to be asked.
fn shows(line: &Bytes, ready: &Ready, told: &Told) -> Option<bool> {
    let Some(agents) = &ready.orders.agents else {
        return Some(true);
    };
    let place = ready.turn.renewed.place.as_ref();
    if place.map_or(told.is_without_files, |it| it.is_without_files) {
        return Some(false);
    }
    let folder = ready.wish.folder.as_deref();
    let profile = ready.turn.renewed.profile.as_deref();
    let shows = told.documents.shows(agents, folder, profile);
    // In a folder that the turn itself goes to nobody has looked yet.
    let request = &ready.turn.request;
    let own = member(line, &request.params, &["cwd"]);
    let is_moving =
        request.said.places.is_some() || own.is_some_and(|own| !scan::is_null(line, &own));
    let cannot_ask = told.is_ephemeral()
        || told.must_stay_loaded()
        || told.has_too_much()
        || ready.turn.starter == Starter::Codex;
    shows.or_else(|| (is_moving || cannot_ask).then_some(agents.is_discovered))
}

/// The developer instructions of the user's configuration, in codex's answer to `config/read`.
pub(in crate::session) fn configured_instructions(answer: &Bytes) -> Option<Base> {
    let envelope = Envelope::read(answer).filter(|envelope| !envelope.is_error)?;
    let path = ["config", "developer_instructions"];
    Base::read(answer, &member(answer, &envelope.result?, &path)?)
}
