//! A model that works on the other machine.

use codex_relay::commands::endpoint::{Reply, Script, events};
use codex_relay::commands::witness::Recorded;
use serde_json::{Value, json};

use crate::support::model::Model;

/// Answers `[far]` with a command and an edit of a file, and everything else as [`Model`] does.
///
/// With `brief` behind it the model doesn't wait for the command's end.
#[derive(Clone, Debug, Default)]
pub(crate) struct FarModel(pub(crate) Model);

impl Script for FarModel {
    fn reply(&self, request: &Recorded) -> Reply {
        let input = request.json().and_then(|body| body.get("input"));
        let input: &[Value] = input.and_then(Value::as_array).map_or(&[], Vec::as_slice);
        let last = input.last().map(Value::to_string).unwrap_or_default();
        let is_turn = request.purpose().as_deref() == Some("turn");
        let number = request.number;
        let item = if !is_turn {
            None
        } else if last.contains("[far]") {
            let patience = if last.contains("brief") { 500 } else { 30_000 };
            let arguments = json!({"cmd": LOOK, "yield_time_ms": patience});
            Some(events::call(
                &format!("look-{number}"),
                "exec_command",
                &arguments,
            ))
        } else if last.contains("\"look-") {
            Some(edit(&format!("edit-{number}")))
        } else {
            None
        };
        match item {
            Some(item) => Reply::events(events::answer(&format!("resp-{number}"), [item])),
            None => self.0.reply(request),
        }
    }
}

/// A call that adds a file.
fn edit(call: &str) -> Value {
    json!({
        "type": "custom_tool_call",
        "id": format!("ctc_{call}"),
        "call_id": call,
        "name": "apply_patch",
        "input": "*** Begin Patch\n*** Add File: edited\n+by apply_patch\n*** End Patch\n",
    })
}

/// Writes down what a command sees around it, and waits until the test has looked, too. There is no `PATH` there.
const LOOK: &str = "PATH=/usr/bin:/bin; pwd > seen; cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ >> seen; \
    : > looking; until [ -e go ]; do sleep 0.02; done; echo seen by a command";
