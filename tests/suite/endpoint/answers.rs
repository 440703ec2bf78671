//! Answers of every status, with many headers and odd bodies, and what is asked with as many.

use crate::support::mirror::{Mirror, Peer, masked, of_child, of_turn, request, unmasked};

async fn mirror() -> Mirror {
    let mut mirror = Mirror::start().await;
    mirror.thread("t").await;
    mirror
}

/// Reads a body that came in chunks.
fn joined(mut chunks: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = memchr::memmem::find(chunks, b"\r\n").unwrap();
        let size = std::str::from_utf8(&chunks[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        chunks = &chunks[end + 2..];
        if size == 0 {
            assert_eq!(chunks, b"\r\n");
            return body;
        }
        body.extend_from_slice(&chunks[..size]);
        assert_eq!(&chunks[size..size + 2], b"\r\n");
        chunks = &chunks[size + 2..];
    }
}

/// Reads a request with a length to its end.
async fn take(upstream: &mut Peer) -> String {
    let head = upstream.head().await;
    let lower = head.to_lowercase();
    let (_, after) = lower.split_once("content-length: ").unwrap();
    let length = after.split("\r\n").next().unwrap().parse().unwrap();
    upstream.exactly(length).await;
    head
}

#[tokio::test]
async fn events_of_any_kind_and_length_pass_byte_for_byte() {
    let mut mirror = mirror().await;
    let generation = mirror.turn("t", "u").await;
    let parent = request(&of_turn("t", "u", &generation), "");
    let mut events =
        b": a comment\n\nevent: response.unheard_of\r\ndata: {\r\ndata: }\r\n\r\n".to_vec();
    events.extend_from_slice(b"data: {\"type\":\"error\",\"code\":\"limit_reached\"}\n\n");
    events.extend_from_slice(b"event: response.failed\ndata: {\"type\":\"response.failed\"}\n\n");
    events.extend_from_slice(b"data: \xff\xfe\x00 caf\xc3");
    events.extend_from_slice(b"\xa9\nid\nretry: x\n\ndata: ");
    events.extend(std::iter::repeat_n(b'x', 8 << 20));
    // No newline at the end.
    events.extend_from_slice(b"\n\ndata: last");
    for coding in ["", "Content-Encoding: gzip\r\n"] {
        for post in [
            mirror.post("Connection: close\r\n", parent.as_bytes()),
            mirror.head("GET", "/x", "Connection: close\r\n"),
        ] {
            let mut codex = mirror.dial().await;
            codex.write(&post).await;
            let mut upstream = mirror.accept().await;
            if post.starts_with(b"POST") {
                take(&mut upstream).await;
            } else {
                upstream.head().await;
            }
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{coding}Connection: close\r\n\r\n"
            );
            let sending = async {
                upstream.write(head.as_bytes()).await;
                upstream.write(&events).await;
                drop(upstream);
            };
            let reading = async {
                let head = codex.head().await;
                assert!(
                    head.contains("Content-Type: text/event-stream\r\n"),
                    "{head}"
                );
                assert!(head.contains(coding), "{head}");
                assert!(joined(&codex.rest().await) == events);
            };
            tokio::join!(sending, reading);
        }
    }
}

#[tokio::test]
async fn statuses_pass_as_they_are() {
    let mut mirror = mirror().await;
    let generation = mirror.turn("t", "u").await;
    let parent = request(&of_turn("t", "u", &generation), "");
    let mut codex = mirror.dial().await;
    let mut upstream: Option<Peer> = None;
    for status in (200..204).chain(205..304).chain(305..1000) {
        // A request of each kind in turn.
        let post = if status % 2 == 0 {
            mirror.post("", parent.as_bytes())
        } else {
            mirror.post("x-openai-subagent: review\r\n", parent.as_bytes())
        };
        codex.write(&post).await;
        let mut peer = match upstream.take() {
            Some(peer) => peer,
            None => mirror.accept().await,
        };
        take(&mut peer).await;
        let answer = format!(
            "HTTP/1.1 {status} Words Of Its Own\r\nLocation: http://other.example/\r\nContent-Length: 3\r\n\r\nabc"
        );
        peer.write(answer.as_bytes()).await;
        let head = codex.head().await;
        assert_eq!(format!("{head}abc"), answer);
        assert_eq!(codex.exactly(3).await, b"abc");
        upstream = Some(peer);
    }
}

/// Sixty headers: repeated, empty, long, with bytes that are no ASCII.
fn many_headers() -> Vec<u8> {
    let mut headers = Vec::new();
    for number in 0..52 {
        headers.extend_from_slice(format!("X-Codex-Number-{number}: {number}\r\n").as_bytes());
    }
    headers.extend_from_slice(b"x-lower: a\r\nX-UPPER: b\r\nX-Empty: \r\n");
    headers.extend_from_slice("X-Words: 路径/プロジェクト, caf\u{e9}\r\n".as_bytes());
    headers.extend_from_slice(b"X-Bytes: \x80\xff\xe9 \"a, b\"; q=\t1\r\n");
    headers.extend_from_slice(format!("X-Long: {}\r\n", "l".repeat(16 << 10)).as_bytes());
    headers.extend_from_slice(b"Set-Cookie: a=1\r\nset-cookie: b=2\r\nSet-Cookie: a=1\r\n");
    headers
}

/// The lines of a head that are neither about one hop nor its first, in order.
fn lines(head: &[u8]) -> Vec<String> {
    let hop = [
        "connection:",
        "upgrade:",
        "host:",
        "content-length:",
        "sec-websocket-",
        "x-codex-websocket-",
    ];
    let lines = head.split(|byte| *byte == b'\n').skip(1);
    let lines = lines.map(|line| line.trim_ascii_end().escape_ascii().to_string());
    let lines = lines.filter(|line| !line.is_empty());
    lines
        .filter(|line| !hop.iter().any(|name| line.to_lowercase().starts_with(name)))
        .collect()
}

const HANDSHAKE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

#[tokio::test]
async fn headers_pass_both_ways_in_their_order() {
    let mut mirror = mirror().await;
    let generation = mirror.turn("t", "u").await;
    let parent = request(&of_turn("t", "u", &generation), "");
    let many = many_headers();
    let expected = lines(&[b"\n", &many[..]].concat());
    assert_eq!(expected.len(), 61);
    // A string of bytes goes where a string of words is asked for.
    let spliced = |head: Vec<u8>| {
        let end = memchr::memmem::find(&head, b"\r\n\r\n").unwrap() + 2;
        [&head[..end], &many, &head[end..]].concat()
    };
    let parent = mirror.post("", parent.as_bytes());
    let child = mirror.post("x-openai-subagent: review\r\n", b"{}");
    let models = mirror.head("GET", "/models?client_version=0.171.0", "");
    let upgrade = mirror.head("GET", "/responses", HANDSHAKE);
    for (post, status, body) in [
        (parent.clone(), "200 OK", "ok"),
        (parent, "429 Too Many Requests", "no"),
        (child, "200 OK", "ok"),
        (models, "200 OK", "ok"),
        (upgrade.clone(), "101 Switching Protocols", ""),
        (upgrade, "403 Forbidden", "no"),
    ] {
        let mut codex = mirror.dial().await;
        let post = spliced(post);
        let own = lines(&post[..memchr::memmem::find(&post, b"\r\n\r\n").unwrap()]);
        codex.write(&post).await;
        let mut upstream = mirror.accept().await;
        let head = upstream.until(b"\r\n\r\n").await;
        assert_eq!(lines(&head), own);
        let length = if body.is_empty() {
            "Connection: Upgrade\r\nUpgrade: websocket\r\n".to_owned()
        } else {
            format!("Connection: close\r\nContent-Length: {}\r\n", body.len())
        };
        let answer = format!("HTTP/1.1 {status}\r\n{length}\r\n{body}");
        upstream.write(&spliced(answer.into_bytes())).await;
        let head = codex.until(b"\r\n\r\n").await;
        assert!(head.starts_with(format!("HTTP/1.1 {status}\r\n").as_bytes()));
        assert_eq!(lines(&head), expected, "{status}");
        if body.is_empty() {
            // Frames pass behind them.
            let child = request(&of_child(), "");
            codex.write(&masked(0x81, child.as_bytes())).await;
            assert_eq!(upstream.message().await, child.as_bytes());
            upstream.write(&unmasked(0x81, b"ok")).await;
            assert_eq!(codex.frame().await, (0x81, b"ok".to_vec()));
        } else {
            assert_eq!(codex.exactly(2).await, body.as_bytes());
        }
    }
}
