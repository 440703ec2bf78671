//! Codex to client: what each line teaches, and whether the client sees it.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::base::ids::{RequestId, ThreadId, TurnId};
use crate::base::limits::MAX_KEPT_CONFIG_BYTES;
use crate::session::instructions::opening::Opened;
use crate::session::instructions::strays::Strays;
use crate::session::machine::{Meaning, Session};
use crate::session::methods::{self, CodexNotification, CompactionIs};
use crate::session::own::OwnAnswer;
use crate::session::parent::admitted::Ticket;
use crate::session::parent::tally::Beginning;
use crate::session::reading::CodexLine;
use crate::session::route::eligibility::{AccountKind, Ineligible};
use crate::session::version::{CodexVersion, Support};
use crate::wire::envelope::{error_line, member, member_text};
use crate::wire::known::Known;

/// Whether the client sees a line of codex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodexVerdict {
    /// The relay needed it; the client opted out of it.
    Keep,
    /// It answers a request of our own: for the driver that waits for it, not for the client.
    Own(OwnAnswer),
    /// It goes on to the client.
    Pass,
    /// The program is one that the relay must not serve: the client gets this line in place of its
    /// own, and the session ends.
    TooOld(Bytes),
}

impl Session {
    /// Learns from a line of codex. Lines that can't be read pass.
    pub fn on_codex_line(&mut self, line: &Bytes) -> CodexVerdict {
        self.on_codex(line, CodexLine::read(line))
    }

    /// Learns from a line of codex that was read.
    pub fn on_codex(&mut self, line: &Bytes, read: Option<CodexLine>) -> CodexVerdict {
        let Some(read) = read else {
            return CodexVerdict::Pass;
        };
        let envelope = &read.envelope;
        match (&envelope.method, &envelope.id) {
            (None, Some(id)) => {
                if let Some(id) = self.own.recognize(id) {
                    // Noted here and not where it is waited for: what codex says behind it, a
                    // compaction perhaps, comes later.
                    self.delivery.answered(id, !envelope.is_error);
                    self.ledger.answered(id, !envelope.is_error);
                    self.learn_tools(id, line, envelope);
                    if self.is_errand(id) {
                        return CodexVerdict::Keep;
                    }
                    let line = line.clone();
                    return CodexVerdict::Own(OwnAnswer { id, line });
                }
                match self.pending.answered(id) {
                    Some(Meaning::Initialize) => self.on_greeting(line, &read, id),
                    Some(meaning) => {
                        self.on_answer(line, &read, meaning);
                        CodexVerdict::Pass
                    }
                    None => CodexVerdict::Pass,
                }
            }
            (Some(method), None) => self.on_notification(line, &read, method),
            // Codex's own requests number from zero in a space of their own.
            (Some(_), Some(_)) | (None, None) => CodexVerdict::Pass,
        }
    }

    /// Learns from codex's answer to `initialize` which program this is.
    fn on_greeting(&mut self, line: &Bytes, read: &CodexLine, id: &RequestId) -> CodexVerdict {
        let Some(result) = &read.result else {
            return CodexVerdict::Pass;
        };
        self.client.initialized = true;
        // A program that says nothing of itself gets the benefit of the doubt.
        let Some(agent) = member_text(line, result, &["userAgent"]) else {
            return CodexVerdict::Pass;
        };
        let Some(version) = CodexVersion::of_user_agent(&agent) else {
            let bar = Ineligible::CustomCommand;
            tracing::warn!(reason = bar.code(), "no thread is routed: {}", bar.words());
            self.warn(None, bar.code(), bar.words().to_owned());
            self.routes.bar.get_or_insert(bar);
            return CodexVerdict::Pass;
        };
        self.client.codex_version = Some(version);
        match version.support() {
            Support::Tested => CodexVerdict::Pass,
            Support::Newer => {
                tracing::warn!(
                    "codex {version} is newer than {}, the newest that was tested",
                    CodexVersion::NEWEST_TESTED
                );
                CodexVerdict::Pass
            }
            Support::TooOld => {
                let words = format!(
                    "codex-relay: codex {version} is too old, {} or newer is needed; \
                     npm install -g @openai/codex",
                    CodexVersion::OLDEST
                );
                tracing::error!("{words}");
                let error = json!({
                    "code": INVALID_REQUEST,
                    "message": words,
                    "data": { "reason": "codex_too_old" },
                });
                CodexVerdict::TooOld(error_line(id, &error))
            }
        }
    }

    fn on_answer(&mut self, line: &Bytes, read: &CodexLine, meaning: Meaning) {
        let result = read.result.as_ref();
        match meaning {
            Meaning::Initialize | Meaning::Other => {}
            Meaning::Reverted(thread) => self.revert_answered(thread.as_str(), result.is_some()),
            Meaning::Updated(before) => self.settings_answered(before, result.is_some()),
            Meaning::Work(thread) => self.work_answered(&thread, result.is_some()),
            Meaning::Unsubscribed(thread) => {
                if result.is_some() {
                    self.delivery.forget(thread.as_str());
                    self.registry.unsubscribed(thread.as_str());
                }
            }
            Meaning::Thread {
                mut routed,
                ineligible,
                snapshot,
                mut habits,
                registered,
                telling,
                account,
            } => {
                self.openings += 1;
                let has_document = telling.0.has_document;
                let said = Opened::read(line, result, has_document);
                habits.folder = said.folder().cloned().or(habits.folder);
                let id = result
                    .and_then(|result| member_text(line, result, &["thread", "id"]))
                    .and_then(ThreadId::new);
                if let Some(id) = id {
                    routed = self.take_way(&id, (routed, ineligible));
                    let (opening, text) = *telling;
                    self.ledger.opened(&id, opening, &text, said);
                    if let Some(registered) = registered {
                        self.give_to_thread(&id, registered);
                    }
                    let opened = self.registry.opened(id.clone(), routed, snapshot, habits);
                    self.note_opened(id.as_str(), opened, account);
                }
            }
            Meaning::Turn {
                thread,
                ticket,
                beginning,
                sets,
                before,
            } => {
                let turn = result
                    .and_then(|result| member_text(line, result, &["turn", "id"]))
                    .and_then(TurnId::new);
                if let Some(before) = before {
                    self.settings_answered(*before, turn.is_some());
                }
                self.on_turn_answer(&thread, turn, (ticket, *beginning, sets));
            }
        }
    }

    /// Learns whether codex has begun a turn of the client's, and which one.
    fn on_turn_answer(
        &mut self,
        thread: &ThreadId,
        turn: Option<TurnId>,
        (ticket, beginning, sets): (Option<Ticket>, Beginning, Map<String, Value>),
    ) {
        self.ledger.turn_answered(thread.as_str(), turn.is_some());
        if let Some(turn) = &turn {
            self.ledger.sets(thread.as_str(), sets);
            self.begin_turn(thread, turn, beginning);
        }
        if let Some(ticket) = ticket {
            let ended = self.registry.answered(thread.as_str(), ticket, turn);
            self.end_given(thread.as_str(), ended);
        }
    }

    /// Notes which way a thread goes; gives whether it is on the route. One that codex keeps loaded
    /// goes its new way later.
    fn take_way(
        &mut self,
        id: &ThreadId,
        (routed, ineligible): (bool, Option<Ineligible>),
    ) -> bool {
        let stays = self.ledger.must_stay(id.as_str(), routed);
        if !stays {
            self.routes.opened(id, ineligible);
        }
        let later = stays.then_some((routed, ineligible));
        self.ledger.put_off(id.as_str(), later);
        routed != stays
    }

    fn on_notification(&mut self, line: &Bytes, read: &CodexLine, method: &str) -> CodexVerdict {
        let Some(kind) = methods::of_codex(method) else {
            return self.on_other_notification(line, read, method);
        };
        if let Some(params) = &read.params {
            self.learn_of_account(line, params, kind);
        }
        if let Some(params) = &read.params
            && let Some(thread) = member_text(line, params, &["threadId"])
        {
            self.learn(line, params, kind, &thread);
            let status = member_text(line, params, &["status", "type"]);
            if status.as_deref() != Some("active") && self.ledger.is_stray(&thread, method, None) {
                return CodexVerdict::Keep;
            }
        }
        if self.client.unwanted.iter().any(|name| name == method) {
            return CodexVerdict::Keep;
        }
        CodexVerdict::Pass
    }

    /// Keeps back what a resume of our own brings.
    fn on_other_notification(
        &mut self,
        line: &Bytes,
        read: &CodexLine,
        method: &str,
    ) -> CodexVerdict {
        let thread = match &read.params {
            Some(params) if Strays::may_be(method) => member_text(line, params, &["threadId"])
                .or_else(|| member_text(line, params, &["thread", "id"])),
            Some(_) | None => None,
        };
        let Some(thread) = thread else {
            return CodexVerdict::Pass;
        };
        let text = |name| member_text(line, read.params.as_ref()?, &[name]);
        let (name, status) = (text("name"), text("status"));
        let server = name.as_deref().zip(status.as_deref());
        if self.ledger.is_stray(&thread, method, server) {
            CodexVerdict::Keep
        } else {
            CodexVerdict::Pass
        }
    }

    fn learn(&mut self, line: &Bytes, params: &Known, kind: CodexNotification, thread: &str) {
        let text = |path: &[&str]| member_text(line, params, path);
        match kind {
            CodexNotification::AccountLogin | CodexNotification::AccountUpdated => {}
            CodexNotification::Compacted(sign) => {
                if text(&["item", "type"]).as_deref() == Some("agentMessage")
                    && let Some(turn) = text(&["turnId"])
                {
                    self.routes.answered(thread, turn);
                }
                let is_compaction = match sign {
                    CompactionIs::Told => true,
                    CompactionIs::InItsItem => {
                        text(&["item", "type"]).as_deref() == Some("contextCompaction")
                    }
                };
                if is_compaction {
                    self.delivery.lost(thread);
                    self.on_compaction(thread);
                }
            }
            CodexNotification::Goal => self.learn_goal(line, params, thread),
            CodexNotification::Reverted => {
                if !self.ledger.is_known_revert(thread) {
                    self.on_reverted(thread);
                }
            }
            CodexNotification::Settings => self.learn_settings(line, params, thread),
            CodexNotification::StatusChanged => self.learn_status(line, params, thread),
            CodexNotification::ThreadDeleted => {
                self.on_gone(thread);
                // Nobody can bring it back, so nobody can use what is kept for it.
                self.registrations.clear(Some(thread));
            }
            CodexNotification::ThreadGone => self.on_gone(thread),
            CodexNotification::TurnCompleted => {
                if let Some(turn) = text(&["turn", "id"]) {
                    self.on_turn_completed(thread, &turn);
                }
            }
            CodexNotification::TurnStarted => {
                let turn = text(&["turn", "id"]).and_then(TurnId::new);
                self.ledger.started(thread, turn.clone());
                if let Some(turn) = turn {
                    self.registry.started(thread, turn);
                }
            }
        }
    }

    fn on_gone(&mut self, thread: &str) {
        self.registry.gone(thread);
        self.registrations.end_turn(thread, None);
        self.ledger.unloaded(thread);
        self.delivery.forget(thread);
        self.routes.gone(thread);
    }

    fn learn_status(&mut self, line: &[u8], params: &Known, thread: &str) {
        let status = member_text(line, params, &["status", "type"]);
        let status = status.as_deref();
        self.ledger
            .set_failed(thread, status == Some("systemError"));
        if status == Some("active") {
            self.ledger.renews_no_more(thread);
            if !self.registry.is_subscribed(thread) {
                // Nothing else tells of the start of its turn.
                self.ledger.started(thread, None);
            }
        }
        if status.is_some_and(|status| status != "notLoaded") {
            self.ledger.is_there(thread);
        }
        if !matches!(status, Some("notLoaded" | "idle" | "systemError")) {
            return;
        }
        self.ledger.turn_is_sent(thread, false);
        if status == Some("idle") {
            self.rests_behind_compaction(thread);
        }
        let ended = self.registry.rests(thread);
        self.end_given(thread, ended);
        if status == Some("notLoaded") {
            self.ledger.unloaded(thread);
            // A renewal leaves the history as it is.
            if !self.ledger.is_renewing(thread) {
                self.delivery.lost(thread);
            }
        }
    }

    fn learn_settings(&mut self, line: &[u8], params: &Known, thread: &str) {
        let settings = member(line, params, &["threadSettings"]).and_then(|at| line.get(at));
        if let Some(settings) = settings.filter(|it| it.len() <= MAX_KEPT_CONFIG_BYTES) {
            self.ledger
                .settled(thread, Bytes::copy_from_slice(settings));
        }
        if let Some(profile) = member(line, params, &["threadSettings", "activePermissionProfile"])
        {
            let id = member_text(line, &profile, &["id"]);
            self.ledger.set_profile(thread, id.map(Arc::from));
        }
        self.learn_place(line, params, thread);
    }

    /// Learns of logins, which belong to no thread.
    fn learn_of_account(&mut self, line: &[u8], params: &Known, kind: CodexNotification) {
        if kind == CodexNotification::AccountLogin {
            self.routes.account = None;
        }
        if kind == CodexNotification::AccountUpdated {
            let mode = member_text(line, params, &["authMode"]);
            self.routes
                .account_changed(mode.as_deref().map(AccountKind::of_mode));
        }
    }

    /// Ends a turn, and sees whether its requests came here.
    fn on_turn_completed(&mut self, thread: &str, turn: &str) {
        self.ledger.turn_is_sent(thread, false);
        let is_ours = self.registry.is_turn_of_client(thread, turn);
        let ended = self.registry.completed(thread, turn);
        self.end_given(thread, ended);
        let is_judged = is_ours && !self.reads_nothing;
        if is_judged && self.routes.is_bypass(thread, turn) {
            tracing::warn!(thread, turn, "{BYPASSED}");
            let thread = ThreadId::new(thread);
            self.warn(thread, "bypassed", BYPASSED.to_owned());
        }
    }
}

/// Said of a turn whose model request didn't come here.
const BYPASSED: &str = "a turn of a routed thread reached a model without the relay: its context is missing there; see openai_base_url, managed configuration and proxies";

/// JSON-RPC's code for a request that can't be served.
const INVALID_REQUEST: i32 = -32600;
