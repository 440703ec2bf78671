//! A turn that the client interrupts, while codex does nothing about it.

use serde_json::json;

use crate::support::mirror::{Mirror, masked, of_turn, request, unmasked};

async fn interrupt(mirror: &Mirror, thread: &str, turn: &str) {
    let params = json!({"threadId": thread, "turnId": turn});
    let line = json!({"id": "stop", "method": "turn/interrupt", "params": params});
    let from = mirror.client.inbox.len();
    mirror.client.send(&line).await;
    let passed = |line: &crate::support::inbox::Line| line.method() == Some("turn/interrupt");
    mirror
        .client
        .inbox
        .wait("turn/interrupt", from, passed)
        .await;
}

#[tokio::test]
async fn request_over_http_ends_at_the_upstream_before_and_behind_its_head() {
    let mut mirror = Mirror::start().await;
    mirror.thread("t").await;
    for (turn, head) in [
        ("before", ""),
        ("behind", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"),
    ] {
        let generation = mirror.turn("t", turn).await;
        let body = request(&of_turn("t", turn, &generation), "");
        let mut codex = mirror.dial().await;
        codex.write(&mirror.post("", body.as_bytes())).await;
        let mut upstream = mirror.accept().await;
        let asked = upstream.head().await;
        let (_, length) = asked.split_once("ontent-Length: ").unwrap();
        let length = length.split("\r\n").next().unwrap();
        upstream.exactly(length.parse().unwrap()).await;
        upstream.write(head.as_bytes()).await;
        if !head.is_empty() {
            codex.head().await;
        }
        interrupt(&mirror, "t", "another").await;
        assert!(
            upstream.is_silent().await,
            "another turn's end is none of its own"
        );
        interrupt(&mirror, "t", turn).await;
        assert_eq!(upstream.rest().await, b"");
        assert!(
            codex.is_silent().await,
            "codex hears nothing that would make it ask again"
        );
        let end = json!({"threadId": "t", "turn": {"id": turn, "status": "interrupted"}});
        mirror
            .client
            .send(&json!({"method": "turn/completed", "params": end}))
            .await;
    }
}

#[tokio::test]
async fn websocket_is_closed_towards_the_upstream_while_its_turn_waits_and_not_when_it_was_answered()
 {
    let mut mirror = Mirror::start().await;
    mirror.thread("t").await;
    let (mut codex, mut upstream, _) = mirror.socket("", "").await;
    for turn in ["answered", "waits"] {
        let generation = mirror.turn("t", turn).await;
        let message = request(&of_turn("t", turn, &generation), "");
        codex.write(&masked(0x81, message.as_bytes())).await;
        upstream.message().await;
        if turn == "answered" {
            let done = br#"{"type":"response.completed","response":{}}"#;
            upstream.write(&unmasked(0x81, done)).await;
            assert_eq!(codex.message().await, done);
        }
        interrupt(&mirror, "t", turn).await;
        if turn == "answered" {
            assert!(upstream.is_silent().await);
        }
        let end = json!({"threadId": "t", "turn": {"id": turn, "status": "interrupted"}});
        mirror
            .client
            .send(&json!({"method": "turn/completed", "params": end}))
            .await;
    }
    assert_eq!(upstream.rest().await, b"");
    assert!(codex.is_silent().await);
}
