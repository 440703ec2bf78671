//! What codex is asked before a thread is routed, and before a turn whose account may have changed.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::base::ids::Generation;
use crate::context::compose::Prepared;
use crate::context::orders::Orders;
use crate::session::given::registrations::Registered;
use crate::session::given::relay_member::RelayMember;
use crate::session::instructions::documents;
use crate::session::instructions::orders::configured_instructions;
use crate::session::intercept::{Ask, ClientVerdict, Patience, Then};
use crate::session::machine::{Denial, Session};
use crate::session::parent::tally::ContextAccount;
use crate::session::parent::threads::{OpenThread, Route};
use crate::session::reading::Request;
use crate::session::route::eligibility::{self, AccountKind, Ineligible};
use crate::session::route::routes::{Account, WorkspaceRouting};
use crate::wire::envelope::{Envelope, member, member_text};
use crate::wire::known::Known;
use crate::wire::scan;

/// A thread on its way to a route.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::session) struct Asking {
    route: Route,
    /// What was asked last.
    question: Question,
    /// What speaks against a route already.
    against: Option<Ineligible>,
}

/// What codex is asked, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// `config/read`, for each thread.
    Config,
    /// `configRequirements/read`, once.
    Requirements,
    /// `account/read`, once for each account.
    Account,
}

impl Session {
    /// Asks codex what the client's params leave open, then routes the thread.
    pub(in crate::session) fn ask_for_route(
        &mut self,
        line: &Bytes,
        thread: OpenThread,
        prepared: Option<&Prepared>,
        (orders, fresh): (Orders, Generation),
    ) -> ClientVerdict {
        let snapshot = prepared.map(|prepared| Arc::clone(&prepared.snapshot));
        let from = match &thread.given {
            Some(_) => "thread",
            None => self.source_of(None, false),
        };
        let account = prepared.map(|prepared| Arc::new(ContextAccount::of(prepared, from)));
        let registered = match (&thread.given, &snapshot) {
            (None, _) => None,
            (Some(_), None) => return self.refuse(thread.request.id, Denial::ContextUnavailable),
            (Some(given), Some(snapshot)) => {
                // The client's own words for this thread alone: they can be mended at once.
                if let Err(denial) = self.measure(snapshot) {
                    return self.refuse(thread.request.id, denial);
                }
                Some(Registered {
                    generation: fresh,
                    given: Arc::clone(given),
                    references: None,
                    memory_tools: None,
                    snapshot: Arc::clone(snapshot),
                })
            }
        };
        // A policy, a copy of AGENTS.md or a section goes behind what the configuration says.
        let has_words = snapshot.as_ref().is_some_and(|it| !it.is_empty())
            || orders != Orders::default()
            || thread.policy.is_some();
        let params = &thread.request.params;
        let against = self
            .routes
            .bar
            .or_else(|| eligibility::of_params(line, params));
        let is_base_open = has_words && thread.request.said.own.is_none();
        // Codex reads the projects' layers from that folder; it takes none that is relative.
        let folder = member_text(line, params, &["cwd"]).filter(|folder| folder.starts_with('/'));
        let has_room = documents::has_room(line, params);
        let route = Route {
            thread,
            snapshot,
            registered,
            orders,
            base: None,
            has_room,
            account,
        };
        if self.is_silent || (against.is_some() && !is_base_open) {
            return self.route(line, route, against);
        }
        let asking = Asking {
            route,
            question: Question::Config,
            against,
        };
        self.ask(
            "config/read",
            &json!({ "includeLayers": false, "cwd": folder }),
            Then::Route(asking),
        )
    }

    /// Whether a turn with `params` is one of a routed thread whose account may have changed.
    pub(in crate::session) fn must_ask_for_account(&self, line: &[u8], params: &Known) -> bool {
        let is_told = !self.routes.is_account_open() || !self.routes.has_requirements;
        if is_told || self.is_silent {
            return false;
        }
        let thread = member_text(line, params, &["threadId"]);
        let known = thread.and_then(|id| self.registry.find(&id));
        known.is_some_and(|known| known.routed)
    }

    pub(in crate::session) fn ask_before_turn(
        &mut self,
        request: Request,
        member: RelayMember,
    ) -> ClientVerdict {
        self.ask_for_account(Then::Account { request, member })
    }

    pub(in crate::session) fn go_on_with_account(
        &mut self,
        line: &Bytes,
        request: Request,
        member: RelayMember,
        answer: Option<&Bytes>,
    ) -> ClientVerdict {
        self.learn_account(answer.and_then(result));
        self.on_turn_start(line, request, member)
    }

    pub(in crate::session) fn on_route_answer(
        &mut self,
        line: &Bytes,
        mut asking: Asking,
        answer: Option<&Bytes>,
    ) -> ClientVerdict {
        // The account may need the network. A codex that leaves the others unanswered knows none.
        self.is_silent |= answer.is_none() && asking.question != Question::Account;
        let told = answer.and_then(result);
        let params = &asking.route.thread.request.params;
        if asking.question == Question::Config {
            asking.route.base = answer.and_then(configured_instructions);
            let of_user = told
                .as_ref()
                .and_then(|(answer, at)| documents::has_room(answer, at));
            asking.route.has_room = asking.route.has_room.or(of_user);
        }
        let against = match asking.question {
            Question::Config => asking.against.or_else(|| {
                let (answer, result) = told?;
                eligibility::of_config((line, params), (answer, &result))
            }),
            Question::Requirements => {
                self.routes.has_requirements = true;
                let against =
                    told.and_then(|(answer, result)| eligibility::of_requirements(answer, &result));
                // What an administrator requires holds for every thread.
                self.routes.bar = self.routes.bar.or(against);
                against
            }
            Question::Account => {
                self.learn_account(told);
                None
            }
        };
        if against.is_none() && !self.is_silent {
            if !self.routes.has_requirements {
                asking.question = Question::Requirements;
                return self.ask("configRequirements/read", &json!({}), Then::Route(asking));
            }
            if self.routes.is_account_open() {
                asking.question = Question::Account;
                return self.ask_for_account(Then::Route(asking));
            }
        }
        let against = against.or_else(|| self.routes.of_account());
        self.route(line, asking.route, against)
    }

    fn ask_for_account(&mut self, then: Then) -> ClientVerdict {
        self.ask("account/read", &json!({ "refreshToken": false }), then)
    }

    fn ask(&mut self, method: &str, params: &Value, then: Then) -> ClientVerdict {
        let (id, question) = self.own.ask(method, params);
        ClientVerdict::Ask(Ask {
            question,
            id,
            patience: Patience::Long,
            thread: None,
            then,
        })
    }

    /// Learns the account from an answer to `account/read`; none counts as one that can be routed.
    fn learn_account(&mut self, result: Option<(&[u8], Range<usize>)>) {
        let account = result.map_or_else(Account::default, |(answer, result)| Account {
            kind: kind(answer, &result),
            routing: routing(answer, &result),
        });
        self.routes.account_told(account);
    }
}

/// The result in an answer that is no error.
fn result(answer: &Bytes) -> Option<(&[u8], Range<usize>)> {
    let envelope = Envelope::read(answer).filter(|envelope| !envelope.is_error)?;
    Some((answer, envelope.result?))
}

/// The kind of the account in an answer to `account/read`; none where nobody is logged in.
pub fn kind(answer: &[u8], result: &Range<usize>) -> Option<AccountKind> {
    let account = member(answer, result, &["account"])?;
    if scan::is_null(answer, &account) {
        return None;
    }
    let kind = member_text(answer, &account, &["type"]);
    Some(kind.map_or(AccountKind::Other, |kind| AccountKind::of_type(&kind)))
}

fn routing(answer: &[u8], result: &Range<usize>) -> Option<WorkspaceRouting> {
    let text = |name| member_text(answer, result, &["workspaceRouting", name]);
    let policy = text("accountRoutingOverride").filter(|policy| policy != "NO_CONSTRAINT");
    Some(WorkspaceRouting {
        account: text("chatgptAccountId")?,
        origin: text("backendOrigin")?,
        policy,
    })
}

/// Why codex's own answers speak against a route, for whoever has asked all three.
pub fn judge(
    config: Option<(&[u8], &Range<usize>)>,
    requirements: Option<(&[u8], &Range<usize>)>,
    account: Option<AccountKind>,
) -> Option<Ineligible> {
    let nothing: (&[u8], &Range<usize>) = (b"{}", &(0..2));
    config
        .and_then(|answer| eligibility::of_config(nothing, answer))
        .or_else(|| requirements.and_then(|(line, at)| eligibility::of_requirements(line, at)))
        .or_else(|| (account == Some(AccountKind::Other)).then_some(Ineligible::AccountUnknown))
}

#[cfg(test)]
#[path = "asking_tests.rs"]
mod tests;
