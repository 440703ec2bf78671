//! What a client does with codex, one function for each way to a model request.

use serde_json::{Value, json};

use super::PATIENCE;
use super::client::Client;
use super::stage::Stage;

/// Runs a turn in which the parent spawns a child, and waits until the child has answered.
pub(crate) async fn spawn_child(client: &mut Client, thread: &str) {
    let from = client.inbox.len();
    client.turn(thread, "[spawn]").await;
    let of_child = |params: &Value| params["threadId"] != thread;
    client.notification(from, "turn/completed", of_child).await;
}

/// Runs an inline review.
pub(crate) async fn review(client: &mut Client, thread: &str) -> Value {
    let target = json!({"type": "custom", "instructions": "look at it"});
    let params = json!({"threadId": thread, "target": target, "delivery": "inline"});
    client.turn_of("review/start", params).await
}

/// Runs a turn with a command that needs approval, which codex's own reviewer gives.
pub(crate) async fn guarded_turn(client: &mut Client, thread: &str) -> Value {
    let more = json!({"approvalsReviewer": "auto_review", "approvalPolicy": "on-request"});
    client.turn_with(thread, "[approval]", more).await
}

/// Compacts the thread's history.
pub(crate) async fn compact(client: &mut Client, thread: &str) -> Value {
    let params = json!({"threadId": thread});
    client.turn_of("thread/compact/start", params).await
}

/// Asks a model about the thread as it stood after `turn`, beside the thread (0.171.0).
pub(crate) async fn sample(client: &mut Client, thread: &str, turn: &Value) -> Value {
    let params = json!({"threadId": thread, "prompt": "what now?", "expectedTurnId": turn["id"]});
    client.ok("thread/sample", params).await
}

/// Sets a goal, for which codex starts a turn itself, and waits for its end.
pub(crate) async fn pursue_goal(client: &mut Client, thread: &str) -> Value {
    let params = json!({"threadId": thread, "objective": "[goal]"});
    client.turn_of("thread/goal/set", params).await
}

/// Waits until the endpoint has seen a request for this purpose.
pub(crate) async fn seen(stage: &Stage, purpose: &str) {
    let is_it = |journal: &codex_relay::commands::endpoint::Journal| {
        let mut purposes = journal.model_requests().map(|it| it.purpose());
        purposes
            .any(|it| it.as_deref() == Some(purpose))
            .then_some(())
    };
    stage.endpoint.wait_for(PATIENCE, is_it).await.unwrap();
}
