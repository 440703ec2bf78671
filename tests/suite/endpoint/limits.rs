//! Sizes at, one under and one over each limit, and the memory that they cost.

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::eventually;
use crate::support::mirror::{Mirror, Peer, SOUL, masked, of_child, of_turn, request, unmasked};
use crate::support::processes::peak_memory;

const LIMIT: usize = 33_554_432;
async fn mirror() -> Mirror {
    let mut mirror = Mirror::start().await;
    mirror.thread("t").await;
    mirror
}

/// A request of that size.
fn sized(metadata: &Value, size: usize) -> String {
    let pad = size - request(metadata, ",\"pad\":\"\"").len();
    let body = request(metadata, &format!(",\"pad\":\"{}\"", "x".repeat(pad)));
    assert_eq!(body.len(), size);
    body
}

async fn is_refused(codex: &mut Peer, words: &str) {
    is_refused_for(codex, "request_too_large", words).await;
}

async fn is_refused_for(codex: &mut Peer, reason: &str, words: &str) {
    let head = codex.head().await;
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    let reason = format!("x-codex-relay-reason: {reason}");
    assert!(head.contains(&reason), "{head}");
    let body = String::from_utf8(codex.exactly(length(&head)).await).unwrap();
    assert!(body.contains(words), "{body}");
}

fn length(head: &str) -> usize {
    let head = head.to_lowercase();
    let (_, after) = head.split_once("content-length: ").unwrap();
    after.split("\r\n").next().unwrap().parse().unwrap()
}

/// Reads a body that the relay passes on and answers it; each body comes on a connection of its own.
async fn takes(upstream: &mut Peer, size: usize) -> Vec<u8> {
    let head = upstream.head().await.to_lowercase();
    assert!(head.contains(&format!("content-length: {size}")), "{head}");
    let body = upstream.exactly(size).await;
    upstream.write(EMPTY).await;
    body
}

/// What the upstream answers.
const EMPTY: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

#[tokio::test]
async fn body_at_the_limit_passes_and_one_over_is_refused() {
    let mirror = mirror().await;
    for headers in ["", "x-openai-subagent: review\r\n"] {
        let mut codex = mirror.dial().await;
        let body = sized(&of_child(), LIMIT);
        let post = mirror.post(headers, body.as_bytes());
        let sending = codex.write(&post);
        let taking = async {
            let mut upstream = mirror.accept().await;
            assert!(takes(&mut upstream, LIMIT).await == body.as_bytes());
        };
        tokio::join!(sending, taking);
        assert!(codex.head().await.starts_with("HTTP/1.1 200 "));
        let body = sized(&of_child(), LIMIT + 1);
        codex.write(&mirror.post(headers, body.as_bytes())).await;
        is_refused(
            &mut codex,
            "request body is 33554433 bytes, the limit is 33554432 (request_too_large)",
        )
        .await;
        // The same in chunks: its size shows only when it has come.
        let head = mirror.head(
            "POST",
            "/responses",
            &format!("{headers}Transfer-Encoding: chunked\r\n"),
        );
        let mut codex = mirror.dial().await;
        let chunk = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        let post = [&head, chunk.as_bytes()].concat();
        let refused = async {
            codex.write(&post).await;
            is_refused(&mut codex, "the limit is 33554432 (request_too_large)").await;
        };
        if headers.is_empty() {
            refused.await;
            continue;
        }
        // What was on its way already is cut off.
        tokio::join!(refused, async {
            let got = mirror.accept().await.rest().await;
            assert!(got.len() < LIMIT + 10_000 && !got.ends_with(b"0\r\n\r\n"));
        });
    }
}

#[tokio::test]
async fn body_that_its_context_lifts_over_the_limit_is_refused() {
    let mut mirror = mirror().await;
    let generation = mirror.turn("t", "u").await;
    let metadata = of_turn("t", "u", &generation);
    let mut codex = mirror.dial().await;
    let body = sized(&metadata, LIMIT - 10);
    codex.write(&mirror.post("", body.as_bytes())).await;
    is_refused(&mut codex, "with its context, the limit is 33554432").await;
    let (mut codex, mut upstream, _) = mirror.socket("", "").await;
    codex.write(&masked(0x81, body.as_bytes())).await;
    let event = String::from_utf8(codex.frame().await.1).unwrap();
    assert!(
        event.contains("with its context, the limit is 33554432"),
        "{event}"
    );
    codex.write(&masked(0x81, b"{}")).await;
    assert_eq!(upstream.message().await, b"{}");
}

/// Text that stays long when it is compressed.
fn noise(bytes: usize) -> String {
    let mut word = 1_u32;
    let next = |_| {
        word ^= word << 13;
        word ^= word >> 17;
        word ^= word << 5;
        char::from(b'0' + word.to_le_bytes()[0] % 64)
    };
    (0..bytes).map(next).collect::<String>().replace('\\', "/")
}

#[tokio::test]
async fn large_zstd_is_edited_while_it_comes_and_asked_for_again_where_it_is_odd() {
    let mut mirror = mirror().await;
    let generation = mirror.turn("t", "u").await;
    let metadata = of_turn("t", "u", &generation);
    let input = format!(r#","input":["{}"]"#, noise(8 << 20));
    let whole = request(&metadata, &input);
    let (first, second) = whole.split_at(7 << 20);
    let pack = |text: &str| zstd::encode_all(text.as_bytes(), 3).unwrap();
    let frames = [pack(first), pack(second)].concat();
    let header = format!("Content-Encoding: zstd\r\nx-codex-turn-metadata: {metadata}\r\n");
    for (packed, is_odd) in [(pack(&whole), false), (frames, true)] {
        let mut codex = mirror.dial().await;
        if is_odd {
            codex.write(&mirror.post(&header, &packed)).await;
            let head = codex.head().await;
            assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
            assert!(
                head.contains("x-codex-relay-reason: body_invalid"),
                "{head}"
            );
            codex = mirror.dial().await;
        }
        codex.write(&mirror.post(&header, &packed)).await;
        let mut upstream = mirror.accept().await;
        let head = upstream.head().await.to_lowercase();
        let (_, after) = head.split_once("content-length: ").unwrap();
        let length = after.split("\r\n").next().unwrap().parse().unwrap();
        let body = zstd::decode_all(&upstream.exactly(length).await[..]).unwrap();
        let body = String::from_utf8(body).unwrap();
        assert!(body.starts_with(r#"{"instructions":""#) && body.ends_with(&whole[1..]));
    }
}

/// The metadata as a text of that size, whose literal in a body is twice as long.
fn metadata_of(metadata: &Value, size: usize) -> String {
    let mut metadata = metadata.clone();
    metadata["pad"] = "".into();
    let pad = size - metadata.to_string().len();
    metadata["pad"] = format!("{}{}", "\\".repeat(pad / 2), "x".repeat(pad % 2)).into();
    let text = metadata.to_string();
    assert_eq!(text.len(), size);
    text
}

#[tokio::test]
async fn metadata_at_the_limit_is_read_and_one_over_is_refused_with_both_numbers() {
    let mut mirror = mirror().await;
    let generation = mirror.turn("t", "u").await;
    let metadata = of_turn("t", "u", &generation);
    let words = "metadata is 1048577 bytes, the limit is 1048576 (metadata_unrecognized)";
    for has_header in [false, true] {
        for size in [1_048_576, 1_048_577] {
            let text = metadata_of(&metadata, size);
            let literal = Value::from(text.as_str());
            let body = format!(r#"{{"client_metadata":{{"x-codex-turn-metadata":{literal}}}}}"#);
            let header = if has_header {
                format!("x-codex-turn-metadata: {text}\r\n")
            } else {
                String::new()
            };
            let mut codex = mirror.dial().await;
            codex.write(&mirror.post(&header, body.as_bytes())).await;
            if size == 1_048_576 {
                let mut upstream = mirror.accept().await;
                let head = upstream.head().await;
                let got = upstream.exactly(length(&head)).await;
                assert!(got.starts_with(b"{\"instructions\":\""));
                assert!(got.ends_with(&body.as_bytes()[1..]));
                upstream.write(EMPTY).await;
                assert!(codex.head().await.starts_with("HTTP/1.1 200 "));
            } else {
                is_refused_for(&mut codex, "metadata_unrecognized", words).await;
            }
        }
    }
    let (mut codex, mut upstream, _) = mirror.socket("", "").await;
    for size in [1_048_576, 1_048_577] {
        let literal = Value::from(metadata_of(&metadata, size));
        let message = format!(
            r#"{{"type":"response.create","client_metadata":{{"x-codex-turn-metadata":{literal}}}}}"#
        );
        codex.write(&masked(0x81, message.as_bytes())).await;
        if size == 1_048_576 {
            assert!(
                upstream
                    .message()
                    .await
                    .starts_with(b"{\"instructions\":\"")
            );
        } else {
            let event = String::from_utf8(codex.frame().await.1).unwrap();
            assert!(event.contains(words), "{event}");
        }
    }
}

#[tokio::test]
async fn zstd_of_every_kind_is_opened_within_the_limit() {
    let mut mirror = mirror().await;
    let generation = mirror.turn("t", "u").await;
    let metadata = of_turn("t", "u", &generation);
    let small = request(&metadata, "");
    let (first, second) = small.split_at(40);
    let pack = |text: &str| zstd::encode_all(text.as_bytes(), 3).unwrap();
    let frames = [pack(first), pack(second)].concat();
    for packed in [pack(&small), frames] {
        let mut codex = mirror.dial().await;
        codex
            .write(&mirror.post("Content-Encoding: zstd\r\n", &packed))
            .await;
        let mut upstream = mirror.accept().await;
        let head = upstream.head().await.to_lowercase();
        assert!(head.contains("content-encoding: zstd"), "{head}");
        let (_, after) = head.split_once("content-length: ").unwrap();
        let length = after.split("\r\n").next().unwrap().parse().unwrap();
        let body = zstd::decode_all(&upstream.exactly(length).await[..]).unwrap();
        let body = String::from_utf8(body).unwrap();
        assert!(body.contains(SOUL) && body.ends_with(&small[1..]), "{body}");
    }
    let child = pack(&request(&of_child(), ""));
    let mut codex = mirror.dial().await;
    codex
        .write(&mirror.post("Content-Encoding: zstd\r\n", &child))
        .await;
    let mut upstream = mirror.accept().await;
    assert_eq!(takes(&mut upstream, child.len()).await, child);
    let mut codex = mirror.dial().await;
    let bomb = pack(&sized(&of_child(), LIMIT + 1));
    codex
        .write(&mirror.post("Content-Encoding: zstd\r\n", &bomb))
        .await;
    is_refused(&mut codex, "more than 33554432 bytes inflated").await;
    let mut codex = mirror.dial().await;
    let cut = pack(&small);
    codex
        .write(&mirror.post("Content-Encoding: zstd\r\n", &cut[..cut.len() - 4]))
        .await;
    let head = codex.head().await;
    assert!(
        head.contains("x-codex-relay-reason: body_invalid"),
        "{head}"
    );
    let status = mirror.client.ok("relay/status", json!({})).await;
    assert_eq!(status["totals"]["refused"], 2, "{status}");
}

#[tokio::test]
async fn message_at_the_limit_passes_and_one_over_is_refused() {
    let mut mirror = mirror().await;
    let thread = r#"{"thread_id":"t","request_kind":"prewarm"}"#;
    let thread = format!("x-codex-turn-metadata: {thread}\r\n");
    let (mut codex, mut upstream, _) = mirror.socket(&thread, "").await;
    let at = sized(&of_child(), LIMIT);
    let frame = masked(0x81, at.as_bytes());
    tokio::join!(codex.write(&frame), async {
        assert!(upstream.message().await == at.as_bytes());
    });
    let over = sized(&of_child(), LIMIT + 1);
    let (first, second) = over.as_bytes().split_at(1000);
    let whole = masked(0x81, over.as_bytes());
    let fragments = [masked(0x01, first), masked(0x80, second)].concat();
    for message in [whole, fragments] {
        codex.write(&message).await;
        let event = String::from_utf8(codex.frame().await.1).unwrap();
        let words =
            "WebSocket message is 33554433 bytes, the limit is 33554432 (request_too_large)";
        assert!(event.contains(words), "{event}");
        codex.write(&masked(0x81, b"{}")).await;
        assert_eq!(upstream.message().await, b"{}");
    }
    // What wasn't read is counted for the thread of its socket.
    let status = mirror.client.ok("relay/status", json!({})).await;
    let told = &status["threads"][0];
    assert_eq!(told["requests"]["refused"], 2, "{status}");
    assert_eq!(told["lastRefusal"]["reason"], "request_too_large");
}

#[tokio::test]
async fn message_of_the_upstream_at_the_limit_passes_and_one_over_closes() {
    let mirror = mirror().await;
    let (mut codex, mut upstream, _) = mirror.socket("", "").await;
    let at = vec![b'x'; LIMIT];
    let frame = unmasked(0x81, &at);
    tokio::join!(upstream.write(&frame), async {
        assert!(codex.message().await == at);
    });
    let (one, rest) = (unmasked(0x01, b"x"), unmasked(0x80, &at));
    upstream.write(&one).await;
    assert_eq!(codex.frame().await, (0x01, b"x".to_vec()));
    // Nobody reads it to its end.
    let (head, _) = rest.split_at(64);
    upstream.write(head).await;
    let (first, payload) = codex.frame().await;
    assert_eq!((first, &payload[..2]), (0x88, &1009_u16.to_be_bytes()[..]));
}

/// Clients that have read the head of a long response, and nothing behind it.
async fn slow_readers(mirror: &Mirror) -> Vec<Peer> {
    let mut slow = Vec::new();
    for _ in 0..8 {
        let mut codex = mirror.dial().await;
        codex.write(&mirror.head("GET", "/models", "")).await;
        let mut upstream = mirror.accept().await;
        upstream.head().await;
        tokio::spawn(async move {
            let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 30000000\r\n\r\n";
            upstream.write(head.as_bytes()).await;
            upstream.write(&vec![b'y'; 30_000_000]).await;
        });
        assert!(codex.head().await.starts_with("HTTP/1.1 200 "));
        slow.push(codex);
    }
    slow
}

#[tokio::test]
async fn many_large_messages_wait_for_their_turn_in_bounded_memory() {
    let mirror = mirror().await;
    let before = peak_memory(mirror.client.pid());
    let body = sized(&of_child(), 30_000_000);
    let message = masked(0x81, body.as_bytes());
    let mut sockets = Vec::new();
    for _ in 0..64 {
        sockets.push(mirror.socket("", "").await);
    }
    // Eight readers that read nothing yet of 240 MB.
    let slow = slow_readers(&mirror).await;
    // Eight senders, four of each kind, at an upstream that doesn't read yet: 240 MB.
    let mut senders = JoinSet::new();
    for _ in 0..4 {
        let mut codex = mirror.dial().await;
        let post = mirror.post("", body.as_bytes());
        senders.spawn(async move {
            codex.write(&post).await;
            assert!(codex.head().await.starts_with("HTTP/1.1 200 "));
        });
    }
    let mut receivers = Vec::new();
    for (mut codex, upstream, _) in sockets.drain(..4) {
        let message = message.clone();
        senders.spawn(async move {
            codex.write(&message).await;
            // Open until the upstream has answered.
            assert_eq!(codex.frame().await, (0x81, b"done".to_vec()));
        });
        receivers.push(upstream);
    }
    eventually("the budget is in use", || {
        (peak_memory(mirror.client.pid()) > before + 30_000_000).then_some(())
    })
    .await;
    let mut readers = JoinSet::new();
    for mut upstream in receivers {
        let expected = body.clone();
        readers.spawn(async move {
            assert!(upstream.message().await == expected.as_bytes());
            upstream.write(&unmasked(0x81, b"done")).await;
        });
    }
    for _ in 0..4 {
        let mut upstream = mirror.accept().await;
        let expected = body.clone();
        readers.spawn(async move {
            assert!(takes(&mut upstream, expected.len()).await == expected.as_bytes());
        });
    }
    while let Some(done) = readers.join_next().await {
        done.unwrap();
    }
    while let Some(done) = senders.join_next().await {
        done.unwrap();
    }
    for mut codex in slow {
        assert_eq!(codex.exactly(30_000_000).await.last(), Some(&b'y'));
    }
    let peak = peak_memory(mirror.client.pid()) - before;
    assert!(peak <= 128 * 1024 * 1024, "{peak} bytes at the most");
}
