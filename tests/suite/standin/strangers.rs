//! The private endpoint lets codex in, and nobody else holds it up.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use nix::sys::signal::Signal;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;

use crate::support::client::Client;
use crate::support::processes::descriptors;
use crate::support::standin::{ANSWERS, StandIn};
use crate::support::{PATIENCE, eventually, needs_superuser};

/// Answers what a session needs; its input is kept.
fn session() -> String {
    format!("tee input | while read -r line; do {ANSWERS} esac; done")
}

/// A relay whose stand-in has been given a route: address and path.
async fn routed(place: &StandIn) -> (Client, SocketAddr, String) {
    let mut client = place.start(&session());
    let about = json!({"clientInfo": {"name": "suite", "version": "1"}});
    client.ok("initialize", about).await;
    client.ok("thread/start", json!({})).await;
    let route = place.route().await;
    (client, route.address, route.base)
}

fn head(address: SocketAddr, path: &str) -> String {
    format!("GET {path}/models HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
}

/// Asks as codex does. Nobody is upstream: a 502 means that the request was let in.
async fn ask(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = head(address, path);
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let read = timeout(PATIENCE, stream.read_to_string(&mut answer)).await;
    read.expect("an answer").unwrap();
    answer
}

#[tokio::test]
async fn another_user_is_cut_off_unread_even_with_the_secret() {
    needs_superuser();
    let place = StandIn::new();
    let (client, address, path) = routed(&place).await;
    let head = head(address, &path).replace("\r\n", "\\r\\n");
    let script = format!(
        "trap '' PIPE; exec 3<>/dev/tcp/{}/{} && printf '{head}' >&3; cat <&3; echo over",
        address.ip(),
        address.port()
    );
    let as_user = |user: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--regid", user, "--clear-groups"]);
        command.args(["bash", "-c", &script]).current_dir("/");
        command
    };
    let own = as_user("0").output().await.unwrap();
    let own = String::from_utf8_lossy(&own.stdout).into_owned();
    assert!(own.starts_with("HTTP/1.1 502 "), "{own}");
    let other = as_user("65534").output().await.unwrap();
    assert_eq!(String::from_utf8_lossy(&other.stdout), "over\n");
    assert!(ask(address, &path).await.starts_with("HTTP/1.1 502 "));
    assert!(client.close().await.success());
}

/// Descriptors of the loops that serve connections beside the first one, at most.
const LOOPS: usize = 3 * 4;

#[tokio::test]
async fn flood_of_the_silent_and_the_slow_leaves_room_for_codex() {
    let place = StandIn::new();
    let (client, address, path) = routed(&place).await;
    let before = descriptors(client.pid());
    let mut flood = Vec::new();
    for number in 0..600 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        if number % 2 == 0 {
            // The beginning of a head that never ends.
            stream.write_all(b"GET / HTTP/1.1\r\nX").await.unwrap();
        }
        flood.push(stream);
        if number % 100 == 99 {
            assert!(ask(address, &path).await.starts_with("HTTP/1.1 502 "));
        }
    }
    eventually("no more than the bound is held", || {
        (descriptors(client.pid()) <= before + 256 + 8 + LOOPS).then_some(())
    })
    .await;
    // Strangers that say something are sent away, and their connections closed.
    for _ in 0..20 {
        assert!(ask(address, "/wrong").await.starts_with("HTTP/1.1 404 "));
    }
    drop(flood);
    eventually("the connections are gone", || {
        (descriptors(client.pid()) <= before + 2 + LOOPS).then_some(())
    })
    .await;
    assert!(client.close().await.success());
}

#[tokio::test]
async fn relay_out_of_descriptors_recovers() {
    let place = StandIn::new();
    let program = place.program(&session());
    let relay = place.relay(&program);
    let mut limited = Command::new("prlimit");
    limited
        .arg("--nofile=64:64")
        .arg(relay.as_std().get_program());
    limited.args(relay.as_std().get_args());
    limited
        .env("HOME", place.folder())
        .current_dir(place.folder());
    let mut client = Client::spawn(limited);
    let about = json!({"clientInfo": {"name": "suite", "version": "1"}});
    client.ok("initialize", about).await;
    client.ok("thread/start", json!({})).await;
    let route = place.route().await;
    let (address, path) = (route.address, route.base);
    let mut flood = Vec::new();
    for _ in 0..200 {
        flood.push(TcpStream::connect(address).await.unwrap());
    }
    // Lines still pass.
    client.ok("thread/start", json!({})).await;
    drop(flood);
    assert!(ask(address, &path).await.starts_with("HTTP/1.1 502 "));
    client.signal(Signal::SIGTERM);
    assert!(client.exit().await.success());
}

#[tokio::test]
async fn core_dumps_show_nothing_and_codex_keeps_its_own_limits() {
    let place = StandIn::new();
    let script = "{ cat /proc/self/coredump_filter; ulimit -Sc; ulimit -Sn; } > limits
echo '{\"method\":\"ready\"}'; exec cat";
    let client = place.start(script);
    client.notification(0, "ready", |_| true).await;
    let of_codex = fs::read_to_string(place.folder().join("limits")).unwrap();
    let plain = Command::new("sh")
        .args([
            "-c",
            "cat /proc/self/coredump_filter; ulimit -Sc; ulimit -Sn",
        ])
        .output();
    let plain = plain.await.unwrap().stdout;
    assert_eq!(of_codex, String::from_utf8(plain).unwrap());
    let of_relay = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", client.pid()));
    eventually("the relay has set its limits", || {
        let filter = of_relay("coredump_filter").unwrap();
        let limits = of_relay("limits").unwrap();
        let core = limits
            .lines()
            .find(|line| line.starts_with("Max core file size"));
        let soft = core.and_then(|line| line.split_whitespace().nth(4));
        (filter.trim() == "00000000" && soft == Some("0")).then_some(())
    })
    .await;
    assert!(client.close().await.success());
}

#[tokio::test]
async fn relay_with_a_credential_is_closed_to_others_of_its_user() {
    needs_superuser();
    let place = StandIn::new();
    let program = place.program("exec cat");
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(place.folder(), open).unwrap();
    for is_told in [false, true] {
        let mut relay = place.relay(&program);
        relay.env("KEY", "Brackenwort-5").uid(65534).gid(65534);
        if is_told {
            relay.env("CODEX_RELAY_UPSTREAM_BEARER_ENV", "KEY");
        }
        let client = Client::spawn(relay);
        client.send(&json!({"method": "note"})).await;
        client.notification(0, "note", |_| true).await;
        let environment = format!("/proc/{}/environ", client.pid());
        let shown = || {
            let mut cat = std::process::Command::new("cat");
            let output = cat.arg(&environment).uid(65534).gid(65534).output();
            String::from_utf8(output.unwrap().stdout).unwrap()
        };
        if is_told {
            let is_shut = || shown().is_empty().then_some(());
            eventually("nobody else can read it", is_shut).await;
        } else {
            assert!(shown().contains("Brackenwort-5"), "{}", client.stderr());
        }
        assert!(client.close().await.success());
    }
}
