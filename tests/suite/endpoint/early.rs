//! Upstreams that answer, or go away, while the request still goes up.

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::spawn;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::PATIENCE;
use crate::support::mirror::{Mirror, Peer, SOUL, of_child, of_turn, request};

/// More than the system keeps between two ends that don't read.
const LONG: usize = 16_000_000;

/// A request that goes up while its answer is read.
struct Uploading {
    codex: Peer,
    upload: JoinHandle<Peer>,
}

impl Uploading {
    async fn begin(mirror: &Mirror, request: Vec<u8>) -> Self {
        let codex = mirror.dial().await.0.into_std().unwrap();
        let mut writing = Peer(TcpStream::from_std(codex.try_clone().unwrap()).unwrap());
        let upload = spawn(async move {
            writing.write(&request).await;
            writing
        });
        let codex = Peer(TcpStream::from_std(codex).unwrap());
        Self { codex, upload }
    }
}

/// The requests that go up in different ways: name, head and body.
async fn requests(mirror: &mut Mirror) -> Vec<(&'static str, Vec<u8>)> {
    let generation = mirror.turn("t", "u").await;
    let pad = format!(",\"pad\":\"{}\"", "x".repeat(LONG));
    let parent = of_turn("t", "u", &generation);
    let told = format!("x-codex-turn-metadata: {parent}\r\n");
    let child = "x-openai-subagent: review\r\n";
    let of_parent = request(&parent, &pad).into_bytes();
    let of_child = request(&of_child(), &pad).into_bytes();
    let length = format!("Content-Length: {LONG}\r\n");
    let other = [mirror.head("POST", "/files", &length), vec![0; LONG]].concat();
    let chunked = "Transfer-Encoding: chunked\r\n";
    let mut chunks = mirror.head("POST", "/files", chunked);
    chunks.extend_from_slice(format!("{LONG:x}\r\n").as_bytes());
    chunks.extend_from_slice(&vec![0; LONG]);
    chunks.extend_from_slice(b"\r\n0\r\n\r\n");
    vec![
        ("unread", other),
        ("in chunks", chunks),
        ("counted", mirror.post(child, &of_child)),
        ("read whole", mirror.post("", &of_parent)),
        ("edited in passing", mirror.post(&told, &of_parent)),
    ]
}

#[tokio::test]
async fn answer_before_a_reset_arrives_whole_and_the_request_is_read_to_its_end() {
    let mut mirror = Mirror::start().await;
    mirror.thread("t").await;
    // Longer than what the relay reads at once.
    let words = "too long. ".repeat(4_000);
    let answer = format!(
        "HTTP/1.1 413 Too Long\r\nContent-Length: {}\r\n\r\n{words}",
        words.len()
    );
    for (name, request) in requests(&mut mirror).await {
        let Uploading { mut codex, upload } = Uploading::begin(&mirror, request).await;
        let mut upstream = mirror.accept().await;
        upstream.head().await;
        upstream.write(answer.as_bytes()).await;
        // With unread bytes in it, a dropped socket is reset.
        drop(upstream);
        let head = codex.head().await;
        assert!(
            head.starts_with("HTTP/1.1 413 Too Long\r\n"),
            "{name}: {head}"
        );
        assert_eq!(codex.exactly(words.len()).await, words.as_bytes(), "{name}");
        let mut writing = upload.await.unwrap();
        // Nothing was sent twice, and the connection has come through.
        let after = mirror.head("GET", "/after", "");
        writing.write(&after).await;
        let mut upstream = mirror.accept().await;
        let head = upstream.head().await;
        assert!(head.starts_with("GET /up/after "), "{name}: {head}");
    }
}

#[tokio::test]
async fn upstream_that_goes_away_in_mid_upload_is_told_in_words() {
    let mut mirror = Mirror::start().await;
    mirror.thread("t").await;
    for (name, request) in requests(&mut mirror).await {
        let Uploading { mut codex, upload } = Uploading::begin(&mirror, request).await;
        let mut upstream = mirror.accept().await;
        upstream.head().await;
        drop(upstream);
        let head = codex.head().await;
        assert!(head.starts_with("HTTP/1.1 502 "), "{name}: {head}");
        let words = codex.until(b"(upstream_unreachable)").await;
        let words = String::from_utf8(words).unwrap();
        assert!(words.contains("upstream: connection "), "{name}: {words}");
        upload.await.unwrap();
    }
}

#[tokio::test]
async fn answer_that_a_reset_cuts_short_is_no_whole_one() {
    let mut mirror = Mirror::start().await;
    mirror.thread("t").await;
    for framing in [
        "Content-Length: 9\r\n\r\nab",
        "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
        // As long as the connection lasts, and that was cut.
        "Connection: close\r\n\r\nab",
    ] {
        for (name, request) in requests(&mut mirror).await {
            let Uploading { mut codex, upload } = Uploading::begin(&mirror, request).await;
            let mut upstream = mirror.accept().await;
            upstream.head().await;
            let answer = format!("HTTP/1.1 413 Too Long\r\n{framing}");
            upstream.write(answer.as_bytes()).await;
            drop(upstream);
            let head = codex.head().await;
            assert!(head.starts_with("HTTP/1.1 413 "), "{name}: {head}");
            let rest = String::from_utf8(codex.rest().await).unwrap();
            assert!(rest.contains("ab"), "{name}: {framing}: {rest}");
            assert!(!rest.contains("0\r\n\r\n"), "{name}: {framing}: {rest}");
            upload.abort();
        }
    }
}

#[tokio::test]
async fn what_came_before_an_upstream_died_arrives() {
    let mut mirror = Mirror::start().await;
    mirror.thread("t").await;
    for body in ["ab", "", "zz\r\n"] {
        let framing = if body.len() > 2 {
            "Transfer-Encoding: chunked"
        } else {
            "Content-Length: 9"
        };
        let mut codex = mirror.dial().await;
        codex.write(&mirror.head("GET", "/x", "")).await;
        let mut upstream = mirror.accept().await;
        upstream.head().await;
        upstream
            .write(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{body}").as_bytes())
            .await;
        drop(upstream);
        let head = codex.head().await;
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{body}: {head}");
        let rest = String::from_utf8(codex.rest().await).unwrap();
        assert_eq!(rest, body.replace("zz\r\n", ""));
    }
}

#[tokio::test]
async fn body_that_waits_to_be_asked_for_is_not_asked_for_in_vain() {
    let mut mirror = Mirror::towards("http://127.0.0.1:1/up").await;
    mirror.thread("t").await;
    let mut codex = mirror.dial().await;
    let headers = "Content-Length: 3\r\nExpect: 100-continue\r\n";
    codex.write(&mirror.head("POST", "/x", headers)).await;
    let head = codex.head().await;
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert!(String::from_utf8_lossy(&codex.rest().await).contains("connect"));
}

/// Reads to the last chunk.
async fn all_chunks(peer: &mut Peer) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n0\r\n\r\n") {
        let read = timeout(PATIENCE, peer.0.read_buf(&mut bytes)).await;
        let count = read.expect("bytes in time").unwrap();
        assert!(count > 0, "an end after {} bytes", bytes.len());
    }
    bytes
}

#[tokio::test]
async fn upstream_that_answers_and_reads_on_gets_all() {
    let mut mirror = Mirror::start().await;
    mirror.thread("t").await;
    for (name, request) in requests(&mut mirror).await {
        let Uploading { mut codex, upload } = Uploading::begin(&mirror, request).await;
        let mut upstream = mirror.accept().await;
        let head = upstream.head().await.to_lowercase();
        upstream
            .write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
            .await;
        codex.head().await;
        assert_eq!(codex.exactly(6).await, b"1\r\na\r\n", "{name}");
        // Only now it reads.
        let body = match head.split_once("content-length: ") {
            Some((_, length)) => {
                let length = length.split("\r\n").next().unwrap().parse().unwrap();
                upstream.exactly(length).await
            }
            None => all_chunks(&mut upstream).await,
        };
        let is_injected = memchr::memmem::find(&body, SOUL.as_bytes()).is_some();
        let is_parent = ["read whole", "edited in passing"].contains(&name);
        assert_eq!(is_injected, is_parent, "{name}");
        assert!(body.len() >= LONG, "{name}: {}", body.len());
        upstream.write(b"0\r\n\r\n").await;
        assert_eq!(codex.exactly(5).await, b"0\r\n\r\n", "{name}");
        upload.await.unwrap();
    }
}
