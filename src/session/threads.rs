//! Threads that the client starts, resumes and forks: their route, and what their turns are like.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::base::ids::{ProfileId, ThreadId};
use crate::base::limits::MAX_THREADS;
use crate::context::given::Given;
use crate::context::snapshot::Snapshot;
use crate::context::turn_kind::TurnKind;
use crate::context::wish::Wish;
use crate::session::config_edit;
use crate::session::eligibility::Ineligible;
use crate::session::intercept::{ClientVerdict, Prepare, Request, Target, rewritten};
use crate::session::machine::{Denial, Meaning, Session};
use crate::session::methods::ThreadWay;
use crate::session::registrations::{InForce, Registered};
use crate::session::relay_member::RelayMember;
use crate::wire::envelope::{member, member_text};

/// What the turns of a thread are like where they don't say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Habits {
    /// What they are for.
    pub kind: TurnKind,
    /// Whose overlay they get.
    pub profile: Option<ProfileId>,
    /// Whether they have tools for the memory, as far as anybody told; unknown counts as no.
    pub memory_tools: Option<bool>,
    /// The folder that the thread works in, as far as codex or the client told.
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
        }
    }
}

/// A thread whose route is not decided.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OpenThread {
    pub(super) request: Request,
    habits: Habits,
    /// What the client gives for the thread.
    pub(super) given: Option<Arc<Given>>,
}

/// A thread whose route waits for codex's answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) thread: OpenThread,
    pub(super) snapshot: Option<Arc<Snapshot>>,
    /// What the thread will have.
    pub(super) registered: Option<Registered>,
}

impl Session {
    pub(super) fn on_thread(
        &mut self,
        line: &Bytes,
        way: ThreadWay,
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
            Some(Denial::busy("threads are open", MAX_THREADS))
        } else {
            self.cannot_give(named.as_deref(), member.context.is_some())
        };
        if let Some(denial) = denial {
            return self.refuse(request.id, denial);
        }
        let habits = self.habits(line, way, &request.params, &member);
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
        });
        ClientVerdict::Prepare(Prepare { wish, target })
    }

    /// What the turns of the thread will be like: as the client says, else as they were.
    ///
    /// Codex is told of dynamic tools at the start alone; a fork is a thread of its own.
    fn habits(
        &self,
        line: &[u8],
        way: ThreadWay,
        params: &Range<usize>,
        member: &RelayMember,
    ) -> Habits {
        let known = match way {
            ThreadWay::Resume => member_text(line, params, &["threadId"])
                .and_then(|id| Some(self.registry.find(&id)?.habits.clone()))
                .unwrap_or_default(),
            ThreadWay::Start => Habits {
                memory_tools: has_memory_tools(line, params).then_some(true),
                ..Habits::default()
            },
            ThreadWay::Fork => Habits::default(),
        };
        Habits {
            kind: member.kind.unwrap_or(known.kind),
            profile: member.profile.clone().or(known.profile),
            memory_tools: member.memory_tools.or(known.memory_tools),
            folder: member_text(line, params, &["cwd"])
                .map(PathBuf::from)
                .or(known.folder),
        }
    }

    /// Routes the thread, unless something speaks against it.
    pub(super) fn route(
        &mut self,
        line: &Bytes,
        Route {
            thread,
            snapshot,
            registered,
        }: Route,
        ineligible: Option<Ineligible>,
    ) -> ClientVerdict {
        let OpenThread {
            request, habits, ..
        } = thread;
        if let Some(why) = ineligible {
            let reason = why.code();
            tracing::warn!(
                reason,
                "thread not routed, it gets no context: {}",
                why.words()
            );
        }
        let edit = match ineligible {
            Some(_) => None,
            None => config_edit::route(line, &request.params, &self.config.base_url),
        };
        let meaning = Meaning::Thread {
            routed: edit.is_some(),
            ineligible,
            // An oversized text refuses the turn, which can say why, not the thread.
            snapshot: snapshot.filter(|snapshot| self.measure(snapshot).is_ok()),
            habits,
            registered,
        };
        self.pending.settle(request.id, meaning);
        rewritten(edit.into_iter().collect())
    }

    /// Notes a request whose answer means a loss to one thread.
    pub(super) fn on_parting(
        &mut self,
        line: &Bytes,
        Request { id, params }: Request,
        meaning: fn(ThreadId) -> Meaning,
    ) -> ClientVerdict {
        let thread = member_text(line, &params, &["threadId"]).and_then(ThreadId::new);
        let meaning = thread.map_or(Meaning::Other, meaning);
        let _ = self.pending.try_note(id, meaning);
        ClientVerdict::Pass
    }
}

/// Whether the dynamic tools in `params` have both tools for the memory, deferred and namespaced
/// ones included.
fn has_memory_tools(line: &[u8], params: &Range<usize>) -> bool {
    let tools = member(line, params, &["dynamicTools"])
        .and_then(|at| serde_json::from_slice::<Value>(line.get(at)?).ok());
    let tools = tools.unwrap_or_default();
    let names: Vec<&str> = tools
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|tool| match tool.get("tools").and_then(Value::as_array) {
            Some(inner) => inner.iter().collect(),
            None => vec![tool],
        })
        .filter_map(|tool| tool.get("name")?.as_str())
        .collect();
    MEMORY_TOOLS.iter().all(|name| names.contains(name))
}

/// The tools that a memory is read with.
pub const MEMORY_TOOLS: [&str; 2] = ["memory_search", "memory_get"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_memory_tools_make_it_wherever_they_stand() {
        let has = |tools: &str| {
            let params = format!("{{\"dynamicTools\":{tools}}}");
            has_memory_tools(params.as_bytes(), &(0..params.len()))
        };
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
