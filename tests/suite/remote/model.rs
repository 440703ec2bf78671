//! A model that works on the other machine.

use codex_relay::commands::endpoint::{Reply, Script, Signal, Step, events};
use codex_relay::commands::witness::Recorded;
use serde_json::{Value, json};

use crate::support::model::Model;

/// Answers `[far]` with a command and an edit of a file, and everything else as [`Model`] does.
///
/// With `brief` behind it the model doesn't wait for the command's end. `[pour]` is answered with [`poured`], piece by
/// piece, and no end.
#[derive(Clone, Debug, Default)]
pub(crate) struct FarModel(pub(crate) Model);

impl Script for FarModel {
    fn reply(&self, request: &Recorded) -> Reply {
        let input = request.json().and_then(|body| body.get("input"));
        let input: &[Value] = input.and_then(Value::as_array).map_or(&[], Vec::as_slice);
        let last = input.last().map(Value::to_string).unwrap_or_default();
        let is_turn = request.purpose().as_deref() == Some("turn");
        let number = request.number;
        if is_turn && last.contains("[pour]") {
            return pour(&format!("resp-{number}"));
        }
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

/// An answer that comes in pieces and doesn't end.
fn pour(id: &str) -> Reply {
    let item = events::message(id, "");
    let added = json!({"type": "response.output_item.added", "output_index": 0, "item": item});
    let piece = |piece: String| json!({"type": "response.output_text.delta", "item_id": id, "delta": piece});
    let pieces = (0..PIECES).map(|number| piece(poured(number)));
    let events = [events::created(id), added].into_iter().chain(pieces);
    Reply::events(events).then([Step::Await(Signal::new())])
}

/// One piece of what is poured.
pub(crate) fn poured(number: usize) -> String {
    format!("piece {number}, ")
}

/// So many that a connection is cut before the last of them.
const PIECES: usize = 20_000;

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
    : > looking; until [ -e go ]; do sleep 0.02; done; echo seen by a command; : > said";
