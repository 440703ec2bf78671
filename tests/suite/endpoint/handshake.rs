//! The handshake of a WebSocket: what the upstream says to it reaches codex.

use crate::support::mirror::{Mirror, SOUL, of_child, of_turn, request};

async fn mirror() -> Mirror {
    let mut mirror = Mirror::start().await;
    mirror.thread("t").await;
    mirror
}

const ASK: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

#[tokio::test]
async fn upstream_is_asked_first_and_its_headers_reach_codex() {
    let mirror = mirror().await;
    let mut codex = mirror.dial().await;
    let headers = format!(
        "{ASK}Sec-WebSocket-Extensions: permessage-deflate\r\nX-Twice: 1\r\nX-Twice: 2\r\n"
    );
    codex
        .write(&mirror.head("GET", "/responses?a=%2F", &headers))
        .await;
    let mut upstream = mirror.accept().await;
    let head = upstream.head().await;
    assert!(
        head.starts_with("GET /up/responses?a=%2F HTTP/1.1\r\n"),
        "{head}"
    );
    let lower = head.to_lowercase();
    assert!(
        lower.contains("sec-websocket-key: dghlihnhbxbszsbub25jzq=="),
        "{head}"
    );
    assert_eq!(lower.matches("x-twice:").count(), 2, "{head}");
    assert!(!lower.contains("permessage-deflate"), "{head}");
    assert!(codex.is_silent().await, "answered before the upstream did");
    upstream
        .write(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
              Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nx-codex-turn-state: s\r\n\
              Set-Cookie: a\r\nSet-Cookie: b\r\n\r\n",
        )
        .await;
    let head = codex.head().await.to_lowercase();
    for line in [
        "http/1.1 101 ",
        "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=",
        "x-codex-turn-state: s",
        "set-cookie: a",
        "set-cookie: b",
    ] {
        assert!(head.contains(line), "{line} is missing in {head}");
    }
}

#[tokio::test]
async fn refusal_passes_unless_there_are_no_websockets() {
    let mirror = mirror().await;
    let overloaded = r#"{"error":{"code":"server_is_overloaded"}}"#;
    for (status, body, expected) in [
        ("400 Bad", "why", 400),
        ("401 No", "{}", 401),
        ("403 No", "", 403),
        ("426 Up", "", 426),
        ("429 Slow", "later", 429),
        ("503 Busy", overloaded, 503),
        ("404 None", "<html>", 426),
        ("405 None", "", 426),
        ("500 Oh", "{}", 426),
        ("502 Oh", "", 426),
    ] {
        let mut codex = mirror.dial().await;
        codex.write(&mirror.head("GET", "/responses", ASK)).await;
        let mut upstream = mirror.accept().await;
        upstream.head().await;
        let length = body.len();
        let answer =
            format!("HTTP/1.1 {status}\r\nX-Own: 1\r\nContent-Length: {length}\r\n\r\n{body}");
        upstream.write(answer.as_bytes()).await;
        let head = codex.head().await.to_lowercase();
        assert!(
            head.starts_with(&format!("http/1.1 {expected} ")),
            "{status}: {head}"
        );
        if status.starts_with(&expected.to_string()) {
            assert!(head.contains("x-own: 1"), "{status}: {head}");
            assert_eq!(codex.exactly(length).await, body.as_bytes(), "{status}");
        } else {
            let told = format!("x-codex-relay-upstream-status: {}", &status[..3]);
            assert!(head.contains(&told), "{status}: {head}");
        }
    }
}

#[tokio::test]
async fn upstream_that_takes_no_connection_sends_codex_to_http() {
    let mut mirror = Mirror::towards("http://127.0.0.1:1/up").await;
    mirror.thread("t").await;
    let mut codex = mirror.dial().await;
    codex.write(&mirror.head("GET", "/responses", ASK)).await;
    let head = codex.head().await;
    assert!(head.starts_with("HTTP/1.1 426 "), "{head}");
    let mut codex = mirror.dial().await;
    codex
        .write(&mirror.post("", request(&of_child(), "").as_bytes()))
        .await;
    let head = codex.head().await;
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert!(
        head.contains("x-codex-relay-reason: upstream_unreachable"),
        "{head}"
    );
}

#[tokio::test]
async fn message_that_its_context_lifts_over_16_mib_goes_over_http() {
    let mut mirror = mirror().await;
    mirror.write("SOUL.md", &format!("{SOUL} {}", "x".repeat(9000)));
    let generation = mirror.turn("t", "u").await;
    let metadata = of_turn("t", "u", &generation);
    let header = format!("x-codex-turn-metadata: {metadata}\r\n");
    let (mut codex, _upstream, head) = mirror.socket(&header, "").await;
    let announced = head
        .to_lowercase()
        .split("x-codex-websocket-max-message-bytes: ")
        .nth(1)
        .and_then(|rest| rest.split("\r\n").next()?.parse::<usize>().ok())
        .expect("the room is announced");
    assert!(
        announced < 16_777_216 - 9000 && announced > 16_700_000,
        "{announced}"
    );
    // A codex that doesn't read it (before 0.171.0) sends the message all the same.
    let pad = 16_777_216 - request(&metadata, ",\"pad\":\"\"").len();
    let message = request(&metadata, &format!(",\"pad\":\"{}\"", "x".repeat(pad)));
    assert_eq!(message.len(), 16_777_216);
    codex
        .write(&crate::support::mirror::masked(0x81, message.as_bytes()))
        .await;
    let (first, payload) = codex.frame().await;
    assert_eq!((first, &payload[..2]), (0x88, &1009_u16.to_be_bytes()[..]));
    let mut codex = mirror.dial().await;
    codex
        .write(&mirror.head("GET", "/responses", &format!("{ASK}{header}")))
        .await;
    let head = codex.head().await;
    assert!(head.starts_with("HTTP/1.1 426 "), "{head}");
}
