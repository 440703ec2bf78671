//! The events of the Responses API that codex needs to end a turn, as it was seen to accept them.
//!
//! Read from codex 0.171.0 and 0.155.1 by answering them.

use serde_json::{Value, json};

/// The first event of an answer.
pub fn created(response: &str) -> Value {
    json!({"type": "response.created", "response": {"id": response}})
}

/// An item of output.
pub fn item_done(item: &Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": 0, "item": item})
}

/// The last event of an answer.
pub fn completed(response: &str) -> Value {
    json!({"type": "response.completed", "response": {
        "id": response,
        "usage": {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 10,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 110,
        },
    }})
}

/// The last event of an answer that failed.
pub fn failed(response: &str, code: &str, message: &str) -> Value {
    json!({"type": "response.failed", "response": {
        "id": response,
        "error": {"code": code, "message": message},
    }})
}

/// A whole answer with these items of output.
pub fn answer(response: &str, items: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let mut events = vec![created(response)];
    events.extend(items.into_iter().map(|item| item_done(&item)));
    events.push(completed(response));
    events
}

/// An assistant's message.
pub fn message(id: &str, text: &str) -> Value {
    json!({
        "type": "message",
        "role": "assistant",
        "id": id,
        "content": [{"type": "output_text", "text": text}],
    })
}

/// A call of a top-level function.
///
/// It has an id of its own: codex 0.155.1 makes one up where it is missing, no longer recognises
/// the item by it, and sends the next request on a WebSocket whole instead of its new input alone.
pub fn call(call: &str, name: &str, arguments: &Value) -> Value {
    json!({
        "type": "function_call",
        "id": format!("fc_{call}"),
        "call_id": call,
        "name": name,
        "arguments": arguments.to_string(),
    })
}

/// A call of a function in a namespace.
pub fn call_in(namespace: &str, id: &str, name: &str, arguments: &Value) -> Value {
    let mut item = call(id, name, arguments);
    if let Some(members) = item.as_object_mut() {
        members.insert("namespace".to_owned(), namespace.into());
    }
    item
}

/// A call that spawns a sub-agent with a fresh history.
pub fn spawn_agent(call: &str, task: &str, message: &str) -> Value {
    let arguments = json!({"task_name": task, "message": message, "fork_turns": "none"});
    call_in(COLLABORATION, call, "spawn_agent", &arguments)
}

/// A call that waits for sub-agents.
pub fn wait_agent(call: &str, timeout_ms: u64) -> Value {
    call_in(
        COLLABORATION,
        call,
        "wait_agent",
        &json!({"timeout_ms": timeout_ms}),
    )
}

/// A call that runs a command.
pub fn exec_command(id: &str, command: &str) -> Value {
    call(id, "exec_command", &json!({"cmd": command}))
}

/// The item that takes the place of a compacted history.
pub fn compaction(content: &str) -> Value {
    json!({"type": "compaction", "encrypted_content": content})
}

const COLLABORATION: &str = "collaboration";
