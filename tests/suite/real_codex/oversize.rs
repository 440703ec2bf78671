//! A request over 32 MiB ends its turn at once, in words that say why, and costs no more memory than the limit.

use std::sync::Arc;

use codex_relay::commands::witness::{Kind, Recorded};
use serde_json::{Value, json};

use crate::support::case::{Case, Transport};
use crate::support::client::Client;
use crate::support::persona;
use crate::support::processes::peak_memory;
use crate::support::stage::Stage;

/// Puts an item into the thread that no request has room for.
async fn overfill(client: &mut Client, thread: &str) {
    let text = "x".repeat(LIMIT + 1);
    let content = json!([{"type": "input_text", "text": text}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    client
        .ok(
            "thread/inject_items",
            json!({"threadId": thread, "items": [item]}),
        )
        .await;
}

async fn oversize_request_ends_its_turn_in_one_request(case: Case) {
    let stage = Stage::set(case).await;
    stage.lift_context_windows();
    persona::write(&stage);
    let (mut client, thread) = stage.relay().tapped().with_thread().await;
    overfill(&mut client, &thread).await;
    let from = client.inbox.len();
    let turn = client.turn(&thread, "hello").await;
    assert_eq!(turn["status"], "failed", "{turn}");
    let message = turn["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("codex-relay: "), "{message}");
    assert!(message.contains("(request_too_large)"), "{message}");
    assert!(message.contains(&LIMIT.to_string()), "{message}");
    let retries = |it: &Value| it["params"]["willRetry"] == true;
    let lines = client.inbox.since(from);
    assert!(
        !lines.iter().any(|it| retries(&it.value)),
        "codex tries again"
    );
    let peak = peak_memory(client.pid());
    assert!(peak < 200 << 20, "the relay took {peak} bytes");
    assert!(client.close().await.success());
    let traffic = stage.traffic().await;
    let turns = |it: &&Arc<Recorded>| it.turn().is_some();
    assert_eq!(
        traffic.lost.iter().filter(turns).count(),
        1,
        "codex asked once"
    );
    assert_eq!(
        stage.endpoint.model_requests().iter().filter(turns).count(),
        0
    );
    if case.transport == Transport::WebSocket {
        let messages = traffic
            .pairs
            .iter()
            .map(|it| it.sent.purpose().unwrap_or_default());
        assert_eq!(
            messages.collect::<Vec<_>>(),
            ["prewarm"],
            "only the prewarm arrived"
        );
    }
}
matrix!(oversize_request_ends_its_turn_in_one_request: all);

async fn thread_goes_on_once_an_oversize_turn_is_reverted(case: Case) {
    let stage = Stage::set(case).await;
    stage.lift_context_windows();
    persona::write(&stage);
    let (mut client, thread) = stage.relay().with_thread().await;
    let first = client.turn(&thread, "hello").await;
    overfill(&mut client, &thread).await;
    assert_eq!(
        client.turn(&thread, "hello again").await["status"],
        "failed"
    );
    let params = json!({"threadId": thread, "beforeTurnId": first["id"]});
    client.ok("thread/revert", params).await;
    let turn = client.turn(&thread, "and again").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    assert!(client.close().await.success());
    let requests = stage.endpoint.model_requests();
    let turns: Vec<_> = requests.iter().filter(|it| it.turn().is_some()).collect();
    assert_eq!(turns.len(), 2);
    persona::injected_text(turns[1], None);
}
matrix!(thread_goes_on_once_an_oversize_turn_is_reverted: versions);

async fn message_that_its_context_lifts_over_the_upstreams_limit_goes_over_http(case: Case) {
    let stage = Stage::set(case).await;
    stage.lift_context_windows();
    stage.write(
        "SOUL.md",
        &format!("{} {}", persona::MARKER, "lighthouse ".repeat(1500)),
    );
    let (mut client, thread) = stage.relay().with_thread().await;
    client.turn(&thread, "hello").await;
    let requests = stage.endpoint.model_requests();
    let common = requests.last().unwrap();
    let context = persona::injected_text(common, None).len();
    // So much text that codex's own message is within the limit by half a context, and with its context over it.
    let text = "x".repeat(UPSTREAM_LIMIT + context / 2 - common.body.len() - 500);
    let thread = client.thread("thread/start", json!({})).await;
    let content = json!([{"type": "input_text", "text": text}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    client
        .ok(
            "thread/inject_items",
            json!({"threadId": thread, "items": [item]}),
        )
        .await;
    for _ in 0..2 {
        let turn = client.turn(&thread, "hello").await;
        assert_eq!(turn["status"], "completed", "{turn}");
    }
    assert!(client.close().await.success());
    let requests = stage.endpoint.model_requests();
    let is_turn = |it: &&Arc<Recorded>| it.thread() == Some(&thread) && it.turn().is_some();
    let turns: Vec<_> = requests.iter().filter(is_turn).collect();
    assert_eq!(turns.len(), 2);
    for turn in turns {
        assert_eq!(turn.kind, Kind::Http);
        assert!(turn.body.len() > UPSTREAM_LIMIT, "{}", turn.body.len());
        persona::injected_text(turn, None);
    }
}
matrix!(message_that_its_context_lifts_over_the_upstreams_limit_goes_over_http: versions);

/// The longest WebSocket message that an upstream takes, in bytes.
const UPSTREAM_LIMIT: usize = 16_777_216;

/// The limit of a request, in bytes.
const LIMIT: usize = 33_554_432;
