//! Client to codex: what becomes of each line.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::base::ids::{Generation, RequestId, ThreadId, TurnId};
use crate::context::compose::Prepared;
use crate::context::orders::Orders;
use crate::context::wish::Wish;
use crate::session::given::given_params::Excess;
use crate::session::given::relay_member::RelayMember;
use crate::session::given::relay_methods::NewRegistration;
use crate::session::instructions::orders::Renewing;
use crate::session::machine::{Client, Denial, Meaning, Session};
use crate::session::methods::{self, ClientMethod, ThreadWay};
use crate::session::own::OwnId;
use crate::session::parent::threads::{OpenThread, Route};
use crate::session::parent::turn::{Delivering, Ready, StartTurn};
use crate::session::reading::{ClientLine, Content, Request};
use crate::session::route::asking::Asking;
use crate::session::route::eligibility::Ineligible;
use crate::session::route::rejoin::Rejoining;
use crate::session::warnings;
use crate::wire::edit::Edit;
use crate::wire::envelope::{member, member_text, text};
use crate::wire::scan::Elements;

/// What to do with a line of the client.
#[derive(Debug, PartialEq)]
pub enum ClientVerdict {
    /// The relay itself answers with this line; it goes no further.
    Answer(Bytes),
    /// Codex must be asked first; then [`Session::on_own_answer`].
    Ask(Ask),
    /// Another line stands for it from here on; then [`Session::on_bare_line`].
    Bare {
        /// The line without the relay's own member.
        line: Bytes,
        /// What the member says.
        member: RelayMember,
    },
    /// Nobody gets it.
    Drop,
    /// It goes on as it is, and what the turn has asked the model for ends.
    Interrupt {
        /// Its thread.
        thread: ThreadId,
        /// The turn.
        turn: TurnId,
    },
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
    /// Codex must have opened its thread first, see [`Session::is_opening`]; then
    /// [`Session::on_opened`].
    Wait(Waiting),
}

/// A turn whose thread is being resumed.
#[derive(Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The thread.
    pub thread: ThreadId,
    pub(super) request: Request,
    pub(super) member: RelayMember,
}

/// A line that waits for codex's answer to a request of our own.
#[derive(Debug, PartialEq)]
pub struct Ask {
    /// The request, a whole line.
    pub question: Bytes,
    /// Which answer it waits for.
    pub id: OwnId,
    /// How long the line waits.
    pub patience: Patience,
    /// The thread that it is about; none where what becomes of it may matter to every line.
    pub thread: Option<ThreadId>,
    pub(super) then: Then,
}

/// How long a line may wait for the answer to a question of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// It can hardly go on without.
    Long,
    /// Codex loads a thread anew, whose history may be long.
    Renewal,
    /// It can go on without.
    Short,
}

/// What the answer is for.
#[derive(Debug, PartialEq)]
pub(super) enum Then {
    /// The turn goes on, unless the account is one that has no route.
    Account {
        /// The turn.
        request: Request,
        /// The relay's own member, which was in it.
        member: RelayMember,
    },
    /// The turn goes on, with a renewal of its thread or without.
    Count(Box<Ready>),
    /// The turn starts once its thread's developer instructions are the current ones.
    Renew(Box<Renewing>),
    /// The client returns to a thread, which codex still has or has not.
    Rejoin(Box<Rejoining>),
    /// The thread is routed, unless something speaks against it.
    Route(Asking),
    /// The turn goes on, with tools for the memory or without.
    Remember(Box<Ready>),
    /// The turn starts, whether the thread was told of its references or not.
    Start(Delivering),
}

/// A line that waits for its context.
#[derive(Debug, PartialEq)]
pub struct Prepare {
    /// What the context is for.
    pub wish: Wish,
    /// What stands in the thread's developer instructions: to be read as well; else why it can't be.
    pub orders: Result<Orders, String>,
    /// A history that began before this process: whether it ends with a section of ours is to be
    /// said in [`Self::has_section`].
    pub history: Option<PathBuf>,
    /// Whether that history ends with a section of ours.
    pub has_section: bool,
    pub(super) target: Target,
}

impl Prepare {
    pub(super) fn new(wish: Wish, target: Target) -> Self {
        let orders = Ok(Orders::default());
        Self {
            wish,
            orders,
            history: None,
            has_section: false,
            target,
        }
    }

    /// Whether the thread works in the folder that codex was started in, unless the wish names one.
    pub fn begins_here(&self) -> bool {
        match &self.target {
            Target::Thread(thread) => thread.way == ThreadWay::Start,
            Target::Fallback(fallback) => fallback.0.thread.way == ThreadWay::Start,
            Target::Registration(_) | Target::Turn(_) => false,
        }
    }
}

#[derive(Debug, PartialEq)]
pub(super) enum Target {
    /// A thread that has no route, and why.
    Fallback(Box<(Route, Ineligible)>),
    Registration(NewRegistration),
    Thread(OpenThread),
    Turn(StartTurn),
}

impl Session {
    /// Judges a line of the client. Lines that are no requests of ours to change pass, and those that
    /// can't be read unless they name a method of the relay's own.
    pub fn on_client_line(&mut self, line: &Bytes) -> ClientVerdict {
        let (line, read) = ClientLine::read(line.clone());
        self.on_client(&line, read)
    }

    /// Judges a line of the client that was read: what the relay's own member was taken out of.
    pub fn on_client(&mut self, line: &Bytes, read: ClientLine) -> ClientVerdict {
        match read.0 {
            Content::Addressed { id, member, excess } => match (excess, member) {
                (Some(excess), _) => {
                    let denial = self.context_too_large(excess);
                    ClientVerdict::Refuse { id, denial }
                }
                (None, Ok(member)) => {
                    let line = line.clone();
                    ClientVerdict::Bare { line, member }
                }
                (None, Err(fault)) => {
                    let denial = Denial::RelayMember { fault };
                    ClientVerdict::Refuse { id, denial }
                }
            },
            // Answers and notifications of the client pass.
            Content::Opaque => ClientVerdict::Pass,
            Content::Other(id) => {
                // A table that is full costs the client no more than an error when codex dies.
                let _ = self.pending.try_note(id, Meaning::Other);
                ClientVerdict::Pass
            }
            // Nobody waits for an answer to a notification.
            Content::RelayNotification => ClientVerdict::Drop,
            Content::RelayRequest(call) => self.on_relay_method(call),
            Content::RelayUnreadable(id) => ClientVerdict::Refuse {
                id,
                denial: Denial::RelayLine,
            },
            Content::Shared(method, request) => {
                self.on_request(line, method, request, RelayMember::default())
            }
        }
    }

    /// Judges a line that the relay's own member was taken out of.
    pub fn on_bare_line(&mut self, line: &Bytes, member: RelayMember) -> ClientVerdict {
        self.on_bare(line, ClientLine::read_bare(line), member)
    }

    /// Judges a line that the relay's own member was taken out of, and that was read again.
    pub fn on_bare(
        &mut self,
        line: &Bytes,
        read: ClientLine,
        member: RelayMember,
    ) -> ClientVerdict {
        match read.0 {
            Content::Shared(method, request) => self.on_request(line, method, request, member),
            Content::Addressed { .. }
            | Content::Opaque
            | Content::Other(_)
            | Content::RelayNotification
            | Content::RelayRequest(_)
            | Content::RelayUnreadable(_) => ClientVerdict::Pass,
        }
    }

    pub(super) fn context_too_large(&self, excess: Excess) -> Denial {
        Denial::ContextTooLarge {
            bytes: excess.bytes,
            limit: self.config.max_context_bytes,
            sections: excess.sections,
        }
    }

    /// Whether a line that begins as this method's must be read, so that it can't pass unread.
    pub fn must_read(&self, method: &str) -> bool {
        methods::of_client(method).is_some() || methods::is_ours(method)
    }

    /// Goes on with a line whose context was read; `fresh` is the generation that a new
    /// registration gets. `None` stands for a workspace that can't be read.
    pub fn on_context(
        &mut self,
        line: &Bytes,
        prepare: Prepare,
        prepared: Option<Arc<Prepared>>,
        fresh: Generation,
    ) -> ClientVerdict {
        let refused =
            |session: &mut Self, id, fault| session.refuse(id, Denial::PolicyUnavailable { fault });
        match (prepare.target, prepare.orders) {
            (Target::Registration(new), _) => self.on_registration(new, prepared.as_deref(), fresh),
            (Target::Thread(thread), Ok(orders)) => {
                self.ask_for_route(line, thread, prepared.as_deref(), (orders, fresh))
            }
            (Target::Thread(thread), Err(fault)) => refused(self, thread.request.id, fault),
            // Its orders were read already.
            (Target::Fallback(fallback), _) => {
                let (route, why) = *fallback;
                self.open(line, route, Some(why), prepared.as_deref())
            }
            (Target::Turn(turn), Ok(orders)) => {
                if prepare.has_section {
                    self.ledger.has_ours(turn.thread.as_str());
                }
                let wish = prepare.wish;
                self.measure_turn(line, turn, wish, prepared, (orders, fresh))
            }
            (Target::Turn(turn), Err(fault)) => refused(self, turn.request.id, fault),
        }
    }

    /// Goes on with a line whose question codex answered; `None` where it never did.
    pub fn on_own_answer(
        &mut self,
        line: &Bytes,
        ask: Ask,
        answer: Option<&Bytes>,
    ) -> ClientVerdict {
        match ask.then {
            Then::Account { request, member } => {
                self.go_on_with_account(line, request, member, answer)
            }
            Then::Count(ready) => self.go_on_with_commands(line, *ready, answer),
            Then::Renew(renewing) => self.on_step_answer(line, *renewing, answer),
            Then::Rejoin(rejoining) => self.go_on_with_loaded(line, *rejoining, answer),
            Then::Route(asking) => self.on_route_answer(line, asking, answer),
            Then::Remember(ready) => self.go_on_with_tools(line, *ready),
            Then::Start(delivering) => self.start_delivered(line, delivering, answer),
        }
    }

    fn on_request(
        &mut self,
        line: &Bytes,
        method: ClientMethod,
        request: Request,
        member: RelayMember,
    ) -> ClientVerdict {
        if self.pending.is_full() {
            let denial = Denial::requests_are_open();
            let id = request.id;
            return ClientVerdict::Refuse { id, denial };
        }
        if let ClientMethod::Thread(_) | ClientMethod::TurnStart = method {
            // It is open from here on: where codex ends while it waits, the client must be told.
            let _ = self.pending.try_note(request.id.clone(), Meaning::Other);
        }
        match method {
            ClientMethod::Compact => self.on_compact(line, request),
            ClientMethod::Initialize => self.on_initialize(line, request),
            ClientMethod::Inject => self.on_inject(line, request),
            ClientMethod::Interrupt => self.on_interrupt(line, request),
            ClientMethod::Thread(way) => match self.may_rejoin(line, way, &request) {
                Some(thread) => self.ask_whether_loaded(request, member, thread),
                None => self.on_thread(line, (way, false), request, member),
            },
            ClientMethod::TurnStart => self.on_turn_start(line, request, member),
            ClientMethod::TurnSteer => self.on_turn_steer(line, request),
            ClientMethod::Settings => self.on_settings_update(line, request),
            ClientMethod::Revert => self.on_revert(line, request),
            ClientMethod::Unsubscribe => self.on_parting(line, request, Meaning::Unsubscribed),
            ClientMethod::Shell => self.on_shell(line, request),
            ClientMethod::Work => self.on_work(line, request),
            ClientMethod::WorkOfModel => self.on_work_of_model(line, request),
        }
    }

    /// Refuses a request that was noted when it came.
    pub(super) fn refuse(&mut self, id: RequestId, denial: Denial) -> ClientVerdict {
        self.pending.withdraw(&id);
        ClientVerdict::Refuse { id, denial }
    }

    fn on_interrupt(&mut self, line: &[u8], Request { id, params, .. }: Request) -> ClientVerdict {
        let _ = self.pending.try_note(id, Meaning::Other);
        let text = |name| member_text(line, &params, &[name]);
        let turn = text("turnId").and_then(TurnId::new);
        match (text("threadId").and_then(ThreadId::new), turn) {
            (Some(thread), Some(turn)) => ClientVerdict::Interrupt { thread, turn },
            _ => ClientVerdict::Pass,
        }
    }

    fn on_initialize(
        &mut self,
        line: &Bytes,
        Request { id, params, .. }: Request,
    ) -> ClientVerdict {
        let _ = self.pending.try_note(id, Meaning::Initialize);
        if self.client.initialized {
            return ClientVerdict::Pass;
        }
        let experimental = member(line, &params, &["capabilities", "experimentalApi"]);
        let names = member(
            line,
            &params,
            &["capabilities", "optOutNotificationMethods"],
        );
        let (unwanted, edit) = names
            .map(|names| keep_needed(line, &names))
            .unwrap_or_default();
        self.warnings.is_wanted |= warnings::are_asked_for(line, &params);
        self.client = Client {
            initialized: false,
            experimental_api: experimental.is_some_and(|at| line.get(at) == Some(b"true")),
            unwanted,
            codex_version: None,
        };
        edit.map_or(ClientVerdict::Pass, |edit| {
            ClientVerdict::Rewrite(vec![edit])
        })
    }
}

/// What becomes of a line with these edits.
pub(super) fn rewritten(edits: Vec<Edit>) -> ClientVerdict {
    if edits.is_empty() {
        ClientVerdict::Pass
    } else {
        ClientVerdict::Rewrite(edits)
    }
}

/// Splits a list of notification names: those that the relay needs, and the edit that takes them
/// out of the list.
fn keep_needed(line: &[u8], names: &Range<usize>) -> (Vec<String>, Option<Edit>) {
    split(line, names).unwrap_or_default()
}

fn split(line: &[u8], names: &Range<usize>) -> Option<(Vec<String>, Option<Edit>)> {
    let mut unwanted: Vec<String> = Vec::new();
    let mut kept = b"[".to_vec();
    let mut elements = Elements::at(line, names.start).ok()?;
    while let Some(element) = elements.next_element().ok()? {
        let name = text(line, &element).filter(|name| methods::of_codex(name).is_some());
        match name {
            Some(name) if unwanted.contains(&name) => {}
            Some(name) => unwanted.push(name),
            None => {
                if kept.len() > 1 {
                    kept.push(b',');
                }
                kept.extend_from_slice(line.get(element)?);
            }
        }
    }
    if unwanted.is_empty() {
        return None;
    }
    kept.push(b']');
    Some((unwanted, Some(Edit::replace(names.clone(), kept))))
}
