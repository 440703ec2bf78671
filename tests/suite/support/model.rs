//! The model of the tests: what it does is written in the prompt.

use codex_relay::commands::endpoint::{Reply, Script, Signal, Step, events};
use codex_relay::commands::witness::Recorded;
use http::StatusCode;
use serde_json::{Value, json};

/// Answers by what the last item of the input says.
///
/// | a prompt with | is answered with |
/// |---|---|
/// | `[commands N]` | N commands, one after the other, then a message |
/// | `[approval]` | a command that asks to leave the sandbox |
/// | `[wait]` | a command that outlasts every test |
/// | `[stubborn]` | such a command that heeds no signal but KILL, with a child in a session of its own |
/// | `[spawn]` | a sub-agent |
/// | `[family]` | a sub-agent that spawns one of its own |
/// | `[full]` | a message and a count of tokens that makes codex compact |
/// | `[commands N full]` | commands, each with such a count: codex compacts in the middle of the turn |
/// | `[fail]` | an error that ends the turn, over HTTP |
/// | `[hold]` | a message once [`Model::held_may_end`] is given |
/// | a goal | a call that declares it reached, then a message |
/// | anything else | a message |
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    /// Holds the answer to a `[hold]` back.
    pub(crate) held_may_end: Signal,
}

impl Script for Model {
    fn reply(&self, request: &Recorded) -> Reply {
        let id = format!("resp-{}", request.number);
        let input = request.json().and_then(|body| body.get("input"));
        let input: &[Value] = input.and_then(Value::as_array).map_or(&[], Vec::as_slice);
        let last = input.last().map(Value::to_string).unwrap_or_default();
        if request
            .purpose()
            .is_some_and(|it| it.starts_with("prewarm"))
        {
            return Reply::events(events::answer(&id, []));
        }
        if last.contains("\"compaction_trigger\"") {
            return Reply::events(events::answer(&id, [events::compaction("opaque")]));
        }
        if let Some(verdict) = verdict(request) {
            return say(&id, &verdict.to_string());
        }
        if request.is_child() {
            if last.contains(OF_FAMILY) {
                let call = events::spawn_agent(&format!("spawn-{id}"), "grandkid", "say hello");
                return Reply::events(events::answer(&id, [call]));
            }
            return say(&id, "the child is done");
        }
        if is_of_goal(request) && !last.contains("goal-") {
            let arguments = json!({"status": "complete"});
            let call = events::call(
                &format!("goal-{}", request.number),
                "update_goal",
                &arguments,
            );
            return Reply::events(events::answer(&id, [call]));
        }
        if last.contains("[fail]") {
            return Reply::text(StatusCode::BAD_REQUEST, "the test wants it");
        }
        if last.contains("[hold]") {
            return say(&id, "done").after(&self.held_may_end);
        }
        match next_call(request.number, &last) {
            Some(call) if asks_for_full(&last) => full(&id, call),
            Some(call) => Reply::events(events::answer(&id, [call])),
            None if asks_for_full(&last) => full(&id, events::message(&id, "done")),
            None => say(&id, "done"),
        }
    }
}

/// Says whether codex started the turn itself, to reach a goal.
fn is_of_goal(request: &Recorded) -> bool {
    let trigger = request.metadata().and_then(|it| it.get("turn_trigger"));
    trigger.and_then(Value::as_str) == Some("goal")
}

/// What a reviewer has to answer; nothing for others.
fn verdict(request: &Recorded) -> Option<Value> {
    match request.metadata()?.get("subagent_kind")?.as_str()? {
        "guardian" => Some(json!({
            "risk_level": "low",
            "risk_score": 5,
            "rationale": "fine",
            "evidence": [],
            "outcome": "allow",
            "user_authorization": "high",
        })),
        "review" => Some(json!({
            "findings": [],
            "overall_correctness": "patch is correct",
            "overall_explanation": "fine",
            "overall_confidence_score": 0.9,
        })),
        _ => None,
    }
}

/// The call that a prompt or the output of the call before asks for.
fn next_call(number: usize, last: &str) -> Option<Value> {
    if last.contains("[spawn]") {
        return Some(events::spawn_agent(
            &format!("spawn-{number}"),
            "kid",
            "say hello",
        ));
    }
    if last.contains("[family]") {
        let call = format!("spawn-{number}");
        return Some(events::spawn_agent(&call, "kid", OF_FAMILY));
    }
    if last.contains("[stubborn]") {
        return Some(events::exec_command(
            &format!("stubborn-{number}"),
            "trap '' TERM HUP INT; setsid sleep 86401 & while :; do sleep 86400; done",
        ));
    }
    if last.contains("[wait]") {
        return Some(events::exec_command(
            &format!("wait-{number}"),
            "exec sleep 86400",
        ));
    }
    if last.contains("[approval]") {
        let arguments = json!({
            "cmd": "touch approved",
            "sandbox_permissions": "require_escalated",
            "justification": "the test wants it",
        });
        return Some(events::call(
            &format!("approval-{number}"),
            "exec_command",
            &arguments,
        ));
    }
    let left = number_behind(last, "[commands ").or_else(|| {
        let left = number_behind(last, "left-")?;
        left.checked_sub(1)
    })?;
    let fill = if asks_for_full(last) { "full-" } else { "" };
    let id = format!("{fill}left-{left}-{number}");
    (left > 0).then(|| events::exec_command(&id, "echo one"))
}

/// What a child is told that shall have a child.
const OF_FAMILY: &str = "have a child of your own";

fn asks_for_full(last: &str) -> bool {
    last.contains("full]") || last.contains("full-left-")
}

fn number_behind(text: &str, word: &str) -> Option<usize> {
    let (_, rest) = text.split_once(word)?;
    let end = rest.find(|it: char| !it.is_ascii_digit())?;
    rest.get(..end)?.parse().ok()
}

fn say(id: &str, text: &str) -> Reply {
    Reply::events(events::answer(id, [events::message(id, text)]))
}

/// An answer that leaves no room in the context window.
fn full(id: &str, item: Value) -> Reply {
    let mut answer = events::answer(id, [item]);
    if let Some(usage) = answer
        .last_mut()
        .and_then(|it| it.pointer_mut("/response/usage"))
    {
        usage["input_tokens"] = json!(5_000_000);
        usage["total_tokens"] = json!(5_000_010);
    }
    Reply::steps(answer.into_iter().map(Step::Event))
}
