//! Threads that the client starts, resumes and forks: their route, and what their turns are like.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::base::ids::{ProfileId, ThreadId};
use crate::context::compose::Prepared;
use crate::context::given::Given;
use crate::context::orders::{Orders, Text};
use crate::context::snapshot::Snapshot;
use crate::context::turn_kind::TurnKind;
use crate::context::wish::Wish;
use crate::session::given::registrations::{InForce, Registered};
use crate::session::given::relay_member::RelayMember;
use crate::session::instructions::opening::{Base, Opening};
use crate::session::instructions::places::Places;
use crate::session::intercept::{ClientVerdict, Prepare, Target, rewritten};
use crate::session::machine::{Denial, Meaning, Session};
use crate::session::methods::ThreadWay;
use crate::session::parent::tally::ContextAccount;
use crate::session::reading::Request;
use crate::session::route::eligibility::Ineligible;
use crate::wire::edit::Edit;
use crate::wire::envelope::{member, member_text};
use crate::wire::scan::{Elements, ScanError};

/// What the turns of a thread are like where they don't say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Habits {
    /// What they are for.
    pub kind: TurnKind,
    /// Whose overlay they get.
    pub profile: Option<ProfileId>,
    /// Whether they have tools for the memory, as far as anybody told; unknown counts as no.
    pub memory_tools: Option<bool>,
    /// The folder of this machine that the thread works in, as far as codex or the client told.
    pub folder: Option<PathBuf>,
}

impl Habits {
    /// What a turn with `member` wishes, where the client has given what is `in_force`.
    pub fn wish(&self, member: &RelayMember, in_force: InForce) -> Wish {
        let told = member.memory_tools.or(in_force.memory_tools);
        let has_tools = told.or(self.memory_tools) == Some(true);
        Wish {
            kind: member.kind.unwrap_or(self.kind),
            profile: member.profile.clone().or_else(|| self.profile.clone()),
            has_memory_tools: has_tools && member.tools_disabled != Some(true),
            folder: self.folder.clone(),
            given: member.context.clone().or(in_force.given),
            references: member.references.clone().or(in_force.references),
            is_shared: false,
        }
    }
}

/// A thread whose route is not decided.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::session) struct OpenThread {
    pub(in crate::session) request: Request,
    pub(in crate::session) habits: Habits,
    /// What the client gives for the thread.
    pub(in crate::session) given: Option<Arc<Given>>,
    pub(in crate::session) way: ThreadWay,
    /// The client returns to a thread that codex has in its memory, and brings nothing.
    is_rejoined: bool,
    /// The policy that the client gives.
    pub(in crate::session) policy: Option<Arc<str>>,
}

/// A thread whose route waits for codex's answers.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::session) struct Route {
    pub(in crate::session) thread: OpenThread,
    pub(in crate::session) snapshot: Option<Arc<Snapshot>>,
    /// What the thread will have.
    pub(in crate::session) registered: Option<Registered>,
    pub(in crate::session) orders: Orders,
    /// The developer instructions of the user's configuration.
    pub(in crate::session) base: Option<Base>,
    /// Whether it has room for the documents of a project, as far as anybody told.
    pub(in crate::session) has_room: Option<bool>,
    /// What its text is made of.
    pub(in crate::session) account: Option<Arc<ContextAccount>>,
}

impl Session {
    /// With `is_rejoined` codex has the thread, and the resume brings nothing of the client's.
    pub(in crate::session) fn on_thread(
        &mut self,
        line: &Bytes,
        (way, is_rejoined): (ThreadWay, bool),
        request: Request,
        member: RelayMember,
    ) -> ClientVerdict {
        let named = match way {
            ThreadWay::Resume => member_text(line, &request.params, &["threadId"]),
            ThreadWay::Start | ThreadWay::Fork => None,
        };
        let known = named.as_ref().and_then(|id| self.registry.find(id));
        // Those that are being opened count: a client may send many before it reads an answer.
        let is_opening = |meaning: &Meaning| matches!(meaning, Meaning::Thread { .. });
        let is_full = known.is_none() && self.registry.room() <= self.pending.count(is_opening);
        let denial = if is_full {
            Some(Denial::threads_are_open())
        } else {
            let keep = || self.cannot_keep(named.as_deref());
            member.context.as_ref().and_then(|_| keep())
        };
        if let Some(denial) = denial {
            return self.refuse(request.id, denial);
        }
        let policy = member.policy.as_deref().map(Arc::from);
        let habits = self.habits(line, way, &request, &member);
        let given = member.context;
        let mut wish = habits.wish(
            &RelayMember::default(),
            self.registrations.usual(named.as_deref()),
        );
        wish.given = given.clone().or(wish.given);
        let target = Target::Thread(OpenThread {
            request,
            habits,
            given,
            way,
            is_rejoined,
            policy,
        });
        ClientVerdict::Prepare(Prepare::new(wish, target))
    }

    /// What the turns of the thread will be like: as the client says, else as they were.
    ///
    /// Codex is told of dynamic tools at the start alone; a fork is a thread of its own.
    fn habits(
        &self,
        line: &[u8],
        way: ThreadWay,
        request: &Request,
        member: &RelayMember,
    ) -> Habits {
        let params = &request.params;
        let chosen = request.places_of_thread(way).and_then(Places::folder);
        let chosen = chosen.cloned();
        let known = match way {
            ThreadWay::Resume => member_text(line, params, &["threadId"])
                .and_then(|id| Some(self.registry.find(&id)?.habits.clone()))
                .unwrap_or_default(),
            ThreadWay::Start => Habits {
                memory_tools: request.said.has_memory_tools.then_some(true),
                ..Habits::default()
            },
            ThreadWay::Fork => Habits::default(),
        };
        Habits {
            kind: member.kind.unwrap_or(known.kind),
            profile: member.profile.clone().or(known.profile),
            memory_tools: member.memory_tools.or(known.memory_tools),
            folder: chosen
                .or_else(|| member_text(line, params, &["cwd"]).map(PathBuf::from))
                .or(known.folder),
        }
    }

    /// Routes the thread, unless something speaks against it: then it is told of its context in
    /// its developer instructions.
    pub(in crate::session) fn route(
        &mut self,
        line: &Bytes,
        route: Route,
        ineligible: Option<Ineligible>,
    ) -> ClientVerdict {
        let Some(why) = ineligible else {
            return self.open(line, route, None, None);
        };
        let named = member_text(line, &route.thread.request.params, &["threadId"])
            .filter(|_| route.thread.way == ThreadWay::Resume);
        let in_force = self.registrations.usual(named.as_deref());
        let wish = route.thread.habits.wish(&RelayMember::default(), in_force);
        let wish = Wish {
            is_shared: true,
            given: route.thread.given.clone().or(wish.given),
            ..wish
        };
        let orders = Ok(route.orders.clone());
        let target = Target::Fallback(Box::new((route, why)));
        ClientVerdict::Prepare(Prepare {
            orders,
            ..Prepare::new(wish, target)
        })
    }

    /// Opens the thread; `shared` is what one without a route is told.
    pub(in crate::session) fn open(
        &mut self,
        line: &Bytes,
        route: Route,
        ineligible: Option<Ineligible>,
        shared: Option<&Prepared>,
    ) -> ClientVerdict {
        let mut opening = self.opening(line, &route);
        let from = route.account.as_ref().map_or("none", |it| it.from);
        let account = shared.map(|it| Arc::new(ContextAccount::of(it, from)));
        // An oversized text refuses the turn, which can say why, not the thread.
        let shared = shared.map(|it| &it.snapshot);
        let shared = shared.filter(|it| self.measure(it).is_ok());
        let section = shared.map_or("", |it| it.text());
        let text = self.opening_text(&route, &opening, ineligible.map(|_| section));
        if let Err(denial) = Self::measure_base(&opening, &text) {
            return self.refuse(route.thread.request.id, denial);
        }
        let source = opening.source.as_ref().map_or("", ThreadId::as_str);
        let is_known = ineligible == self.routes.reason(source);
        if let Some(why) = ineligible.filter(|_| !is_known) {
            let (reason, words) = (why.code(), why.words());
            let carrier = if section.is_empty() {
                "there is no context that would go another way"
            } else {
                "its context goes into its developer instructions, which children may inherit"
            };
            tracing::warn!(reason, "thread not routed, {carrier}: {words}");
            let words = format!("thread not routed, {carrier}: {words}");
            self.warn(None, reason, words);
        }
        let (routed, edits) = self.opening_edits(line, &route, (&mut opening, &text), ineligible);
        let Route {
            thread,
            snapshot,
            registered,
            account: of_route,
            ..
        } = route;
        let meaning = Meaning::Thread {
            routed,
            ineligible,
            snapshot: snapshot.filter(|snapshot| self.measure(snapshot).is_ok()),
            habits: thread.habits,
            registered,
            telling: Box::new((opening, text)),
            account: account.or(of_route),
        };
        self.pending.settle(thread.request.id, meaning);
        rewritten(edits)
    }

    /// Plans the edits that open a thread, and whether it goes the private route then.
    fn opening_edits(
        &self,
        line: &Bytes,
        route: &Route,
        (opening, text): (&mut Opening, &Text),
        ineligible: Option<Ineligible>,
    ) -> (bool, Vec<Edit>) {
        let source = opening.source.as_ref().map_or("", ThreadId::as_str);
        let told = self.ledger.find(source);
        let goes_its_way = told.is_some_and(|told| told.is_routed() == ineligible.is_none());
        if route.thread.is_rejoined && goes_its_way {
            // It is left as codex has it; what is another text now comes with its next turn.
            opening.is_routed = ineligible.is_none();
            return (opening.is_routed, Vec::new());
        }
        let params = &route.thread.request.params;
        let edit = match ineligible {
            Some(_) => None,
            None => self.route_edit(line, params, opening),
        };
        let routed = edit.is_some();
        opening.is_routed = routed;
        let told = self.instructions_edit(line, route, (opening, text), routed);
        (routed, edit.into_iter().chain(told).collect())
    }

    /// Notes a request whose answer means a loss to one thread.
    pub(in crate::session) fn on_parting(
        &mut self,
        line: &Bytes,
        Request { id, params, .. }: Request,
        meaning: fn(ThreadId) -> Meaning,
    ) -> ClientVerdict {
        let thread = member_text(line, &params, &["threadId"]).and_then(ThreadId::new);
        let meaning = thread.map_or(Meaning::Other, meaning);
        let _ = self.pending.try_note(id, meaning);
        ClientVerdict::Pass
    }
}

/// Whether both tools for the memory are in the list of dynamic tools at `list`, deferred and namespaced
/// ones included.
pub(in crate::session) fn has_memory_tools(line: &[u8], list: &Range<usize>) -> bool {
    let mut has = [false; MEMORY_TOOLS.len()];
    let is_list = note_tools(line, list, &mut has, Depth::Outer).is_ok();
    is_list && has.iter().all(|has| *has)
}

/// Whether what is called `tools` in a tool is looked into: namespaces have no namespaces in them.
#[derive(Clone, Copy)]
enum Depth {
    Outer,
    Inner,
}

fn note_tools(
    line: &[u8],
    list: &Range<usize>,
    has: &mut [bool; MEMORY_TOOLS.len()],
    depth: Depth,
) -> Result<(), ScanError> {
    let mut tools = Elements::at(line, list.start)?;
    while let Some(tool) = tools.next_element()? {
        let inner = member(line, &tool, &["tools"]);
        let inner = inner.filter(|at| line.get(at.start) == Some(&b'['));
        if let (Depth::Outer, Some(inner)) = (depth, inner) {
            note_tools(line, &inner, has, Depth::Inner)?;
            continue;
        }
        let name = member_text(line, &tool, &["name"]);
        for (has, known) in has.iter_mut().zip(MEMORY_TOOLS) {
            *has |= name.as_deref() == Some(known);
        }
    }
    Ok(())
}

/// The tools that a memory is read with.
pub const MEMORY_TOOLS: [&str; 2] = ["memory_search", "memory_get"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_memory_tools_make_it_wherever_they_stand() {
        let has = |tools: &str| has_memory_tools(tools.as_bytes(), &(0..tools.len()));
        let search = r#"{"type":"function","name":"memory_search"}"#;
        let get = r#"{"type":"function","name":"memory_get","deferLoading":true}"#;
        assert!(has(&format!("[{search},{get}]")));
        assert!(has(&format!(
            r#"[{{"type":"namespace","name":"m","tools":[{search},{get}]}}]"#
        )));
        assert!(has(&format!(
            r#"[{search},{{"type":"namespace","name":"m","tools":[{get}]}}]"#
        )));
        for tools in [
            "[]".to_owned(),
            "null".to_owned(),
            "7".to_owned(),
            format!("[{search}]"),
            format!(r#"[{search},{{"type":"namespace","name":"memory_get","tools":[]}}]"#),
        ] {
            assert!(!has(&tools), "{tools}");
        }
    }
}
