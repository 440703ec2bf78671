//! An upstream that answers before it has read the request, and resets the connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::support::case::Case;
use crate::support::mirror::Peer;
use crate::support::persona;
use crate::support::stage::Stage;

/// What is answered to a model request; codex shows it as it came.
const WORDS: &str = r#"{"error":{"message":"too long for this model","code":"context_too_long"}}"#;

/// Answers each request, none of which is read beyond its head, and counts those to the model.
async fn answer_all(listener: TcpListener, asked: Arc<AtomicUsize>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let mut peer = Peer(stream);
        let asked = Arc::clone(&asked);
        connections.spawn(async move {
            let head = peer.head().await;
            let (status, body) = if head.starts_with("POST /v1/responses ") {
                asked.fetch_add(1, Ordering::SeqCst);
                ("400 Bad Request", WORDS)
            } else if head.to_lowercase().contains("upgrade: websocket") {
                ("426 Upgrade Required", "")
            } else {
                ("200 OK", r#"{"models":[]}"#)
            };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
            );
            peer.write(answer.as_bytes()).await;
            // With unread bytes in it, a dropped socket is reset.
        });
    }
}

async fn answer_that_comes_too_early_is_what_codex_shows(case: Case) {
    let stage = Stage::set(case).await;
    stage.lift_context_windows();
    persona::write(&stage);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let mut upstream = JoinSet::new();
    upstream.spawn(answer_all(listener, Arc::clone(&asked)));
    let (mut client, thread) = stage.relay().upstream(&url).with_thread().await;
    let text = "x".repeat(16_000_000);
    let item = json!({
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": text}],
    });
    let params = json!({"threadId": thread, "items": [item]});
    client.ok("thread/inject_items", params).await;
    for count in 1..=5 {
        let turn = client.turn(&thread, "hello").await;
        assert_eq!(turn["status"], "failed", "{turn}");
        let message = turn["error"]["message"].as_str().unwrap();
        assert!(message.contains("too long for this model"), "{message}");
        assert_eq!(asked.load(Ordering::SeqCst), count, "asked once a turn");
    }
    assert!(client.close().await.success());
}
matrix!(answer_that_comes_too_early_is_what_codex_shows: http);
