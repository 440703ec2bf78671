//! How messages are framed: lengths, chunks and codings, right and wrong.

use crate::support::mirror::{Mirror, of_child, of_turn, request};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

async fn mirror() -> Mirror {
    let mut mirror = Mirror::start().await;
    mirror.thread("t").await;
    mirror
}

/// Asks for something and gives what codex gets for `answer`, head and body, after which the upstream ends.
async fn answered(mirror: &Mirror, answer: &str) -> (String, String) {
    let mut codex = mirror.dial().await;
    let headers = "Connection: close\r\n";
    codex.write(&mirror.head("GET", "/x", headers)).await;
    let mut upstream = mirror.accept().await;
    upstream.head().await;
    upstream.write(answer.as_bytes()).await;
    drop(upstream);
    let head = codex.head().await;
    let rest = String::from_utf8(codex.rest().await).unwrap();
    (head.to_lowercase(), rest)
}

#[tokio::test]
async fn chunks_of_an_answer_are_true_where_a_length_stands_beside_them() {
    let mirror = mirror().await;
    for headers in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 99\r\n",
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{headers}\r\n5\r\nhello\r\n0\r\n\r\n");
        let (head, rest) = answered(&mirror, &answer).await;
        assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
        assert!(!head.contains("content-length"), "{head}");
        assert_eq!(rest, "5\r\nhello\r\n0\r\n\r\n");
    }
}

#[tokio::test]
async fn answer_keeps_the_label_of_what_is_inside_its_chunks() {
    let mirror = mirror().await;
    let chunks = "5\r\nhello\r\n0\r\n\r\n";
    for (codings, body) in [
        ("Transfer-Encoding: gzip, chunked\r\n", chunks),
        (
            "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
            chunks,
        ),
        // Without chunks it lasts as long as the connection; the relay's own are put around it.
        ("Transfer-Encoding: gzip\r\n", "hello"),
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{codings}\r\n{body}");
        let (head, rest) = answered(&mirror, &answer).await;
        let label = "transfer-encoding: gzip, chunked\r\n";
        assert!(head.contains(label), "{codings}: {head}");
        assert_eq!(rest, chunks, "{codings}");
    }
}

#[tokio::test]
async fn length_that_is_told_twice_is_told_once() {
    let mirror = mirror().await;
    for (method, body) in [("GET", "ok"), ("HEAD", "")] {
        let mut codex = mirror.dial().await;
        codex.write(&mirror.head(method, "/x", "")).await;
        let mut upstream = mirror.accept().await;
        upstream.head().await;
        let lengths = "Content-Length: 2\r\nContent-Length: 2\r\n";
        let answer = format!("HTTP/1.1 200 OK\r\n{lengths}\r\n{body}");
        upstream.write(answer.as_bytes()).await;
        let head = codex.head().await;
        assert_eq!(head.matches("Content-Length: 2\r\n").count(), 1, "{head}");
        assert_eq!(codex.exactly(body.len()).await, body.as_bytes());
    }
}

#[tokio::test]
async fn odd_heads_of_answers_are_mended_as_one_who_passes_them_on_must() {
    let mirror = mirror().await;
    let answer =
        "HTTP/1.1 200 OK\r\nX-Folded: a\r\n  b\r\nX-Space : c\r\nContent-Length: 2\r\n\r\nok";
    let (head, rest) = answered(&mirror, answer).await;
    assert!(head.contains("x-folded: a b\r\n"), "{head}");
    assert!(head.contains("x-space: c\r\n"), "{head}");
    assert_eq!(rest, "ok");
}

#[tokio::test]
async fn other_protocol_that_nobody_asked_for_is_no_answer() {
    let mirror = mirror().await;
    let answer =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n";
    let (head, rest) = answered(&mirror, answer).await;
    assert!(head.starts_with("http/1.1 502 "), "{head}");
    assert!(rest.contains("without being asked"), "{rest}");
}

#[tokio::test]
async fn body_goes_up_with_any_method_and_beside_a_wish_for_another_protocol() {
    let mirror = mirror().await;
    let upgrade = "Connection: Upgrade\r\nUpgrade: h2c\r\n";
    for method in ["GET", "HEAD", "DELETE", "OPTIONS", "POST", "odd"] {
        for wish in ["", upgrade] {
            for framing in ["Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"] {
                let mut codex = mirror.dial().await;
                let headers = format!("{wish}{framing}");
                codex.write(&mirror.head(method, "/x", &headers)).await;
                let body: &[u8] = if framing.starts_with('C') {
                    b"hello"
                } else {
                    b"5\r\nhello\r\n0\r\n\r\n"
                };
                codex.write(body).await;
                let mut upstream = mirror.accept().await;
                let head = upstream.head().await;
                assert!(head.starts_with(&format!("{method} /up/x ")), "{head}");
                assert!(
                    head.to_lowercase().contains(&framing.to_lowercase()),
                    "{head}"
                );
                assert_eq!(upstream.exactly(body.len()).await, body, "{head}");
            }
        }
    }
}

#[tokio::test]
async fn coding_below_the_chunks_of_a_request_is_refused_by_its_name() {
    let mirror = mirror().await;
    for path in ["/responses", "/files"] {
        let mut codex = mirror.dial().await;
        let headers = "Transfer-Encoding: gzip, chunked\r\n";
        codex.write(&mirror.head("POST", path, headers)).await;
        codex.write(b"5\r\nhello\r\n0\r\n\r\n").await;
        let head = codex.head().await;
        assert!(head.starts_with("HTTP/1.1 400 "), "{path}: {head}");
        assert!(head.contains("encoding_unsupported"), "{path}: {head}");
        let words = codex.until(b"(encoding_unsupported)").await;
        let words = String::from_utf8(words).unwrap();
        assert!(words.contains("\"gzip, chunked\""), "{path}: {words}");
    }
    // Neither has reached the upstream.
    let mut codex = mirror.dial().await;
    codex.write(&mirror.head("GET", "/last", "")).await;
    let mut upstream = mirror.accept().await;
    assert!(upstream.head().await.starts_with("GET /up/last "));
}

#[tokio::test]
async fn broken_chunks_of_a_request_are_its_own_fault() {
    let mut mirror = mirror().await;
    let generation = mirror.turn("t", "u").await;
    let parent = request(&of_turn("t", "u", &generation), "");
    let child = request(&of_child(), "");
    let chunked = "Transfer-Encoding: chunked\r\n";
    let of_child = format!("x-openai-subagent: review\r\n{chunked}");
    for (path, headers, begins) in [
        ("/files", chunked, "x"),
        ("/responses", &of_child[..], &child),
        ("/responses", chunked, &parent),
    ] {
        for broken in ["zz\r\n", "FFFFFFFFFFFFFFFFF\r\n", "2\r\nabcd\r\n"] {
            let mut codex = mirror.dial().await;
            codex.write(&mirror.head("POST", path, headers)).await;
            let body = format!("{:x}\r\n{begins}\r\n{broken}", begins.len());
            codex.write(body.as_bytes()).await;
            let head = codex.head().await;
            let name = format!("{path} {headers} {broken}");
            assert!(head.starts_with("HTTP/1.1 400 "), "{name}: {head}");
            assert!(head.contains("body_invalid"), "{name}: {head}");
            let words = String::from_utf8(codex.until(b"(body_invalid)").await).unwrap();
            assert!(words.contains("chunks"), "{name}: {words}");
        }
    }
    // The beginnings that went up didn't end as if they were whole.
    for _ in 0..6 {
        let mut upstream = mirror.accept().await;
        let arrived = String::from_utf8(upstream.rest().await).unwrap();
        assert!(!arrived.ends_with("0\r\n\r\n"), "{arrived}");
    }
    let mut codex = mirror.dial().await;
    codex.write(&mirror.head("GET", "/last", "")).await;
    let mut upstream = mirror.accept().await;
    assert!(upstream.head().await.starts_with("GET /up/last "));
    upstream.write(OK).await;
    assert!(codex.head().await.starts_with("HTTP/1.1 200 OK"));
}
