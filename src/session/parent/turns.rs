//! Turns that the client starts and steers: their context, references and generation.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use crate::base::ids::{Generation, ThreadId};
use crate::context::compose::Prepared;
use crate::context::orders::Orders;
use crate::context::reference::{self, Reference};
use crate::context::turn_kind::TurnKind;
use crate::context::wish::Wish;
use crate::session::given::relay_member::RelayMember;
use crate::session::instructions::places::Whereabouts;
use crate::session::instructions::renewal;
use crate::session::intercept::{
    Ask, ClientVerdict, Patience, Prepare, Target, Then, Waiting, rewritten,
};
use crate::session::machine::{Denial, Meaning, Remark, Session};
use crate::session::own::OwnId;
use crate::session::parent::admitted::Ticket;
use crate::session::parent::registry::{GivenFor, Thread};
use crate::session::parent::tally::{Beginning, ContextAccount};
use crate::session::parent::threads::Habits;
use crate::session::parent::turn::{Delivering, Ready, Renewed, StartTurn, Starter};
use crate::session::reading::Request;
use crate::session::route::config_edit;
use crate::wire::edit::Edit;
use crate::wire::envelope::{Envelope, member_text};
use crate::wire::known::Known;

impl Session {
    pub(in crate::session) fn on_turn_start(
        &mut self,
        line: &Bytes,
        request: Request,
        member: RelayMember,
    ) -> ClientVerdict {
        if self.must_ask_for_account(line, &request.params) {
            return self.ask_before_turn(request, member);
        }
        let thread = member_text(line, &request.params, &["threadId"]).and_then(ThreadId::new);
        if let Some(thread) = &thread
            && let Some((routed, why_not)) = self.ledger.take_put_off(thread.as_str())
        {
            self.registry.set_routed(thread.as_str(), routed);
            self.routes.opened(thread, why_not);
        }
        let known = thread
            .as_ref()
            .and_then(|it| self.registry.find(it.as_str()));
        if let Some(why) = self
            .routes
            .of_account()
            .filter(|_| known.is_some_and(|it| it.routed))
        {
            return self.refuse(request.id, Denial::RouteClosed(why));
        }
        if let Some(thread) = &thread
            && self.registry.find(thread.as_str()).is_none()
            && self.is_opening(thread)
        {
            return ClientVerdict::Wait(Waiting {
                thread: thread.clone(),
                request,
                member,
            });
        }
        self.start_turn(line, request, member, thread)
    }

    /// Goes on with a turn whose thread is open, or can't be waited for any longer.
    pub fn on_opened(&mut self, line: &Bytes, waiting: Waiting) -> ClientVerdict {
        let Waiting {
            thread,
            request,
            member,
        } = waiting;
        self.start_turn(line, request, member, Some(thread))
    }

    fn start_turn(
        &mut self,
        line: &Bytes,
        request: Request,
        member: RelayMember,
        thread: Option<ThreadId>,
    ) -> ClientVerdict {
        let known = thread
            .as_ref()
            .and_then(|id| self.registry.find(id.as_str()));
        let is_known = known.is_some();
        let is_taken = |given: &_| known.is_some_and(|known| known.admitted().has_begun(given));
        let in_force = self
            .registrations
            .for_turn(thread.as_ref().map(ThreadId::as_str), is_taken);
        let unknown = Habits::default();
        let habits = known.map_or(&unknown, |known| &known.habits);
        let told = member.memory_tools.or(in_force.memory_tools);
        let may_have_memory = told.is_none() && member.tools_disabled != Some(true);
        let wish = Wish {
            // Of a thread without a route all is told where children may see it.
            is_shared: known.is_some_and(|known| !known.routed),
            ..habits.wish(&member, in_force)
        };
        let wish = at_folder(wish, line, &request);
        if member.scratch.is_some() && wish.kind != TurnKind::Heartbeat {
            let fault = "relay.scratch: goes with kind heartbeat alone".to_owned();
            return self.refuse(request.id, Denial::RelayMember { fault });
        }
        let has_slot = thread
            .as_ref()
            .and_then(|id| self.registrations.turn(id.as_str()))
            .is_some_and(|slot| !is_taken(&slot.generation));
        let is_given = member.context.is_some() || has_slot;
        let gives = member.context.is_some() || member.references.is_some();
        if let Some(denial) = self.cannot_give().filter(|_| gives) {
            return self.refuse(request.id, denial);
        }
        let Some(thread) = thread.filter(|_| is_known) else {
            // What was given for this turn would be lost without a word.
            if is_given || gives {
                return self.refuse(request.id, Denial::ThreadUnknown);
            }
            let edit = scratch_edit(line, &request.params, member.scratch.as_deref());
            return rewritten(edit.into_iter().collect());
        };
        let renewed = Renewed {
            place: self.place_of_turn(line, &request, &thread),
            ..Renewed::default()
        };
        let turn = StartTurn {
            request,
            thread,
            starter: Starter::Client,
            scratch: member.scratch,
            is_given,
            has_own: member.context.is_some(),
            may_have_memory,
            renewed,
        };
        let history = self.ledger.turn_asked(turn.thread.as_str());
        ClientVerdict::Prepare(Prepare {
            history,
            ..Prepare::new(wish, Target::Turn(turn))
        })
    }

    /// Refuses a turn whose context can't be used.
    pub(in crate::session) fn measure_turn(
        &mut self,
        line: &Bytes,
        turn: StartTurn,
        wish: Wish,
        prepared: Option<Arc<Prepared>>,
        (orders, fresh): (Orders, Generation),
    ) -> ClientVerdict {
        let measured = prepared
            .ok_or(Denial::ContextUnavailable)
            .and_then(|prepared| self.measure(&prepared.snapshot).map(|()| prepared));
        let prepared = match measured {
            Ok(prepared) => prepared,
            Err(denial) => return self.refuse(turn.request.id, denial),
        };
        let ready = Ready {
            turn,
            wish,
            prepared,
            orders,
            fresh,
        };
        let is_busy = self.is_running(ready.turn.thread.as_str());
        if !is_busy && self.must_ask_for_tools(&ready) {
            return self.ask_for_tools(ready);
        }
        self.settle_orders(line, ready)
    }

    /// Tells the thread of the references that are due, before its turn starts.
    pub(in crate::session) fn deliver(&mut self, line: &Bytes, ready: Ready) -> ClientVerdict {
        let thread = &ready.turn.thread;
        let is_busy = self.is_running(thread.as_str());
        let due = self
            .delivery
            .due(thread.as_str(), &ready.prepared.references);
        // What is put into a running turn would stand in the middle of it.
        if due.is_empty() || is_busy {
            return self.admit(line, ready);
        }
        let (id, question) = self.ask_to_inject(&ready.turn.thread, &due);
        let thread = Some(ready.turn.thread.clone());
        let then = Then::Start(Delivering {
            ready,
            files: due.into_iter().map(|it| it.path).collect(),
        });
        ClientVerdict::Ask(Ask {
            question,
            id,
            patience: Patience::Long,
            thread,
            then,
        })
    }

    fn ask_to_inject(&mut self, thread: &ThreadId, due: &[Reference]) -> (OwnId, Bytes) {
        let params = json!({ "threadId": thread.as_str(), "items": [reference::item(due)] });
        let (id, question) = self.own.ask("thread/inject_items", &params);
        self.delivery.sent(thread, id, due);
        self.ledger.injected(thread.as_str());
        (id, question)
    }

    /// Starts the turn, also where the references didn't reach the thread: they are due again then.
    pub(in crate::session) fn start_delivered(
        &mut self,
        line: &Bytes,
        delivering: Delivering,
        answer: Option<&Bytes>,
    ) -> ClientVerdict {
        let Delivering { ready, files } = delivering;
        let envelope = answer.map(Envelope::read);
        let why = match envelope {
            None => Some("codex didn't answer in time"),
            Some(Some(envelope)) if !envelope.is_error => None,
            Some(_) => Some("codex answered with an error"),
        };
        if let Some(why) = why {
            let thread = ready.turn.thread.clone();
            let words = format!("{} not shown to the thread: {why}", files.join(", "));
            self.warn(Some(thread.clone()), "reference_not_delivered", words);
            self.remarks
                .push(Remark::NotDelivered { thread, files, why });
        }
        self.admit(line, ready)
    }

    fn admit(&mut self, line: &Bytes, ready: Ready) -> ClientVerdict {
        let Ready {
            mut turn,
            wish,
            prepared,
            fresh,
            ..
        } = ready;
        self.warn_of_losses(&turn.thread, &prepared.warnings);
        if turn.starter == Starter::Codex {
            return self.send_work(turn.request.id, turn.thread);
        }
        let mut beginning = self.beginning(&turn, &prepared);
        let known = self.registry.find(turn.thread.as_str());
        if turn.has_own && !known.is_some_and(Thread::is_running) {
            // Newer than what was set for the next turn: it takes its place. A steer doesn't.
            self.registrations.end_turn(turn.thread.as_str(), None);
        }
        if turn.has_own {
            self.registrations.note_any();
        }
        if !known.is_some_and(|known| known.routed) {
            self.set_mode(line, &mut turn, wish.kind);
            // What was given for this turn is in its thread's developer instructions.
            self.registrations.end_turn(turn.thread.as_str(), None);
            return self.send_turn(line, turn, beginning, None);
        }
        // The text of a turn that is unlike the others isn't one for the requests between turns.
        let is_usual = !turn.is_given && self.usual_wish(turn.thread.as_str()) == wish;
        let thread = turn.thread.as_str();
        let slot = self.registrations.turn(thread);
        let slot = slot.map(|registered| registered.generation.clone());
        let is_taken = |given: &_| known.is_some_and(|known| known.admitted().has_begun(given));
        let slot = slot.filter(|slot| !turn.has_own && !is_taken(slot));
        let snapshot = Arc::clone(&prepared.snapshot);
        let text = (Arc::clone(&snapshot), is_usual);
        if known.is_some_and(Thread::is_running) {
            // It may be a steer, and a turn keeps its text.
            beginning.text = Some(text);
        } else {
            self.note_turns_text(&turn.thread, beginning.given_for, text);
        }
        let generation = slot.clone().unwrap_or(fresh);
        let admitted = self
            .registry
            .admit(turn.thread.as_str(), generation, snapshot, slot);
        self.send_turn(line, turn, beginning, admitted)
    }

    /// What is to be noted of a turn once codex has begun it.
    fn beginning(&self, turn: &StartTurn, prepared: &Prepared) -> Beginning {
        let from = self.source_of(Some(turn.thread.as_str()), turn.is_given);
        Beginning {
            context: ContextAccount::of(prepared, from),
            given_for: if turn.is_given {
                GivenFor::OneTurn
            } else {
                GivenFor::AnyTurn
            },
            text: None,
        }
    }

    pub(in crate::session) fn on_turn_steer(
        &mut self,
        line: &Bytes,
        Request { id, params, .. }: Request,
    ) -> ClientVerdict {
        let _ = self.pending.try_note(id, Meaning::Other);
        let generation = member_text(line, &params, &["threadId"])
            .and_then(|thread| {
                self.registry
                    .find(&thread)?
                    .admitted()
                    .generation()
                    .cloned()
            })
            .filter(|_| self.client.experimental_api);
        let edit =
            generation.and_then(|live| config_edit::generation(line, &params, live.as_str(), true));
        rewritten(edit.into_iter().collect())
    }

    /// Sends a `turn/start`, with the generation that it was admitted under if it was.
    fn send_turn(
        &mut self,
        line: &Bytes,
        turn: StartTurn,
        beginning: Beginning,
        admitted: Option<(Generation, Ticket)>,
    ) -> ClientVerdict {
        let beginning = Box::new(beginning);
        let StartTurn {
            request: Request { id, params, said },
            thread,
            scratch,
            renewed,
            ..
        } = turn;
        let before = self.turn_goes(&thread, renewed.place).map(Box::new);
        let known = self.registry.find(thread.as_str());
        if !known.is_some_and(Thread::has_started) {
            self.ledger.turn_is_sent(thread.as_str(), true);
        }
        let lost = renewal::still_lost(line, (&params, said.places.as_ref()), renewed.lost);
        if !lost.is_empty() && !renewal::sets_any(line, &params) {
            self.ledger.sets_again(thread.as_str());
        }
        let sets = renewal::set_by_turn(line, &params, &lost);
        let mut edits = config_edit::settings(line, &params, &lost);
        edits.extend(scratch_edit(line, &params, scratch.as_deref()));
        let Some((generation, ticket)) = admitted else {
            let meaning = Meaning::Turn {
                thread,
                ticket: None,
                beginning,
                sets,
                before,
            };
            self.pending.settle(id, meaning);
            return rewritten(edits);
        };
        // Codex refuses the member of a client that didn't ask for experimental ones: the turn
        // is then known by its thread.
        if self.client.experimental_api {
            let edit = config_edit::generation(line, &params, generation.as_str(), false);
            edits.extend(edit);
        }
        let meaning = Meaning::Turn {
            thread,
            ticket: Some(ticket),
            beginning,
            sets,
            before,
        };
        self.pending.settle(id, meaning);
        rewritten(edits)
    }
}

/// Codex looks for documents and skills where the turn works.
fn at_folder(wish: Wish, line: &[u8], request: &Request) -> Wish {
    let places = request.said.places.as_ref();
    let goes_to = Whereabouts::default().of_request(line, &request.params, (places, false));
    let folder = goes_to.and_then(|place| place.folder);
    Wish {
        folder: folder.or(wish.folder),
        ..wish
    }
}

fn scratch_edit(line: &[u8], params: &Known, scratch: Option<&str>) -> Option<Edit> {
    config_edit::last_input(line, params, scratch?)
}

#[cfg(test)]
#[path = "turns_tests.rs"]
mod tests;
