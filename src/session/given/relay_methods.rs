//! The relay's own methods: `relay/…`, answered here, never seen by codex.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::base::ids::{Generation, RequestId, ThreadId};
use crate::context::compose::Prepared;
use crate::context::given::Given;
use crate::context::reference::Reference;
use crate::context::snapshot::Snapshot;
use crate::context::supplier::Supplier;
use crate::context::turn_kind::TurnKind;
use crate::context::wish::Wish;
use crate::control::answers::{self, Cleared};
use crate::session::given::given_params::{self, Excess, shown, unknown};
use crate::session::given::registrations::{Lifetime, Registered};
use crate::session::intercept::{ClientVerdict, Prepare, Target};
use crate::session::machine::{Denial, Meaning, Session};
use crate::session::methods::RelayMethod;
use crate::session::parent::registry::GivenFor;

/// A registration that waits for its text to be put together.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::session) struct NewRegistration {
    id: RequestId,
    params: ContextSet,
}

/// The params of `relay/context/set`.
#[derive(Debug, PartialEq, Eq)]
struct ContextSet {
    thread: Option<ThreadId>,
    lifetime: Lifetime,
    given: Arc<Given>,
    references: Option<Arc<[Reference]>>,
    memory_tools: Option<bool>,
}

/// A request to the relay.
#[derive(Debug)]
pub(in crate::session) struct RelayCall {
    name: String,
    id: RequestId,
    params: Params,
}

/// The params of a request to the relay.
#[derive(Debug)]
enum Params {
    Excess(Excess),
    Fault(String),
    Read(Map<String, Value>),
}

impl RelayCall {
    /// Reads the params of a request.
    pub(in crate::session) fn read(
        line: &[u8],
        name: String,
        id: RequestId,
        params: Option<Range<usize>>,
    ) -> Self {
        let gives = RelayMethod::from_name(&name) == Some(RelayMethod::ContextSet);
        let excess = params.as_ref().filter(|_| gives);
        let params = match excess.and_then(|params| Excess::of(line, params)) {
            Some(excess) => Params::Excess(excess),
            None => object(params.map_or(b"{}", |params| line.get(params).unwrap_or_default())),
        };
        Self { name, id, params }
    }
}

impl Session {
    /// Answers a request of the relay's own name space.
    pub(in crate::session) fn on_relay_method(&mut self, call: RelayCall) -> ClientVerdict {
        let RelayCall { name, id, params } = call;
        let Some(method) = RelayMethod::from_name(&name) else {
            let method = shown(&name);
            let denial = Denial::RelayMethodUnknown { method };
            return ClientVerdict::Refuse { id, denial };
        };
        let verdict = match params {
            Params::Read(params) => self.on_relay_request(method, &id, &params),
            Params::Excess(excess) => Err(Fault::Denial(self.context_too_large(excess))),
            Params::Fault(fault) => Err(Fault::Params(fault)),
        };
        verdict.unwrap_or_else(|fault| {
            let denial = match fault {
                Fault::Params(fault) => Denial::RelayParams {
                    method: name,
                    fault,
                },
                Fault::Denial(denial) => denial,
            };
            ClientVerdict::Refuse { id, denial }
        })
    }

    fn on_relay_request(
        &mut self,
        method: RelayMethod,
        id: &RequestId,
        params: &Map<String, Value>,
    ) -> Result<ClientVerdict, Fault> {
        match method {
            RelayMethod::Info => {
                only(params, &[])?;
                Ok(answer(id, &json!(self.info())))
            }
            RelayMethod::Status => {
                let status = self.status(of_thread(params)?.as_ref());
                Ok(answer(id, &json!(status.map_err(Fault::Denial)?)))
            }
            RelayMethod::ContextClear => {
                self.clear(of_thread(params)?.as_ref());
                Ok(answer(id, &json!(Cleared {})))
            }
            RelayMethod::ContextSet => {
                let params = context_set(params)?;
                let denial = match &params.thread {
                    Some(thread) => self.cannot_keep(Some(thread.as_str())),
                    None => self.cannot_give(),
                };
                if let Some(denial) = denial {
                    return Err(Fault::Denial(denial));
                }
                let id = id.clone();
                let wish = Wish {
                    given: Some(Arc::clone(&params.given)),
                    ..Wish::default()
                };
                let target = Target::Registration(NewRegistration { id, params });
                Ok(ClientVerdict::Prepare(Prepare::new(wish, target)))
            }
        }
    }

    /// Why the client can't give a context at all.
    pub(in crate::session) fn cannot_give(&self) -> Option<Denial> {
        (self.config.supplier == Supplier::Nobody).then_some(Denial::NoContext)
    }

    /// Why a context can't be kept for `thread`, or for one that is to come.
    pub(in crate::session) fn cannot_keep(&self, thread: Option<&str>) -> Option<Denial> {
        // Those of threads that are being opened count: a client may send many before it reads an answer.
        let is_on_its_way = |meaning: &Meaning| {
            matches!(
                meaning,
                Meaning::Thread {
                    registered: Some(_),
                    ..
                }
            )
        };
        let on_their_way = self.pending.count(is_on_its_way);
        let is_full = self.registrations.is_full_for(thread, on_their_way);
        self.cannot_give()
            .or_else(|| is_full.then(Denial::contexts_are_kept))
    }

    /// Puts a registration in force, whose text was put together.
    pub(in crate::session) fn on_registration(
        &mut self,
        NewRegistration { id, params }: NewRegistration,
        prepared: Option<&Prepared>,
        fresh: Generation,
    ) -> ClientVerdict {
        let Some(prepared) = prepared else {
            let denial = Denial::ContextUnavailable;
            return ClientVerdict::Refuse { id, denial };
        };
        if let Err(denial) = self.measure(&prepared.snapshot) {
            return ClientVerdict::Refuse { id, denial };
        }
        let snapshot = Arc::clone(&prepared.snapshot);
        let result = json!(answers::Registered {
            generation: fresh.as_str().to_owned(),
            bytes: snapshot.text().len(),
        });
        let registered = Registered {
            generation: fresh,
            given: params.given,
            references: params.references,
            memory_tools: params.memory_tools,
            snapshot,
        };
        match (&params.thread, params.lifetime) {
            (Some(thread), Lifetime::Thread) => self.give_to_thread(thread, registered),
            (Some(thread), Lifetime::Turn) => {
                // There is room: it was asked for.
                let _ = self.registrations.set(thread, Lifetime::Turn, registered);
            }
            (None, _) => {
                let text = Some(Arc::clone(&registered.snapshot));
                self.registrations.set_default(registered);
                for thread in self.registry.ids() {
                    if self.registrations.thread(thread.as_str()).is_none() {
                        self.note_current(thread.as_str(), text.clone());
                    }
                }
            }
        }
        answer(&id, &result)
    }

    /// Registers a text for a thread until it is replaced or cleared.
    pub(in crate::session) fn give_to_thread(&mut self, thread: &ThreadId, registered: Registered) {
        let text = Some(Arc::clone(&registered.snapshot));
        if let Err(full) = self.registrations.set(thread, Lifetime::Thread, registered) {
            tracing::warn!(%thread, %full, "the thread's own context is not kept");
            return;
        }
        self.registry.note_given(thread.as_str(), GivenFor::AnyTurn);
        self.note_current(thread.as_str(), text);
    }

    /// Forgets what the client gave for a turn that is over.
    pub(in crate::session) fn end_given(&mut self, thread: &str, ended: Option<Generation>) {
        if let Some(ended) = ended {
            self.registrations.end_turn(thread, Some(&ended));
        }
    }

    /// Whether the client has ever given a context.
    pub fn has_given(&self) -> bool {
        self.registrations.has_any()
    }

    fn clear(&mut self, thread: Option<&ThreadId>) {
        self.registrations.clear(thread.map(ThreadId::as_str));
        if let Some(thread) = thread {
            self.registry.note_given(thread.as_str(), GivenFor::AnyTurn);
            let default = self.registrations.default();
            let text = default.map(|default| Arc::clone(&default.snapshot));
            self.note_current(thread.as_str(), text);
            return;
        }
        for thread in self.registry.ids() {
            if self.registrations.thread(thread.as_str()).is_none() {
                self.note_current(thread.as_str(), None);
            }
        }
    }

    /// Notes the text for a thread's prewarms; one whose turns are unlike most gets none until its next
    /// turn.
    fn note_current(&mut self, thread: &str, text: Option<Arc<Snapshot>>) {
        let known = self.registry.find(thread);
        let is_like_most = known.is_some_and(|known| known.habits.kind == TurnKind::User);
        self.registry
            .note_current(thread, text.filter(|_| is_like_most));
    }
}

/// Why a request can't be served.
enum Fault {
    Params(String),
    Denial(Denial),
}

impl From<String> for Fault {
    fn from(fault: String) -> Self {
        Self::Params(fault)
    }
}

/// The line that answers a request.
fn answer(id: &RequestId, result: &Value) -> ClientVerdict {
    let id = String::from_utf8_lossy(id.as_bytes());
    ClientVerdict::Answer(Bytes::from(format!(
        "{{\"id\":{id},\"result\":{result}}}\n"
    )))
}

fn object(params: &[u8]) -> Params {
    if let Err(expected) = given_params::fits(params.len()) {
        return Params::Fault(format!("expected params of {expected}"));
    }
    match serde_json::from_slice(params) {
        Ok(Value::Object(map)) => Params::Read(map),
        Ok(Value::Null) => Params::Read(Map::new()),
        Ok(_) => Params::Fault("expected an object as params".to_owned()),
        Err(error) => Params::Fault(format!("params can't be read: {error}")),
    }
}

/// Refuses members that aren't `known`, with their names.
fn only(params: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    let unknown = unknown(params, known);
    if unknown.is_empty() {
        return Ok(());
    }
    let known = if known.is_empty() {
        "none".to_owned()
    } else {
        known.join(", ")
    };
    Err(format!(
        "unknown params: {}; it takes {known}",
        unknown.join(", ")
    ))
}

fn thread(params: &Map<String, Value>) -> Result<Option<ThreadId>, String> {
    match params.get("threadId") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(id)) if id.len() <= MAX_ID_BYTES => match ThreadId::new(id.as_str()) {
            Some(id) => Ok(Some(id)),
            None => Err("threadId is empty; leave it out for all threads".to_owned()),
        },
        Some(_) => Err("threadId: expected the id of a thread".to_owned()),
    }
}

/// The thread in params that name one at the most.
fn of_thread(params: &Map<String, Value>) -> Result<Option<ThreadId>, String> {
    match (only(params, &["threadId"]), thread(params)) {
        (Ok(()), thread) => thread,
        (Err(unknown), Ok(_)) => Err(unknown),
        (Err(unknown), Err(fault)) => Err(format!("{unknown}; {fault}")),
    }
}

fn context_set(params: &Map<String, Value>) -> Result<ContextSet, String> {
    let mut faults = Vec::new();
    faults.extend(only(params, &OF_CONTEXT_SET).err());
    let find = |name| params.get(name).filter(|value: &&Value| !value.is_null());
    let thread = thread(params);
    let lifetime = match find("scope").map(Value::as_str) {
        Some(Some("turn")) => Ok(Lifetime::Turn),
        Some(Some("thread")) => Ok(Lifetime::Thread),
        Some(_) => Err("scope: expected turn or thread".to_owned()),
        None => Err("scope is missing: expected turn or thread".to_owned()),
    };
    if let (Ok(None), Ok(Lifetime::Turn)) = (&thread, &lifetime) {
        faults.push("scope turn needs a threadId".to_owned());
    }
    let given = given_params::text_or_sections(params).map_err(|it| format!("expected {it}"));
    let references = find("references").map(given_params::references).transpose();
    let references = references.map_err(|it| format!("references: expected {it}"));
    let memory_tools = match find("memoryTools") {
        None => Ok(None),
        Some(Value::Bool(has_tools)) => Ok(Some(*has_tools)),
        Some(_) => Err("memoryTools: expected true or false".to_owned()),
    };
    match (thread, lifetime, given, references, memory_tools) {
        (Ok(thread), Ok(lifetime), Ok(given), Ok(references), Ok(memory_tools))
            if faults.is_empty() =>
        {
            Ok(ContextSet {
                thread,
                lifetime,
                given,
                references,
                memory_tools,
            })
        }
        (thread, lifetime, given, references, memory_tools) => {
            faults.extend(thread.err());
            faults.extend(lifetime.err());
            faults.extend(given.err());
            faults.extend(references.err());
            faults.extend(memory_tools.err());
            Err(faults.join("; "))
        }
    }
}

/// The params of `relay/context/set`.
const OF_CONTEXT_SET: [&str; 6] = [
    "threadId",
    "scope",
    "text",
    "sections",
    "references",
    "memoryTools",
];

/// The id of a thread that a registration may be kept under.
const MAX_ID_BYTES: usize = 256;

#[cfg(test)]
#[path = "relay_methods_tests.rs"]
mod tests;
