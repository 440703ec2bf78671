//! The private endpoint is codex's alone, and its secret dies with the relay.

use std::io::ErrorKind;

use codex_relay::commands::endpoint::{OverHttp, Reply, Script};
use codex_relay::commands::witness::Recorded;
use http::StatusCode;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::PATIENCE;
use crate::support::case::Case;
use crate::support::persona;
use crate::support::processes::marked;
use crate::support::stage::{PrivateRoute, Stage};

/// Sends one request and gives the whole answer.
async fn ask(route: &PrivateRoute, head: &str) -> String {
    let mut stream = TcpStream::connect(route.address).await.unwrap();
    let head = format!("{head}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    // A connection that is reset after its answer is fine too.
    read.expect("an answer").unwrap_or_default();
    String::from_utf8(answer).unwrap()
}

/// Asserts that an answer is a bare 404.
fn assert_not_found(answer: &str, asked: &str) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, "?"));
    assert!(head.starts_with("HTTP/1.1 404 "), "{asked}: {answer}");
    assert_eq!(body, "", "{asked}: {answer}");
    let lower = head.to_ascii_lowercase();
    assert!(
        !lower.contains("codex") && !lower.contains("relay"),
        "{asked}: {answer}"
    );
}

/// A secret that differs from the right one in its last character.
fn wrong_secret(route: &PrivateRoute) -> String {
    let mut wrong = route.secret().to_owned();
    let last = if wrong.pop() == Some('a') { 'b' } else { 'a' };
    wrong.push(last);
    wrong
}

/// Targets that aren't the private path, or go about it.
fn wrong_targets(route: &PrivateRoute) -> Vec<String> {
    let (base, secret, tail) = (&route.base, route.secret(), route.tail());
    let wrong = wrong_secret(route);
    let mut targets = vec![
        "/".to_owned(),
        format!("{tail}/models"),
        format!("/{wrong}{tail}/models"),
        format!("/{secret}x{tail}/models"),
        format!("/{}{tail}/models", &secret[1..]),
        format!("//{secret}{tail}/models"),
        format!("/{secret}/{tail}/models"),
        format!("http://{}/{wrong}{tail}/models", route.address),
    ];
    let detours = [
        "//models",
        "/../models",
        "/..",
        "/x/../../models",
        "/%2e%2e/models",
        "/%2E./models",
        "%2fmodels",
        "/%5c..%5cmodels",
        "/\\models",
        "/./models",
    ];
    targets.extend(detours.map(|detour| format!("{base}{detour}")));
    targets
}

async fn stranger_gets_a_bare_404(case: Case) {
    let stage = Stage::set(case).await;
    let mut client = stage.relay().spied().start().await;
    client.thread("thread/start", json!({})).await;
    let route = stage.spied();
    let (base, host) = (&route.base, format!("Host: {}", route.address));
    let models = |answer: &str| answer.starts_with("HTTP/1.1 200 ");
    let allowed = ask(&route, &format!("GET {base}/models HTTP/1.1\r\n{host}")).await;
    assert!(models(&allowed), "{allowed}");

    assert!(
        route.secret().len() >= 43,
        "256 bits: {} characters",
        route.secret().len()
    );
    let wrong = wrong_secret(&route);
    let tail = route.tail();
    let seen = stage.endpoint.journal().requests.len();
    let targets = wrong_targets(&route);
    for target in &targets {
        let answer = ask(&route, &format!("GET {target} HTTP/1.1\r\n{host}")).await;
        // What is no URI at all may be called a bad request by the parser.
        if answer.starts_with("HTTP/1.1 400 ") && target.contains('\\') {
            continue;
        }
        assert_not_found(&answer, target);
    }
    let heads = [
        format!("{host}\r\nOrigin: http://{}", route.address),
        format!("{host}\r\nOrigin: null"),
        "Host: example.com".to_owned(),
        format!("Host: localhost:{}", route.address.port()),
        "Host: 127.0.0.1:1".to_owned(),
    ];
    for head in &heads {
        let answer = ask(&route, &format!("GET {base}/models HTTP/1.1\r\n{head}")).await;
        assert_not_found(&answer, head);
    }
    let upgrade = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    let asked = format!("GET /{wrong}{tail}/responses HTTP/1.1\r\n{host}\r\n{upgrade}");
    assert_not_found(&ask(&route, &asked).await, "upgrade");
    assert!(client.close().await.success());
    let late = &stage.endpoint.journal().requests[seen..];
    let foreign: Vec<_> = late
        .iter()
        .filter(|it| it.head.header("user-agent").is_none())
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}
matrix!(stranger_gets_a_bare_404: versions);

async fn secret_is_useless_once_the_relay_is_gone(case: Case) {
    let stage = Stage::set(case).await;
    let mut client = stage.relay().spied().start().await;
    client.thread("thread/start", json!({})).await;
    let route = stage.spied();
    let mut open = TcpStream::connect(route.address).await.unwrap();
    assert!(client.close().await.success());
    let refused = TcpStream::connect(route.address).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, open.read_to_end(&mut rest)).await;
    assert!(ended.is_ok() && rest.is_empty());
    // The next relay has another secret.
    let mut client = stage.relay().spied().start().await;
    client.thread("thread/start", json!({})).await;
    assert_ne!(stage.spied().secret(), route.secret());
    assert!(client.close().await.success());
}
matrix!(secret_is_useless_once_the_relay_is_gone: versions);

/// Fails every request, so that codex tells where it asked.
struct Fails;

impl Script for Fails {
    fn reply(&self, _request: &Recorded) -> Reply {
        Reply::text(StatusCode::NOT_FOUND, "nothing here")
    }
}

async fn secret_is_redacted_wherever_codex_prints_it(case: Case) {
    let stage = Stage::with(case, OverHttp(Fails)).await;
    persona::write(&stage);
    let launch = stage.relay().option("--log", "trace").spied();
    let (mut client, thread) = launch.with_thread().await;
    let turn = client.turn(&thread, "hello").await;
    assert_eq!(turn["status"], "failed");
    let route = stage.spied();
    let secret = route.secret();
    for process in marked(&client.mark) {
        let environment =
            std::fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        assert!(!process.command.contains(secret));
        assert!(!String::from_utf8_lossy(&environment).contains(secret));
    }
    client.close_stdin();
    client.exit().await;
    let lines = client.inbox.since(0);
    let shown = lines
        .iter()
        .filter(|it| it.raw.contains("<redacted>/v1/responses"));
    assert!(shown.count() > 0, "codex shows no URL (any more)");
    assert!(lines.iter().all(|it| !it.raw.contains(secret)));
    let stderr = client.stderr();
    assert!(!stderr.contains(secret));
    assert!(
        !stderr.contains(persona::MARKER),
        "the persona is nobody's log line"
    );
}
matrix!(secret_is_redacted_wherever_codex_prints_it: http);
