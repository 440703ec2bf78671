//! Answers that come before the request has gone up, below TLS, behind a proxy and over HTTP/2.

use bytes::Bytes;
use codex_relay::upstream::client::{OutBody, Upstream, Usage, never};
use codex_relay::upstream::fault::Fault;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

use super::connections::way;
use crate::support::front::{Authority, Behind, Front};
use crate::support::mirror::Peer;
use crate::support::proxy::UPSTREAM;

/// How a connection is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Tls,
    Proxy,
    ProxyAndTls,
}

/// Takes one connection, reads the head of a request and goes away with the rest unread, `answer` being
/// said.
async fn answer_and_reset(
    listener: &TcpListener,
    authority: &Authority,
    way: Way,
    answer: Option<&str>,
) {
    let mut peer = Peer(listener.accept().await.unwrap().0);
    if matches!(way, Way::Proxy | Way::ProxyAndTls) {
        let head = peer.head().await;
        assert!(
            head.starts_with(&format!("CONNECT {UPSTREAM}:")),
            "{way:?}: {head}"
        );
        peer.write(b"HTTP/1.1 200 Connected\r\n\r\n").await;
    }
    match way {
        Way::Plain | Way::Proxy => say(peer.0, answer).await,
        Way::Tls | Way::ProxyAndTls => {
            let name = if way == Way::Tls {
                "localhost"
            } else {
                UPSTREAM
            };
            let accepted = authority.acceptor(name).accept(peer.0);
            say(accepted.await.unwrap(), answer).await;
        }
    }
}

async fn say(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: Option<&str>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    if let Some(answer) = answer {
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
    }
}

/// More than the system keeps between two ends that don't read.
fn long_request(url: &str) -> Request<OutBody> {
    let body = Full::new(Bytes::from(vec![0; 16_000_000]));
    let body = body.map_err(never).boxed_unsync();
    Request::post(url).body(body).unwrap()
}

#[tokio::test]
async fn answer_before_a_reset_is_whole_whatever_lies_between() {
    let authority = Authority::new("Authority of the test");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let words = "too long. ".repeat(4_000);
    let length = words.len();
    let answer = format!("HTTP/1.1 413 Too Long\r\nContent-Length: {length}\r\n\r\n{words}");
    for kind in [Way::Plain, Way::Tls, Way::Proxy, Way::ProxyAndTls] {
        let proxy = format!("http://{address}");
        let (proxy, url) = match kind {
            Way::Plain => (None, format!("http://localhost:{}/", address.port())),
            Way::Tls => (None, format!("https://localhost:{}/", address.port())),
            Way::Proxy => (Some(&proxy[..]), format!("http://{UPSTREAM}/")),
            Way::ProxyAndTls => (Some(&proxy[..]), format!("https://{UPSTREAM}/")),
        };
        let upstream = Upstream::new(way(&authority, proxy));
        for says in [Some(&answer[..]), None] {
            let (sent, ()) = tokio::join!(
                upstream.send(long_request(&url), Usage::Exchange),
                answer_and_reset(&listener, &authority, kind, says),
            );
            if says.is_none() {
                let fault = Fault::of(&sent.unwrap_err());
                assert!(fault.detail.starts_with("connection "), "{kind:?}: {fault}");
                continue;
            }
            let response = sent.unwrap();
            assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE, "{kind:?}");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert!(body == words, "{kind:?}: {} bytes", body.len());
        }
        // Nothing was sent again, and what is dead isn't used again: the next request has a connection
        // of its own.
        let (sent, ()) = tokio::join!(
            upstream.send(long_request(&url), Usage::Exchange),
            answer_and_reset(&listener, &authority, kind, Some(&answer)),
        );
        assert_eq!(sent.unwrap().status(), StatusCode::PAYLOAD_TOO_LARGE);
    }
}

#[tokio::test]
async fn early_answer_over_http2_is_whole_and_its_connection_goes_on() {
    let authority = Authority::new("Authority of the test");
    let front = Front::start(&authority, "localhost", Behind::Versions).await;
    let url = format!("https://localhost:{}/", front.address.port());
    let upstream = Upstream::new(way(&authority, None));
    // The service answers without a look at the body, and takes no more of it.
    for _ in 0..5 {
        let sent = upstream.send(long_request(&url), Usage::Exchange).await;
        let body = sent.unwrap().into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "HTTP/2.0");
    }
}

#[tokio::test]
async fn answer_over_http2_that_breaks_off_is_a_fault_and_no_end() {
    let authority = Authority::new("Authority of the test");
    let front = Front::start(&authority, "localhost", Behind::HalfAnswers).await;
    let url = format!("https://localhost:{}/", front.address.port());
    let upstream = Upstream::new(way(&authority, None));
    let sent = upstream.send(long_request(&url), Usage::Exchange).await;
    // The service may have given up before its head was sent.
    if let Ok(response) = sent {
        let collected = response.into_body().collect().await;
        assert!(collected.is_err(), "{collected:?}");
    }
}
