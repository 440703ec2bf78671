//! The answers to `relay/info` and `relay/status`.

use crate::base::ids::ThreadId;
use crate::base::limits::{MAX_BODY_BYTES, MAX_MESSAGE_BYTES, MAX_REFERENCES_BYTES, MAX_THREADS};
use crate::context::account::{Carrier, Source};
use crate::control::account::{self, Account};
use crate::control::answers::{
    Info, Injection, Limits, Reference, Refusal, Registration, Route, RouteStatus, Status,
    ThreadStatus, Turn,
};
use crate::session::given::registrations::Registered;
use crate::session::machine::{Denial, Session};
use crate::session::parent::registry::Thread;
use crate::session::parent::tally::{OfTurn, Tally};
use crate::session::route::eligibility::{AccountKind, Ineligible};

impl Session {
    pub(super) fn info(&self) -> Info {
        Info {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            codex_version: self.client.codex_version.map(|it| it.to_string()),
            context: self.config.supplier.word().to_owned(),
            limits: Limits {
                context_bytes: self.config.max_context_bytes,
                references_bytes: MAX_REFERENCES_BYTES,
                request_bytes: MAX_BODY_BYTES,
                message_bytes: MAX_MESSAGE_BYTES,
                threads: MAX_THREADS,
            },
            route: self.route_of_all(),
        }
    }

    /// The account of one thread, or of all.
    pub(super) fn status(&self, thread: Option<&ThreadId>) -> Result<Status, Denial> {
        let mut ids = self.registry.ids();
        ids.extend(self.registrations.threads().cloned());
        ids.sort();
        ids.dedup();
        if let Some(thread) = thread {
            ids.retain(|id| id == thread);
            if ids.is_empty() {
                return Err(Denial::ThreadUnknown);
            }
        }
        let threads = ids.iter().map(|id| self.thread_status(id)).collect();
        let default = self.registrations.default();
        Ok(Status {
            threads,
            default: default.map(|it| registration("thread", it)),
            totals: self.totals,
        })
    }

    fn thread_status(&self, id: &ThreadId) -> ThreadStatus {
        let known = self.registry.find(id.as_str());
        let nothing = Tally::default();
        let tally = known.map_or(&nothing, |known| &known.tally);
        let turn = self.registrations.turn(id.as_str());
        let turn = turn.map(|it| registration("turn", it));
        let thread = self.registrations.thread(id.as_str());
        let thread = thread.map(|it| registration("thread", it));
        let references = tally.context.references.iter();
        let last_injection = tally.last_injection.clone();
        let last_refusal = tally.last_refusal.clone();
        ThreadStatus {
            thread_id: id.as_str().to_owned(),
            is_open: known.is_some(),
            route: self.told_route(
                known.map(|known| known.routed),
                self.routes.reason(id.as_str()),
            ),
            bypasses: self.routes.bypasses(id.as_str()),
            registrations: turn.into_iter().chain(thread).collect(),
            context: Account {
                from: tally.context.from.to_owned(),
                bytes: tally.context.bytes,
                sources: tally
                    .context
                    .sources
                    .iter()
                    .map(|it| source(it, known.is_some_and(|known| !known.routed)))
                    .collect(),
            },
            turn: tally.turn.as_ref().map(|it| turn_status(it, known)),
            codex_turn: tally.codex_turn.as_ref().map(|it| turn_status(it, known)),
            requests: tally.requests,
            last_injection: last_injection.map(|(turn_id, requests, bytes)| Injection {
                turn_id,
                requests,
                bytes,
            }),
            references: references
                .map(|(name, digest)| Reference {
                    name: name.clone(),
                    state: self.delivery.state(id.as_str(), name, digest).to_owned(),
                })
                .collect(),
            last_refusal: last_refusal.map(|(reason, message)| Refusal {
                reason: reason.to_owned(),
                message,
            }),
        }
    }

    /// The route of a thread, as far as it is decided.
    fn told_route(&self, is_routed: Option<bool>, reason: Option<Ineligible>) -> Route {
        let status = match (is_routed, reason) {
            (Some(true), _) => RouteStatus::Active,
            (_, Some(_)) | (Some(false), None) => RouteStatus::Fallback,
            (None, None) => RouteStatus::Pending,
        };
        let is_active = status == RouteStatus::Active;
        Route {
            status,
            reason: reason.filter(|_| !is_active).map(|it| it.code().to_owned()),
            is_parent_only: is_active,
            upstream_host: self
                .upstream_host()
                .filter(|_| status != RouteStatus::Fallback),
        }
    }

    /// What holds for all threads; where they differ, one that is routed counts.
    fn route_of_all(&self) -> Route {
        let ids = self.registry.ids();
        let mut all = ids.iter().filter_map(|id| self.registry.find(id.as_str()));
        let is_routed = (!ids.is_empty()).then(|| all.any(|known| known.routed));
        let reason = ids.iter().find_map(|id| self.routes.reason(id.as_str()));
        self.told_route(is_routed, self.routes.bar.or(reason))
    }

    /// The host that requests go on to; none while it depends on an account that nobody told.
    fn upstream_host(&self) -> Option<String> {
        let upstreams = &self.config.upstreams;
        if upstreams.api_key == upstreams.chatgpt {
            return Some(upstreams.api_key.clone());
        }
        match self.routes.account.as_ref()?.kind? {
            AccountKind::ApiKey => Some(upstreams.api_key.clone()),
            AccountKind::ChatGpt => Some(upstreams.chatgpt.clone()),
            AccountKind::Other => None,
        }
    }
}

fn turn_status(turn: &OfTurn, known: Option<&Thread>) -> Turn {
    Turn {
        turn_id: turn.id.as_str().to_owned(),
        is_running: known.is_some_and(|known| known.runs(&turn.id)),
        context: turn.bytes,
        requests: turn.requests,
    }
}

fn registration(scope: &str, registered: &Registered) -> Registration {
    Registration {
        scope: scope.to_owned(),
        generation: registered.generation.as_str().to_owned(),
        bytes: registered.snapshot.text().len(),
    }
}

fn source(source: &Source, is_fallback: bool) -> account::Source {
    let carrier = match source.carrier {
        Carrier::Context if is_fallback => "developer_instructions",
        Carrier::Context | Carrier::Reference => source.carrier.word(),
    };
    account::Source {
        name: source.path.clone(),
        carrier: carrier.to_owned(),
        raw_bytes: source.raw_bytes,
        bytes: source.injected_bytes,
        treatment: source.treatment.to_string(),
    }
}
