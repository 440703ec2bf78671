//! Commands that run in the background of a thread: loading it anew would end them.
//!
//! Codex names them to clients with `experimentalApi` (0.155.1 and 0.171.0).

use bytes::Bytes;
use serde_json::json;

use crate::session::intercept::{Ask, ClientVerdict, Patience, Then};
use crate::session::machine::Session;
use crate::session::parent::turn::Ready;
use crate::wire::envelope::listed;

impl Session {
    /// Asks for the commands of a turn's thread before it is renewed.
    pub(in crate::session) fn ask_for_commands(&mut self, ready: Ready) -> ClientVerdict {
        let thread = ready.turn.thread.clone();
        let params = json!({ "threadId": thread.as_str() });
        let (id, question) = self.own.ask("thread/backgroundTerminals/list", &params);
        ClientVerdict::Ask(Ask {
            question,
            id,
            patience: Patience::Short,
            thread: Some(thread),
            then: Then::Count(Box::new(ready)),
        })
    }

    /// Goes on with the turn; without an answer no command is known to run.
    pub(in crate::session) fn go_on_with_commands(
        &mut self,
        line: &Bytes,
        mut ready: Ready,
        answer: Option<&Bytes>,
    ) -> ClientVerdict {
        let is_busy = answer
            .and_then(listed)
            .is_some_and(|mut commands| matches!(commands.next_element(), Ok(Some(_))));
        let thread = ready.turn.thread.as_str();
        self.ledger.set_busy(thread, is_busy);
        ready.turn.renewed.has_counted = true;
        self.settle_orders(line, ready)
    }
}
