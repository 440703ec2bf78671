//! Whether a thread has tools for the memory, where the client doesn't say: codex is asked which
//! tools the thread's MCP servers have.
//!
//! Asked before a thread's first turn that would be told of `MEMORY.md`, and not again once every
//! server has started or failed: codex 0.155.1 starts them anew for each answer. A server that isn't
//! up in time counts as none for this turn, and an answer that comes late is for the next.

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::base::ids::ThreadId;
use crate::base::limits::{MAX_EARLY_QUESTIONS, MAX_OWN_ANSWERS};
use crate::context::fragment::MEMORY_FILE;
use crate::context::wish::Wish;
use crate::session::intercept::{Ask, ClientVerdict, Patience, Prepare, Target, Then};
use crate::session::machine::Session;
use crate::session::own::OwnId;
use crate::session::parent::threads::MEMORY_TOOLS;
use crate::session::parent::turn::Ready;
use crate::wire::envelope::{Envelope, member};

/// Questions whose answers say which tools a thread has.
#[derive(Debug, Default)]
pub(in crate::session) struct ToolQuestions {
    open: VecDeque<(OwnId, ThreadId)>,
    /// How often the answer was that a server is still starting.
    early: u32,
}

impl Session {
    /// Whether the thread of a turn might turn its `MEMORY.md` into a pointer, for all we know.
    pub(in crate::session) fn must_ask_for_tools(
        &self,
        Ready {
            turn,
            wish,
            prepared,
            ..
        }: &Ready,
    ) -> bool {
        let known = self.registry.find(turn.thread.as_str());
        let is_unknown = known.is_some_and(|known| known.habits.memory_tools.is_none());
        let shows_it = prepared
            .references
            .iter()
            .any(|it| it.path == MEMORY_FILE && wish.references.is_none());
        let is_open = turn.may_have_memory && wish.kind.has_tools() && !wish.has_memory_tools;
        is_open && shows_it && is_unknown && !self.is_silent
    }

    pub(in crate::session) fn ask_for_tools(&mut self, ready: Ready) -> ClientVerdict {
        let thread = ready.turn.thread.clone();
        let params = json!({ "threadId": thread.as_str(), "detail": "toolsAndAuthOnly" });
        let (id, question) = self.own.ask("mcpServerStatus/list", &params);
        // Not asked twice at a time.
        self.registry
            .note_memory_tools(thread.as_str(), Some(false));
        self.tools.note(id, thread.clone());
        ClientVerdict::Ask(Ask {
            question,
            id,
            patience: Patience::Short,
            thread: Some(thread),
            then: Then::Remember(Box::new(ready)),
        })
    }

    /// Goes on with the turn: with another context where the thread has the tools.
    pub(in crate::session) fn go_on_with_tools(
        &mut self,
        line: &Bytes,
        ready: Ready,
    ) -> ClientVerdict {
        let known = self.registry.find(ready.turn.thread.as_str());
        if known.is_some_and(|known| known.habits.memory_tools == Some(true)) {
            let wish = Wish {
                has_memory_tools: true,
                ..ready.wish
            };
            let target = Target::Turn(ready.turn);
            return ClientVerdict::Prepare(Prepare::new(wish, target));
        }
        self.settle_orders(line, ready)
    }

    /// Learns from codex's answer to a question of ours, in time or not.
    pub(in crate::session) fn learn_tools(&mut self, id: OwnId, line: &[u8], envelope: &Envelope) {
        let Some(thread) = self.tools.take(id) else {
            return;
        };
        let servers = envelope
            .result
            .as_ref()
            .and_then(|result| member(line, result, &["data"]))
            .and_then(|at| serde_json::from_slice::<Value>(line.get(at)?).ok());
        let Some(servers) = servers else {
            return;
        };
        if one_has_both(&servers) {
            self.registry.note_memory_tools(thread.as_str(), Some(true));
        } else if one_may_come(&servers) && self.tools.may_ask_again() {
            self.registry.note_memory_tools(thread.as_str(), None);
        }
    }
}

impl ToolQuestions {
    fn note(&mut self, id: OwnId, thread: ThreadId) {
        if self.open.len() >= MAX_OWN_ANSWERS {
            // Codex never answered it.
            self.open.pop_front();
        }
        self.open.push_back((id, thread));
    }

    fn take(&mut self, id: OwnId) -> Option<ThreadId> {
        let at = self.open.iter().position(|(known, _)| *known == id)?;
        self.open.remove(at).map(|(_, thread)| thread)
    }

    /// Whether a thread whose servers are still starting is asked for at its next turn. / A server
    /// that never comes up must not cost a question in each turn for ever.
    fn may_ask_again(&mut self) -> bool {
        self.early += 1;
        self.early <= MAX_EARLY_QUESTIONS
    }
}

/// Whether a server is on its way.
fn one_may_come(servers: &Value) -> bool {
    servers.as_array().into_iter().flatten().any(|server| {
        let status = server.get("runtimeStatus").and_then(Value::as_str);
        matches!(status, Some("starting" | "notStarted"))
    })
}

/// Whether one server that runs has both tools.
fn one_has_both(servers: &Value) -> bool {
    servers.as_array().into_iter().flatten().any(|server| {
        let status = server.get("runtimeStatus").and_then(Value::as_str);
        let has = |name: &&str| server.get("tools").is_some_and(|it| it.get(name).is_some());
        status.is_none_or(|status| status == "connected") && MEMORY_TOOLS.iter().all(has)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_that_runs_must_have_both() {
        let server = |status: &str, tools: Value| json!({"runtimeStatus": status, "tools": tools});
        let both = || json!({"memory_search": {}, "memory_get": {}, "other": {}});
        assert!(one_has_both(&json!([server("connected", both())])));
        assert!(one_has_both(&json!([{"tools": both()}])));
        assert!(!one_has_both(&json!([server("failed", both())])));
        let halves = [
            server("connected", json!({"memory_search": {}})),
            server("connected", json!({"memory_get": {}})),
        ];
        assert!(!one_has_both(&json!(halves)));
        assert!(!one_has_both(&json!(null)));
        assert!(one_may_come(&json!([
            server("failed", both()),
            server("starting", json!({}))
        ])));
        assert!(!one_may_come(&json!([server("failed", both())])));
    }
}
