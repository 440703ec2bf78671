//! Client to codex: what becomes of each line.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use crate::base::ids::{Generation, RequestId, ThreadId};
use crate::base::limits::{MAX_OPEN_REQUESTS, MAX_THREADS};
use crate::context::snapshot::Snapshot;
use crate::session::config_edit;
use crate::session::eligibility::{self, Ineligible};
use crate::session::machine::{Client, Denial, Meaning, Session};
use crate::session::methods::{self, ClientMethod};
use crate::session::own::OwnId;
use crate::wire::edit::Edit;
use crate::wire::envelope::{Envelope, member, member_text, text};
use crate::wire::scan;

/// What to do with a line of the client.
#[derive(Debug, PartialEq, Eq)]
pub enum ClientVerdict {
    /// Codex must be asked first; then [`Session::on_own_answer`].
    Ask(Ask),
    /// It goes on as it is.
    Pass,
    /// The context must be read first; then [`Session::on_context`].
    Prepare(Prepare),
    /// It doesn't go on; the client gets an error under this id.
    Refuse {
        /// The request's id.
        id: RequestId,
        /// Why.
        denial: Denial,
    },
    /// It goes on with these edits.
    Rewrite(Vec<Edit>),
}

/// A line that waits for codex's answer to a request of our own.
#[derive(Debug, PartialEq, Eq)]
pub struct Ask {
    /// The request, a whole line.
    pub question: Bytes,
    /// Which answer it waits for.
    pub id: OwnId,
    then: Then,
}

/// What the answer is for.
#[derive(Debug, PartialEq, Eq)]
enum Then {
    /// The thread is routed, unless the user's configuration sends it elsewhere.
    Route {
        id: RequestId,
        params: Range<usize>,
        snapshot: Option<Arc<Snapshot>>,
    },
}

/// A line that waits for its context.
#[derive(Debug, PartialEq, Eq)]
pub struct Prepare {
    id: RequestId,
    params: Range<usize>,
    target: Target,
}

#[derive(Debug, PartialEq, Eq)]
enum Target {
    Thread,
    Turn(ThreadId),
}

impl Session {
    /// Judges a line of the client. Lines that are no requests of ours to change pass.
    pub fn on_client_line(&mut self, line: &Bytes) -> ClientVerdict {
        let Some(envelope) = Envelope::read(line) else {
            return ClientVerdict::Pass;
        };
        // Answers and notifications of the client pass.
        let (Some(name), Some(id)) = (envelope.method, envelope.id) else {
            return ClientVerdict::Pass;
        };
        let (Some(method), Some(params)) = (methods::of_client(&name), envelope.params) else {
            // A table that is full costs the client no more than an error when codex dies.
            let _ = self.pending.try_note(id, Meaning::Other);
            return ClientVerdict::Pass;
        };
        if self.pending.is_full() {
            let denial = Denial::Busy {
                what: "requests are open",
                limit: MAX_OPEN_REQUESTS,
            };
            return ClientVerdict::Refuse { id, denial };
        }
        match method {
            ClientMethod::Initialize => self.on_initialize(line, id, &params),
            ClientMethod::Thread => self.on_thread(id, params),
            ClientMethod::TurnStart => self.on_turn_start(line, id, params),
            ClientMethod::TurnSteer => self.on_turn_steer(line, id, &params),
        }
    }

    /// Goes on with a line whose context was read; `fresh` is the generation that a new
    /// registration gets. `None` stands for a workspace that can't be read.
    pub fn on_context(
        &mut self,
        line: &Bytes,
        prepare: Prepare,
        snapshot: Option<Arc<Snapshot>>,
        fresh: Generation,
    ) -> ClientVerdict {
        let Prepare { id, params, target } = prepare;
        match target {
            Target::Thread => self.ask_for_config(line, id, params, snapshot),
            Target::Turn(thread) => {
                let measured = snapshot
                    .ok_or(Denial::ContextUnavailable)
                    .and_then(|snapshot| self.measure(&snapshot).map(|()| snapshot));
                match measured {
                    Err(denial) => ClientVerdict::Refuse { id, denial },
                    Ok(snapshot) => {
                        let admitted = self.registry.admit(thread.as_str(), fresh, snapshot);
                        self.send_turn(line, id, &params, thread, admitted)
                    }
                }
            }
        }
    }

    /// Goes on with a line whose question codex answered; `None` where it never did.
    pub fn on_own_answer(
        &mut self,
        line: &Bytes,
        ask: Ask,
        answer: Option<&Bytes>,
    ) -> ClientVerdict {
        let Then::Route {
            id,
            params,
            snapshot,
        } = ask.then;
        self.is_silent |= answer.is_none();
        let result = answer.and_then(|answer| {
            let envelope = Envelope::read(answer).filter(|envelope| !envelope.is_error)?;
            let config = member(answer, &envelope.result?, &["config"])?;
            eligibility::of_config((line, &params), (answer, &config))
        });
        self.route_thread(line, id, &params, snapshot, result)
    }

    fn on_initialize(
        &mut self,
        line: &Bytes,
        id: RequestId,
        params: &Range<usize>,
    ) -> ClientVerdict {
        let _ = self.pending.try_note(id, Meaning::Initialize);
        if self.client.initialized {
            return ClientVerdict::Pass;
        }
        let experimental = member(line, params, &["capabilities", "experimentalApi"]);
        let names = member(line, params, &["capabilities", "optOutNotificationMethods"]);
        let (unwanted, edit) = names
            .map(|names| keep_needed(line, &names))
            .unwrap_or_default();
        self.client = Client {
            initialized: false,
            experimental_api: experimental.is_some_and(|at| line.get(at) == Some(b"true")),
            unwanted,
        };
        edit.map_or(ClientVerdict::Pass, |edit| {
            ClientVerdict::Rewrite(vec![edit])
        })
    }

    fn on_thread(&self, id: RequestId, params: Range<usize>) -> ClientVerdict {
        if self.registry.is_full() {
            let denial = Denial::Busy {
                what: "threads are open",
                limit: MAX_THREADS,
            };
            return ClientVerdict::Refuse { id, denial };
        }
        let target = Target::Thread;
        ClientVerdict::Prepare(Prepare { id, params, target })
    }

    /// Asks codex for the user's configuration, where the client's params leave the route open.
    fn ask_for_config(
        &mut self,
        line: &Bytes,
        id: RequestId,
        params: Range<usize>,
        snapshot: Option<Arc<Snapshot>>,
    ) -> ClientVerdict {
        if let Some(why) = eligibility::of_params(line, &params) {
            return self.route_thread(line, id, &params, snapshot, Some(why));
        }
        if self.is_silent {
            return self.route_thread(line, id, &params, snapshot, None);
        }
        let (own, question) = self
            .own
            .ask("config/read", &json!({ "includeLayers": false }));
        let then = Then::Route {
            id,
            params,
            snapshot,
        };
        ClientVerdict::Ask(Ask {
            question,
            id: own,
            then,
        })
    }

    fn route_thread(
        &mut self,
        line: &Bytes,
        id: RequestId,
        params: &Range<usize>,
        snapshot: Option<Arc<Snapshot>>,
        ineligible: Option<Ineligible>,
    ) -> ClientVerdict {
        if let Some(why) = ineligible {
            tracing::debug!("thread not routed: {}", why.words());
        }
        let edit = match ineligible {
            Some(_) => None,
            None => config_edit::route(line, params, &self.config.base_url),
        };
        let routed = edit.is_some();
        // An oversized text refuses the turn, which can say why, not the thread.
        let snapshot = snapshot.filter(|snapshot| self.measure(snapshot).is_ok());
        let _ = self
            .pending
            .try_note(id, Meaning::Thread { routed, snapshot });
        edit.map_or(ClientVerdict::Pass, |edit| {
            ClientVerdict::Rewrite(vec![edit])
        })
    }

    fn on_turn_start(
        &mut self,
        line: &Bytes,
        id: RequestId,
        params: Range<usize>,
    ) -> ClientVerdict {
        let thread = member_text(line, &params, &["threadId"]).and_then(ThreadId::new);
        let known = thread
            .as_ref()
            .and_then(|id| self.registry.find(id.as_str()));
        let (Some(thread), Some(true)) = (thread, known.map(|known| known.routed)) else {
            let _ = self.pending.try_note(id, Meaning::Other);
            return ClientVerdict::Pass;
        };
        if let Some(generation) = self.registry.steer(thread.as_str()) {
            return self.send_turn(line, id, &params, thread, Some(generation));
        }
        let target = Target::Turn(thread);
        ClientVerdict::Prepare(Prepare { id, params, target })
    }

    fn on_turn_steer(
        &mut self,
        line: &Bytes,
        id: RequestId,
        params: &Range<usize>,
    ) -> ClientVerdict {
        let _ = self.pending.try_note(id, Meaning::Other);
        let generation = member_text(line, params, &["threadId"])
            .and_then(|thread| self.registry.find(&thread)?.generation().cloned())
            .filter(|_| self.client.experimental_api);
        generation
            .and_then(|live| config_edit::generation(line, params, live.as_str(), true))
            .map_or(ClientVerdict::Pass, |edit| {
                ClientVerdict::Rewrite(vec![edit])
            })
    }

    /// Sends a `turn/start` with the generation that it was admitted under.
    fn send_turn(
        &mut self,
        line: &Bytes,
        id: RequestId,
        params: &Range<usize>,
        thread: ThreadId,
        generation: Option<Generation>,
    ) -> ClientVerdict {
        let Some(generation) = generation else {
            let _ = self.pending.try_note(id, Meaning::Other);
            return ClientVerdict::Pass;
        };
        // Codex refuses the member of a client that didn't ask for experimental ones: the turn
        // is then known by its thread.
        let edit = self
            .client
            .experimental_api
            .then(|| config_edit::generation(line, params, generation.as_str(), false))
            .flatten();
        let _ = self
            .pending
            .try_note(id, Meaning::Turn { thread, generation });
        edit.map_or(ClientVerdict::Pass, |edit| {
            ClientVerdict::Rewrite(vec![edit])
        })
    }
}

/// Splits a list of notification names: those that the relay needs, and the edit that takes them
/// out of the list.
fn keep_needed(line: &[u8], names: &Range<usize>) -> (Vec<String>, Option<Edit>) {
    let Ok(elements) = scan::elements(line, names.start) else {
        return Default::default();
    };
    let needed = |element: &Range<usize>| {
        text(line, element).filter(|name| methods::of_codex(name).is_some())
    };
    let unwanted: Vec<String> = elements.iter().filter_map(needed).collect();
    if unwanted.is_empty() {
        return Default::default();
    }
    let kept: Vec<&[u8]> = elements
        .iter()
        .filter(|element| needed(element).is_none())
        .filter_map(|element| line.get(element.clone()))
        .collect();
    let list = [b"[", kept.join(&b","[..]).as_slice(), b"]"].concat();
    (unwanted, Some(Edit::replace(names.clone(), list)))
}
