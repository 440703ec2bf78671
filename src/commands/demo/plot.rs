//! What the model says in the demo: the parent spawns a helper, waits for it, and sums up.

use serde_json::{Value, json};

use crate::commands::endpoint::{Reply, Script, events};
use crate::commands::witness::Recorded;

/// What the user asks for.
pub(super) const QUESTION: &str = "Send a helper to say hello, then tell me what it said.";

/// The script of the demo's model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plot;

impl Script for Plot {
    fn reply(&self, request: &Recorded) -> Reply {
        let id = format!("resp_{}", request.number);
        let message = |text| events::message(&format!("msg_{}", request.number), text);
        let said = request.json().unwrap_or(&Value::Null);
        let item = if said.get("generate") == Some(&json!(false)) {
            None
        } else if request.is_child() {
            Some(message("Hello from the helper."))
        } else if has_result(said, WAIT) {
            Some(message("The helper said hello."))
        } else if has_result(said, SPAWN) {
            Some(events::wait_agent(WAIT, WAIT_MS))
        } else {
            Some(events::spawn_agent(SPAWN, "helper", "Say hello."))
        };
        Reply::events(events::answer(&id, item))
    }
}

/// Says whether the request brings the result of a call.
fn has_result(request: &Value, call: &str) -> bool {
    let input = request.get("input").and_then(Value::as_array);
    input.is_some_and(|input| {
        input.iter().any(|item| {
            item.get("type") == Some(&"function_call_output".into())
                && item.get("call_id") == Some(&call.into())
        })
    })
}

const SPAWN: &str = "call_spawn";

const WAIT: &str = "call_wait";

/// How long the parent waits at most; it goes on as soon as its helper is done.
const WAIT_MS: u64 = 60_000;
