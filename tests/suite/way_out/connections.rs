//! Connections of the library: through proxies, over TLS, and what is said where they fail.

use bytes::Bytes;
use codex_relay::upstream::client::{Upstream, Usage, never};
use codex_relay::upstream::dial::WayOut;
use codex_relay::upstream::fault::{Fault, Hop};
use codex_relay::upstream::proxy::{NoProxy, Proxies, Proxy};
use codex_relay::upstream::roots::{ExtraRoots, read_file};
use http::Request;
use http_body_util::{BodyExt, Empty};
use tokio::net::TcpListener;

use crate::support::front::{Authority, Behind, Front};
use crate::support::mirror::Peer;
use crate::support::proxy::{ForwardProxy, PASSWORD, UPSTREAM};

/// A way out that trusts an authority and goes through a proxy.
pub(super) fn way(authority: &Authority, proxy: Option<&str>) -> WayOut {
    let folder = tempfile::tempdir().unwrap();
    WayOut {
        proxies: Proxies {
            proxy: proxy.map(|url| Proxy::parse(url).unwrap()),
            except: NoProxy::default(),
        },
        roots: ExtraRoots {
            certificates: read_file(&authority.file(folder.path())).unwrap(),
            ..ExtraRoots::default()
        },
        public_only: false,
    }
}

/// The body of what `url` answers.
async fn ask(upstream: &Upstream, url: &str, usage: Usage) -> Result<String, Fault> {
    let body = Empty::<Bytes>::new().map_err(never).boxed_unsync();
    let request = Request::get(url).body(body).unwrap();
    let sent = upstream.send(request, usage).await;
    let mut body = sent.map_err(|error| Fault::of(&error))?.into_body();
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        text.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default());
    }
    Ok(String::from_utf8(text).unwrap())
}

/// What is said where a request to `name` at `front` fails.
async fn fault(way: WayOut, front: &Front, name: &str) -> Fault {
    let url = format!("https://{name}:{}/", front.address.port());
    let asked = ask(&Upstream::new(way), &url, Usage::Exchange).await;
    asked.expect_err("nobody should have answered")
}

#[tokio::test]
async fn requests_and_upgrades_go_through_a_proxy_that_resolves_the_name() {
    let authority = Authority::new("Authority of the test");
    let front = Front::start(&authority, UPSTREAM, Behind::Versions).await;
    let url = format!("https://{UPSTREAM}:{}/", front.address.port());
    let http = ForwardProxy::with_login().await;
    let socks = ForwardProxy::socks().await;
    for proxy in [http.url("http"), socks.url("socks5"), socks.url("socks5h")] {
        let upstream = Upstream::new(way(&authority, Some(&proxy)));
        let exchanged = ask(&upstream, &url, Usage::Exchange).await;
        assert_eq!(exchanged.as_deref(), Ok("HTTP/2.0"), "{proxy}");
        let upgraded = ask(&upstream, &url, Usage::Upgrade).await;
        assert_eq!(upgraded.as_deref(), Ok("HTTP/1.1"), "{proxy}");
    }
    assert_eq!(http.tunnels(), 2);
    let direct = fault(way(&authority, None), &front, UPSTREAM).await;
    assert_eq!(direct.to_string(), "dns: no such host");
}

#[tokio::test]
async fn https_proxy_is_spoken_to_over_tls() {
    let authority = Authority::new("Authority of the test");
    let upstream = Front::start(&authority, UPSTREAM, Behind::Versions).await;
    let http = ForwardProxy::with_login().await;
    let behind = Behind::Endpoint(http.address);
    let proxy = Front::start(&authority, "localhost", behind).await;
    let url = http.url("https").replace(
        &http.address.to_string(),
        &format!("localhost:{}", proxy.address.port()),
    );
    let target = format!("https://{UPSTREAM}:{}/", upstream.address.port());
    let sent = Upstream::new(way(&authority, Some(&url)));
    let answer = ask(&sent, &target, Usage::Exchange).await;
    assert_eq!(answer.as_deref(), Ok("HTTP/2.0"));
    let stranger = Authority::new("Another");
    let refused = fault(way(&stranger, Some(&url)), &upstream, UPSTREAM).await;
    assert_eq!(
        refused.to_string(),
        format!(
            "proxy localhost:{}: tls: unknown issuer CN=Authority of the test",
            proxy.address.port()
        )
    );
}

#[tokio::test]
async fn loopback_skips_the_proxy() {
    let authority = Authority::new("Authority of the test");
    let front = Front::start(&authority, "localhost", Behind::Versions).await;
    let upstream = Upstream::new(way(&authority, Some("http://127.0.0.1:1")));
    let url = format!("https://localhost:{}/", front.address.port());
    let answer = ask(&upstream, &url, Usage::Exchange).await;
    assert_eq!(answer.as_deref(), Ok("HTTP/2.0"));
}

#[tokio::test]
async fn proxies_that_refuse_are_named_with_their_answer_and_without_the_password() {
    let authority = Authority::new("Authority of the test");
    let front = Front::start(&authority, UPSTREAM, Behind::Versions).await;
    let strict = ForwardProxy::with_login().await;
    let narrow = ForwardProxy::tinyproxy("ConnectPort 1").await;
    let told = async |url: String| fault(way(&authority, Some(&url)), &front, UPSTREAM).await;
    let nobody = told(format!("http://{}", strict.address)).await;
    let words = format!("proxy {} answered 407 ", strict.address);
    assert!(nobody.to_string().starts_with(&words), "{nobody}");
    let wrong = told(format!("http://me:{PASSWORD}@{}", strict.address)).await;
    assert!(wrong.to_string().contains(" answered 40"), "{wrong}");
    assert!(!format!("{wrong:?}").contains(PASSWORD));
    let closed = told(format!("http://{}", narrow.address)).await;
    let words = format!("proxy {} answered 403 ", narrow.address);
    assert!(closed.to_string().starts_with(&words), "{closed}");
    let socks = ForwardProxy::socks().await;
    let login = told(format!("socks5://me:{PASSWORD}@{}", socks.address)).await;
    let words = format!("proxy {}: SOCKS: credentials not accepted", socks.address);
    assert_eq!(login.to_string(), words);
    assert!(login.permanent);
    assert!(nobody.permanent && wrong.permanent && closed.permanent);
}

#[tokio::test]
async fn proxies_that_died_or_hang_are_named() {
    let authority = Authority::new("Authority of the test");
    let front = Front::start(&authority, UPSTREAM, Behind::Versions).await;
    let told = async |url: String| fault(way(&authority, Some(&url)), &front, UPSTREAM).await;
    let dead = ForwardProxy::tinyproxy("").await;
    let address = dead.address;
    drop(dead);
    let refused = told(format!("http://me:{PASSWORD}@{address}")).await;
    assert_eq!(
        refused,
        Fault::passing(Hop::Proxy, format!("{address}: connection refused"))
    );
    let unknown = told("http://proxy.invalid:3128".to_owned()).await;
    assert_eq!(
        unknown.to_string(),
        "proxy proxy.invalid:3128: dns: no such host"
    );
    // The system takes the connections, nobody reads from them.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let (tunnel, socks, secure) = tokio::join!(
        told(format!("http://{address}")),
        told(format!("socks5://{address}")),
        told(format!("https://{address}")),
    );
    let late = format!("proxy {address}: no tunnel within 10s");
    assert_eq!(
        (tunnel.to_string(), socks.to_string()),
        (late.clone(), late)
    );
    assert_eq!(
        secure.to_string(),
        format!("proxy {address}: tls: no handshake within 10s")
    );
    assert!(![tunnel, socks, secure].iter().any(|fault| fault.permanent));
}

#[tokio::test]
async fn proxy_that_dies_in_mid_stream_is_a_fault_and_no_end() {
    let authority = Authority::new("Authority of the test");
    let endpoint = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let behind = Behind::Endpoint(endpoint.local_addr().unwrap());
    let front = Front::start(&authority, UPSTREAM, behind).await;
    let url = format!("https://{UPSTREAM}:{}/", front.address.port());
    // The last one's stream would be as long as it lasts.
    for framing in [
        "Content-Length: 9\r\n\r\nab",
        "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
        "Connection: close\r\n\r\nab",
    ] {
        let proxy = ForwardProxy::tinyproxy("").await;
        let upstream = Upstream::new(way(&authority, Some(&format!("http://{}", proxy.address))));
        let body = Empty::<Bytes>::new().map_err(never).boxed_unsync();
        let request = Request::get(&url).body(body).unwrap();
        let answering = async {
            let mut peer = Peer(endpoint.accept().await.unwrap().0);
            peer.head().await;
            let head = format!("HTTP/1.1 200 OK\r\n{framing}");
            peer.write(head.as_bytes()).await;
            peer
        };
        let (sent, _peer) = tokio::join!(upstream.send(request, Usage::Exchange), answering);
        let mut body = sent.unwrap().into_body();
        let first = body.frame().await.unwrap().unwrap().into_data();
        assert_eq!(first.unwrap(), "ab");
        drop(proxy);
        let next = body.frame().await;
        assert!(matches!(next, Some(Err(_))), "{framing}: {next:?}");
    }
}

#[tokio::test]
async fn bad_certificates_are_told_apart() {
    let authority = Authority::new("Authority of the test");
    let stranger = Authority::new("Somebody's inspection");
    let name = "localhost";
    let expired = Front::until(&authority, name, Behind::Versions, 2001).await;
    let other = Front::start(&authority, "other.example", Behind::Versions).await;
    let unknown = Front::start(&stranger, name, Behind::Versions).await;
    for (front, words) in [
        (expired, "tls: the certificate has expired"),
        (
            other,
            "tls: the certificate is for another name: other.example",
        ),
        (unknown, "tls: unknown issuer CN=Somebody's inspection"),
    ] {
        let told = fault(way(&authority, None), &front, name).await;
        assert_eq!(
            told,
            Fault::lasting(Hop::Tls, words.strip_prefix("tls: ").unwrap())
        );
        assert_eq!(told.to_string(), words);
    }
}

#[tokio::test]
async fn upstream_that_ends_the_handshake_may_be_tried_again() {
    let authority = Authority::new("Authority of the test");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // With unread bytes in it, a dropped socket is reset.
            stream.readable().await.unwrap();
            drop(stream);
        }
    });
    let upstream = Upstream::new(way(&authority, None));
    let url = format!("https://localhost:{port}/");
    let told = ask(&upstream, &url, Usage::Exchange).await.unwrap_err();
    assert_eq!((told.hop, told.permanent), (Hop::Tls, false));
    assert!(
        told.detail.starts_with("no handshake: connection "),
        "{told}"
    );
}

#[tokio::test]
async fn pooled_connection_that_died_is_replaced() {
    let authority = Authority::new("Authority of the test");
    let front = Front::start(&authority, "localhost", Behind::OneAnswer).await;
    let upstream = Upstream::new(way(&authority, None));
    let url = format!("https://localhost:{}/", front.address.port());
    for _ in 0..5 {
        let answer = ask(&upstream, &url, Usage::Exchange).await;
        assert_eq!(answer.as_deref(), Ok("HTTP/1.1"));
    }
}
