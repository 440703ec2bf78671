//! HTTP both ways, byte for byte and as it comes.

use serde_json::{Value, json};

use crate::support::mirror::{Mirror, Peer, SOUL, of_child, of_turn, request};
use crate::support::processes::descriptors;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

async fn mirror() -> Mirror {
    let mut mirror = Mirror::start().await;
    mirror.thread("t").await;
    mirror
}

#[tokio::test]
async fn request_arrives_as_it_was_sent() {
    let mirror = mirror().await;
    let mut codex = mirror.dial().await;
    let headers = "X-Twice: 1\r\nx-twice: 2\r\nAuthorization: Bearer a.b\r\nX-Empty:\r\nContent-Length: 3\r\n\
        X-Bytes: caf\u{e9} \u{4e2d}\r\nContent-Encoding: br\r\n";
    let target = "/a%252f;p/\u{7e}'()*?q=%2F&&r=a+b&=";
    codex.write(&mirror.head("PATCH", target, headers)).await;
    codex.write(b"\x00\xff\n").await;
    let mut upstream = mirror.accept().await;
    let head = upstream.head().await;
    assert!(
        head.starts_with(&format!("PATCH /up{target} HTTP/1.1\r\n")),
        "{head}"
    );
    for line in headers.lines() {
        let line = line.trim_end();
        let has_it = |it: &str| it.trim_end() == line || it.trim_end().replace(": ", ":") == line;
        assert!(head.lines().any(has_it), "{line} is missing in {head}");
    }
    assert_eq!(upstream.exactly(3).await, b"\x00\xff\n");
    upstream.write(OK).await;
    assert!(codex.head().await.starts_with("HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn response_comes_back_as_it_was_sent() {
    let mirror = mirror().await;
    let mut codex = mirror.dial().await;
    for (method, status, body) in [
        ("GET", "418 I'm odd", "gzip?"),
        ("GET", "302 Found", ""),
        ("GET", "500 Oh", "e"),
        ("GET", "204 No Content", ""),
        ("GET", "304 Not Modified", ""),
        ("HEAD", "200 OK", ""),
    ] {
        codex.write(&mirror.head(method, "/x", "")).await;
        let mut upstream = mirror.accept().await;
        upstream.head().await;
        let is_claim = method == "HEAD" || status.starts_with("304");
        let length = if is_claim { 77 } else { body.len() };
        let length = if status.starts_with("204") {
            String::new()
        } else {
            format!("Content-Length: {length}\r\n")
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nLocation: http://elsewhere.example/\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\
             Content-Encoding: gzip\r\nx-codex-turn-state: s\r\nConnection: close\r\n{length}\r\n{body}"
        );
        upstream.write(head.as_bytes()).await;
        let got = codex.head().await.to_lowercase();
        assert!(
            got.starts_with(&format!("http/1.1 {status}\r\n").to_lowercase()),
            "{got}"
        );
        for line in [
            "location: http://elsewhere.example/",
            "set-cookie: a",
            "set-cookie: b",
            "content-encoding: gzip",
            "x-codex-turn-state: s",
        ] {
            assert!(got.contains(line), "{line} is missing in {got}");
        }
        assert!(got.contains(&length.to_lowercase()), "{got}");
        assert_eq!(codex.exactly(body.len()).await, body.as_bytes());
    }
}

#[tokio::test]
async fn parent_is_injected_and_child_is_not_on_one_connection() {
    let mut mirror = mirror().await;
    let generation = mirror.turn("t", "u").await;
    let mut codex = mirror.dial().await;
    let parent = request(&of_turn("t", "u", &generation), "");
    let child = request(&of_child(), "");
    codex.write(&mirror.post("", parent.as_bytes())).await;
    let mut upstream = mirror.accept().await;
    let (head, got) = read_request(&mut upstream).await;
    assert!(got.contains(SOUL), "{got}");
    let at = got.find(r#","type""#).unwrap() + 1;
    assert_eq!(format!("{{{}", &got[at..]), parent, "{head}");
    upstream.write(OK).await;
    codex.head().await;
    codex.exactly(2).await;
    for headers in ["", "x-openai-subagent: collab_spawn\r\n"] {
        codex.write(&mirror.post(headers, child.as_bytes())).await;
        let (_, got) = read_request(&mut upstream).await;
        assert_eq!(got, child);
        upstream.write(OK).await;
        codex.head().await;
        codex.exactly(2).await;
    }
}

#[tokio::test]
async fn events_go_out_as_they_come_in() {
    let mirror = mirror().await;
    let mut codex = mirror.dial().await;
    codex.write(&mirror.head("GET", "/x", "")).await;
    let mut upstream = mirror.accept().await;
    upstream.head().await;
    upstream
        .write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    codex.head().await;
    for event in ["data: 1\n\n", "data: 2\n\n"] {
        // The second is written only when the first has arrived.
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        upstream.write(chunk.as_bytes()).await;
        assert_eq!(codex.exactly(chunk.len()).await, chunk.as_bytes());
    }
    // An upstream that dies is an error, not the end of the body.
    drop(upstream);
    let rest = codex.rest().await;
    assert!(
        !String::from_utf8_lossy(&rest).contains("0\r\n\r\n"),
        "{rest:?}"
    );
}

#[tokio::test]
async fn trailers_pass_where_they_are_wanted() {
    let mirror = mirror().await;
    let mut codex = mirror.dial().await;
    codex
        .write(&mirror.head("GET", "/x", "TE: trailers\r\nConnection: TE\r\n"))
        .await;
    let mut upstream = mirror.accept().await;
    let head = upstream.head().await.to_lowercase();
    assert!(head.contains("te: trailers"), "{head}");
    upstream
        .write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-end\r\n\r\n1\r\na\r\n0\r\nx-end: 7\r\n\r\n")
        .await;
    codex.head().await;
    assert_eq!(codex.exactly(6).await, b"1\r\na\r\n");
    let end = codex.head().await.to_lowercase();
    assert_eq!(end, "0\r\nx-end: 7\r\n\r\n");
}

#[tokio::test]
async fn large_bodies_are_edited_wherever_their_instructions_stand() {
    let mut mirror = mirror().await;
    let generation = mirror.turn("t", "u").await;
    let metadata = of_turn("t", "u", &generation);
    let header = format!("x-codex-turn-metadata: {metadata}\r\n");
    let told = Value::from(metadata.to_string());
    let told = format!(r#""client_metadata":{{"x-codex-turn-metadata":{told}}}"#);
    let input = format!(r#""input":["{}"]"#, "x".repeat(300_000));
    let own = r#""instructions":"own words""#;
    // What the headers claim and the body denies never arrives whole.
    let denied = told.replace("request_kind", "parent_thread_id");
    let body = format!("{{\"model\":\"m\",{own},{input},{denied}}}");
    let mut codex = mirror.dial().await;
    codex.write(&mirror.post(&header, body.as_bytes())).await;
    let mut upstream = mirror.accept().await;
    upstream.head().await;
    let arrived = upstream.rest().await;
    assert!(!arrived.ends_with(b"}"), "{} bytes", arrived.len());
    let head = codex.head().await;
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    assert!(head.contains("metadata_contradictory"), "{head}");
    let late = [&input, own, &told].join(",");
    for (members, has_own) in [
        ([own, &input, &told].join(","), true),
        (format!("{input},\n{told}"), false),
        (late, true),
    ] {
        let body = format!("{{\"model\":\"m\",{members}}}");
        let mut codex = mirror.dial().await;
        codex.write(&mirror.post(&header, body.as_bytes())).await;
        if members.starts_with(&input) && has_own {
            // Its beginning went on without them: it is asked for again, and read whole then.
            let mut upstream = mirror.accept().await;
            upstream.head().await;
            assert!(!upstream.rest().await.ends_with(b"}"));
            let head = codex.head().await;
            assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
            codex = mirror.dial().await;
            codex.write(&mirror.post(&header, body.as_bytes())).await;
        }
        let mut upstream = mirror.accept().await;
        let (_, got) = read_request(&mut upstream).await;
        let mut got: Value = serde_json::from_str(&got).unwrap();
        let text = got["instructions"].take();
        let text = text.as_str().unwrap();
        assert_eq!(text.starts_with("own words\n\n"), has_own, "{text}");
        assert!(text.ends_with(SOUL), "{text}");
        let mut sent: Value = serde_json::from_str(&body).unwrap();
        sent["instructions"] = Value::Null;
        assert!(got == sent, "all else is as it was");
        upstream.write(OK).await;
        assert!(codex.head().await.starts_with("HTTP/1.1 200 OK\r\n"));
    }
}

#[tokio::test]
async fn trailers_of_a_model_request_come_behind_it() {
    let mut mirror = mirror().await;
    let generation = mirror.turn("t", "u").await;
    let injected = request(&of_turn("t", "u", &generation), "");
    for body in [request(&of_child(), ""), injected] {
        let mut codex = mirror.dial().await;
        let headers = "Transfer-Encoding: chunked\r\nTrailer: x-end\r\n";
        codex
            .write(&mirror.head("POST", "/responses", headers))
            .await;
        let chunk = format!("{:x}\r\n{body}\r\n0\r\nx-end: 7\r\n\r\n", body.len());
        codex.write(chunk.as_bytes()).await;
        let mut upstream = mirror.accept().await;
        let head = upstream.head().await.to_lowercase();
        assert!(head.contains("trailer: x-end"), "{head}");
        assert!(upstream.until(b"\r\n0\r\n").await.len() >= body.len());
        assert_eq!(upstream.head().await.to_lowercase(), "x-end: 7\r\n\r\n");
        upstream.write(OK).await;
        assert!(codex.head().await.starts_with("HTTP/1.1 200 OK\r\n"));
    }
}

#[tokio::test]
async fn codex_that_hangs_up_cancels_the_request_at_once() {
    let mirror = mirror().await;
    for moment in ["upload", "before the head", "in the stream"] {
        let mut codex = mirror.dial().await;
        let length = if moment == "upload" { 9 } else { 3 };
        let headers = format!("x-openai-subagent: review\r\nContent-Length: {length}\r\n");
        codex
            .write(&mirror.head("POST", "/responses", &headers))
            .await;
        codex.write(b"abc").await;
        let mut upstream = mirror.accept().await;
        upstream.head().await;
        assert_eq!(upstream.exactly(3).await, b"abc", "{moment}");
        if moment == "in the stream" {
            upstream
                .write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
                .await;
            codex.head().await;
        }
        drop(codex);
        assert_eq!(upstream.rest().await, b"", "{moment}");
    }
}

#[tokio::test]
async fn early_answer_arrives_while_the_body_still_goes_up() {
    let mirror = mirror().await;
    let mut codex = mirror.dial().await;
    let headers = "x-openai-subagent: review\r\nContent-Length: 1000000\r\n";
    codex
        .write(&mirror.head("POST", "/responses", headers))
        .await;
    codex.write(b"abc").await;
    let mut upstream = mirror.accept().await;
    upstream.head().await;
    upstream
        .write(b"HTTP/1.1 429 Slow\r\nretry-after: 1\r\nContent-Length: 2\r\n\r\nno")
        .await;
    let head = codex.head().await;
    assert!(
        head.starts_with("HTTP/1.1 429 Slow\r\n") && head.contains("retry-after: 1"),
        "{head}"
    );
    assert_eq!(codex.exactly(2).await, b"no");
}

#[tokio::test]
async fn connection_that_the_upstream_closed_is_replaced_and_nothing_is_sent_twice() {
    let mirror = mirror().await;
    let mut codex = mirror.dial().await;
    for turn in 0..5 {
        let body = request(&of_child(), &format!(",\"turn\":{turn}"));
        codex.write(&mirror.post("", body.as_bytes())).await;
        let mut upstream = mirror.accept().await;
        assert_eq!(read_request(&mut upstream).await.1, body);
        upstream.write(OK).await;
        codex.head().await;
        codex.exactly(2).await;
        // Closed while it waits in the pool.
        drop(upstream);
    }
    // One that dies with the request in its hands: codex hears of it, the upstream sees it once.
    let body = request(&of_child(), "");
    codex.write(&mirror.post("", body.as_bytes())).await;
    let mut upstream = mirror.accept().await;
    read_request(&mut upstream).await;
    drop(upstream);
    let head = codex.head().await;
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    codex.write(&mirror.head("GET", "/after", "")).await;
    let mut upstream = mirror.accept().await;
    assert!(upstream.head().await.starts_with("GET /up/after "));
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_in_words() {
    let mut mirror = mirror().await;
    let generation = mirror.turn("t", "u").await;
    let parent = of_turn("t", "u", &generation);
    let stale = of_turn("t", "u", "stale");
    let unknown = of_turn("x", "u", &generation);
    let odd = json!({"thread_id": "t", "request_kind": "odd"});
    for (headers, body, reason) in [
        ("", request(&stale, ""), "generation_stale"),
        ("", request(&unknown, ""), "thread_unknown"),
        ("", request(&odd, ""), "metadata_unrecognized"),
        ("", "{}".to_owned(), "metadata_unrecognized"),
        ("", format!("{} x", request(&parent, "")), "body_invalid"),
        (
            "",
            format!("\u{feff}{}", request(&parent, "")),
            "body_invalid",
        ),
        (
            "",
            request(&parent, ",\"instructions\":[]"),
            "instructions_invalid",
        ),
        (
            "",
            request(&parent, ",\"instructions\":\"a\",\"instructions\":\"b\""),
            "body_invalid",
        ),
        (
            "Content-Encoding: gzip\r\n",
            request(&parent, ""),
            "encoding_unsupported",
        ),
        (
            "Content-Encoding: zstd, zstd\r\n",
            request(&parent, ""),
            "encoding_unsupported",
        ),
        (
            "Content-Encoding: zstd\r\n",
            request(&parent, ""),
            "body_invalid",
        ),
    ] {
        let mut codex = mirror.dial().await;
        codex.write(&mirror.post(headers, body.as_bytes())).await;
        let head = codex.head().await;
        assert!(head.starts_with("HTTP/1.1 400 "), "{reason}: {head}");
        assert!(
            head.contains(&format!("x-codex-relay-reason: {reason}")),
            "{reason}: {head}"
        );
        assert!(head.contains("text/plain"), "{reason}: {head}");
    }
    // None of them reached the upstream: the next connection carries the next request.
    let mut codex = mirror.dial().await;
    codex.write(&mirror.head("GET", "/last", "")).await;
    let mut upstream = mirror.accept().await;
    assert!(upstream.head().await.starts_with("GET /up/last "));
}

/// Reads a request with a length.
async fn read_request(peer: &mut Peer) -> (String, String) {
    let head = peer.head().await;
    let lower = head.to_lowercase();
    let (_, after) = lower.split_once("content-length: ").unwrap();
    let length = after.split("\r\n").next().unwrap().parse().unwrap();
    let body = String::from_utf8(peer.exactly(length).await).unwrap();
    (head, body)
}

#[tokio::test]
async fn other_protocols_pass_as_a_tunnel() {
    let mirror = mirror().await;
    let mut codex = mirror.dial().await;
    let ask = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Extensions: permessage-deflate\r\n";
    codex
        .write(&mirror.head("GET", "/realtime?model=x", ask))
        .await;
    let mut upstream = mirror.accept().await;
    let head = upstream.head().await.to_lowercase();
    assert!(
        head.starts_with("get /up/realtime?model=x http/1.1"),
        "{head}"
    );
    assert!(
        head.contains("upgrade: websocket") && head.contains("permessage-deflate"),
        "{head}"
    );
    upstream
        .write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await;
    assert!(codex.head().await.starts_with("HTTP/1.1 101 "));
    codex.write(b"\xC1up").await;
    assert_eq!(upstream.exactly(3).await, b"\xC1up");
    upstream.write(b"\xC1down").await;
    assert_eq!(codex.exactly(5).await, b"\xC1down");
}

#[tokio::test]
async fn proxies_are_not_asked_for_through_the_private_path() {
    let mirror = mirror().await;
    let mut codex = mirror.dial().await;
    codex.write(&mirror.head("CONNECT", "/x", "")).await;
    let head = codex.head().await;
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
}

#[tokio::test]
async fn without_a_context_nothing_has_to_be_understood() {
    let mirror = Mirror::silent().await;
    let odd = json!({"thread_id": "t", "request_kind": "odd"});
    for (headers, body) in [
        ("", request(&odd, "")),
        ("Content-Encoding: br\r\n", "{".to_owned()),
    ] {
        let mut codex = mirror.dial().await;
        codex.write(&mirror.post(headers, body.as_bytes())).await;
        let mut upstream = mirror.accept().await;
        assert_eq!(read_request(&mut upstream).await.1, body);
    }
}

#[tokio::test]
async fn codex_that_hangs_up_in_a_read_body_ends_the_upload() {
    let mirror = mirror().await;
    let body = request(
        &of_child(),
        &format!(",\"pad\":\"{}\"", "x".repeat(30_000_000)),
    );
    let before = descriptors(mirror.client.pid());
    let mut codex = mirror.dial().await;
    codex.write(&mirror.post("", body.as_bytes())).await;
    // The relay has it all by now; the upstream takes the first bytes of it.
    let mut upstream = mirror.accept().await;
    upstream.head().await;
    upstream.exactly(1000).await;
    drop(codex);
    // The upstream reads on only then.
    mirror.lets_go(before).await;
    let rest = upstream.rest().await;
    assert!(
        rest.len() < body.len() / 2,
        "{} bytes came all the same",
        rest.len()
    );
}
