//! Contexts that the client gives, at their bounds, and the requests that name them.

use codex_relay::base::limits::{MAX_CONTEXT_BYTES, MAX_THREADS};
use serde_json::{Value, json};

use crate::support::mirror::{Mirror, Peer, of_child, of_turn, request};

async fn mirror() -> Mirror {
    let mut mirror = Mirror::of_client().await;
    mirror.thread("t").await;
    mirror
}

async fn set(mirror: &mut Mirror, thread: &str, scope: &str, text: &str) -> Result<Value, Value> {
    let params = json!({"threadId": thread, "scope": scope, "text": text});
    mirror.client.call("relay/context/set", params).await
}

/// Sends a request as codex does.
async fn ask(mirror: &Mirror, body: &str) -> Peer {
    let mut codex = mirror.dial().await;
    codex.write(&mirror.post("", body.as_bytes())).await;
    codex
}

/// The body that arrives at the upstream.
async fn arrived(mirror: &Mirror) -> (Peer, String) {
    let mut upstream = mirror.accept().await;
    let head = upstream.head().await.to_ascii_lowercase();
    let (_, length) = head.split_once("content-length: ").unwrap();
    let length = length.split("\r\n").next().unwrap().parse().unwrap();
    let body = upstream.exactly(length).await;
    (upstream, String::from_utf8(body).unwrap())
}

async fn assert_refused(codex: &mut Peer, reason: &str) {
    let head = codex.head().await;
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    assert!(
        head.contains(&format!("x-codex-relay-reason: {reason}")),
        "{head}"
    );
}

#[tokio::test]
async fn context_of_the_limit_is_taken_and_a_byte_more_is_not() {
    let mut mirror = mirror().await;
    let fits = "x".repeat(MAX_CONTEXT_BYTES);
    let told = set(&mut mirror, "t", "thread", &fits).await.unwrap();
    assert_eq!(told["bytes"], MAX_CONTEXT_BYTES);
    // In bytes of UTF-8: 87,382 characters of three bytes are one byte too many.
    for over in [format!("{fits}x"), "\u{20ac}".repeat(87_382)] {
        let bytes = over.len();
        for scope in ["turn", "thread"] {
            let error = set(&mut mirror, "t", scope, &over).await.unwrap_err();
            assert_eq!(error["code"], -32602);
            assert_eq!(error["data"]["reason"], "context_too_large");
            assert_eq!(error["data"]["bytes"], bytes);
            assert_eq!(error["data"]["limit"], MAX_CONTEXT_BYTES);
            let sections = json!([{"name": "text", "bytes": bytes}]);
            assert_eq!(error["data"]["sections"], sections);
        }
        let relay = json!({"context": {"text": over}});
        let turn = json!({"threadId": "t", "input": [], "relay": relay});
        let error = mirror.client.call("turn/start", turn).await.unwrap_err();
        assert_eq!(
            error["data"]["reason"], "context_too_large",
            "no turn is sent"
        );
    }
    let generation = mirror.turn("t", "u").await;
    let body = request(&of_turn("t", "u", &generation), "");
    let _codex = ask(&mirror, &body).await;
    let (_upstream, got) = arrived(&mirror).await;
    assert!(got.contains(&fits), "what was taken is in force");
}

#[tokio::test]
async fn one_thread_more_than_there_is_room_for_is_refused_and_the_others_stay() {
    let mut mirror = mirror().await;
    set(&mut mirror, "t", "thread", "first").await.unwrap();
    for number in 1..MAX_THREADS {
        set(&mut mirror, &format!("t{number}"), "thread", "x")
            .await
            .unwrap();
    }
    let error = set(&mut mirror, "over", "thread", "x").await.unwrap_err();
    assert_eq!(error["data"]["reason"], "busy", "{error}");
    assert_eq!(error["data"]["limit"], MAX_THREADS);
    let words = error["message"].as_str().unwrap();
    assert!(words.contains("relay/context/clear"), "{words}");
    let generation = mirror.turn("t", "u").await;
    let body = request(&of_turn("t", "u", &generation), "");
    let _codex = ask(&mirror, &body).await;
    let (_upstream, got) = arrived(&mirror).await;
    assert!(got.contains("\"instructions\":\"first\""), "{got}");
    let clear = json!({"threadId": "t7"});
    mirror.client.ok("relay/context/clear", clear).await;
    set(&mut mirror, "over", "thread", "x").await.unwrap();
    let from = mirror.client.inbox.len();
    let deleted = json!({"method": "thread/deleted", "params": {"threadId": "t8"}});
    mirror.client.send(&deleted).await;
    mirror
        .client
        .notification(from, "thread/deleted", |_| true)
        .await;
    set(&mut mirror, "more", "thread", "x").await.unwrap();
}

#[tokio::test]
async fn generation_that_was_replaced_or_belongs_elsewhere_gets_nothing() {
    let mut mirror = mirror().await;
    mirror.thread("other").await;
    let old = set(&mut mirror, "t", "thread", "old").await.unwrap();
    let new = set(&mut mirror, "t", "thread", "new").await.unwrap();
    let old = old["generation"].as_str().unwrap();
    let new = new["generation"].as_str().unwrap();
    for (thread, generation) in [("t", old), ("other", new), ("t", "made-up")] {
        let body = request(&of_turn(thread, "u", generation), "");
        assert_refused(&mut ask(&mirror, &body).await, "generation_stale").await;
    }
    let body = request(&of_turn("stranger", "u", new), "");
    assert_refused(&mut ask(&mirror, &body).await, "thread_unknown").await;
    // The upstream has seen none of them: what comes next is the first.
    let body = request(&of_turn("t", "u", new), "");
    let _codex = ask(&mirror, &body).await;
    let (_upstream, got) = arrived(&mirror).await;
    assert!(got.contains("\"instructions\":\"new\""), "{got}");
}

#[tokio::test]
async fn turn_keeps_its_text_and_an_empty_one_changes_nothing() {
    let mut mirror = mirror().await;
    set(&mut mirror, "t", "turn", "kept").await.unwrap();
    let generation = mirror.turn("t", "u").await;
    set(&mut mirror, "t", "thread", "newer").await.unwrap();
    let body = request(&of_turn("t", "u", &generation), ",\"instructions\":\"own\"");
    let _codex = ask(&mirror, &body).await;
    let (_upstream, got) = arrived(&mirror).await;
    assert!(got.contains(r#""instructions":"own\n\nkept""#), "{got}");
    let end = json!({"threadId": "t", "turn": {"id": "u", "status": "completed"}});
    mirror
        .client
        .send(&json!({"method": "turn/completed", "params": end}))
        .await;
    mirror
        .client
        .notification(0, "turn/completed", |_| true)
        .await;
    set(&mut mirror, "t", "turn", "").await.unwrap();
    let generation = mirror.turn("t", "v").await;
    for body in [
        request(&of_turn("t", "v", &generation), ""),
        request(&of_turn("t", "v", &generation), ",\"instructions\":null"),
        request(&of_child(), ""),
    ] {
        let _codex = ask(&mirror, &body).await;
        let (_upstream, got) = arrived(&mirror).await;
        assert_eq!(got, body);
    }
}

#[tokio::test]
async fn relay_lines_never_reach_codex_and_are_answered_before_and_behind_anything() {
    let mirror = Mirror::of_client().await;
    let lines = [
        json!({"id": "a", "method": "relay/info"}),
        json!({"method": "relay/info", "params": {}}),
        json!({"id": "b", "method": "relay/nonsense", "params": {"x": 1}}),
        json!({"id": "c", "method": "thread/list", "params": {}}),
        json!({"id": "d", "method": "relay/status", "params": {"all": true}}),
    ];
    let from = mirror.client.inbox.len();
    for line in &lines {
        mirror.client.send(line).await;
    }
    let mut told = Vec::new();
    for id in ["a", "b", "c", "d"] {
        let is_it = |line: &crate::support::inbox::Line| line.value["id"] == id;
        told.push(mirror.client.inbox.wait(id, from, is_it).await.value);
    }
    assert!(told[0]["result"]["version"].is_string());
    assert_eq!(told[1]["error"]["code"], -32601);
    assert_eq!(told[2]["method"], "thread/list", "codex got it");
    assert_eq!(told[3]["error"]["code"], -32602);
    assert!(
        told[3]["error"]["message"]
            .as_str()
            .unwrap()
            .contains("all")
    );
    let heard = mirror.client.inbox.since(from);
    let echoed = heard
        .iter()
        .filter(|it| it.method().is_some_and(|it| it.starts_with("relay/")));
    assert_eq!(echoed.count(), 0);
    let deep = format!("{}{}", "[".repeat(3000), "]".repeat(3000));
    let from = mirror.client.inbox.len();
    let line = format!("{{\"id\":\"deep\",\"method\":\"relay/context/set\",\"params\":{deep}}}");
    mirror.client.send(&line).await;
    let is_it = |line: &crate::support::inbox::Line| line.value["id"] == "deep";
    let told = mirror.client.inbox.wait("deep", from, is_it).await.value;
    assert_eq!(told["error"]["code"], -32600, "{told}");
}
