//! Codex and the upstream die at random moments, and long runs: no line is lost or torn, no text
//! goes where it doesn't belong, and nothing is left or grows.
//!
//! The stand-in answers threads and turns; its model requests are made by the test, with the
//! generation that the stand-in was given, as codex would make them.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::support::client::Client;
use crate::support::debian;
use crate::support::dice::{Dice, turns};
use crate::support::inbox::Line;
use crate::support::processes::{descriptors, none_marked, number_in_status, resident_memory};
use crate::support::standin::{ANSWERS, StandIn};
use crate::support::upstream::FragileUpstream;

/// Answers what a session needs, tells the client each line that it got, and ends turns when told.
fn session() -> String {
    let more = r#"
    *turn/start*)
      printf '{"method":"got","params":%s}\n' "$line"
      printf '{"id":%s,"result":{"turn":{"id":"u%s"}}}\n' "$id" "$id"; turn=u$id;;
    *\"end\"*) printf '{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"%s"}}}\n' "$turn";;
    *) printf '{"method":"got","params":%s}\n' "$line";;
  esac
done"#;
    format!("echo $$ > pid; tee input | while read -r line; do {ANSWERS}{more}")
}

/// One relay with its stand-in, in the middle of a session.
struct Life {
    client: Client,
    address: SocketAddr,
    path: String,
    lines: u64,
}

impl Life {
    async fn begin(place: &StandIn, upstream: &FragileUpstream) -> Self {
        Self::begin_with(place, upstream, []).await
    }

    async fn begin_with<const N: usize>(
        place: &StandIn,
        upstream: &FragileUpstream,
        environment: [(&str, &OsStr); N],
    ) -> Self {
        let program = place.program(&session());
        let mut relay = tokio::process::Command::new(env!("CARGO_BIN_EXE_codex-relay"));
        relay.arg("--codex").arg(program);
        relay.arg("--workspace").arg(place.folder());
        relay.args(["--upstream", &format!("http://{}", upstream.address)]);
        relay
            .arg("app-server")
            .env_clear()
            .env("PATH", env!("PATH"));
        relay
            .env("HOME", place.folder())
            .envs(environment)
            .current_dir(place.folder());
        let mut client = Client::spawn(relay);
        let about = json!({
            "clientInfo": {"name": "suite", "version": "1"},
            "capabilities": {"experimentalApi": true},
        });
        client.ok("initialize", about).await;
        client.ok("thread/start", json!({})).await;
        let route = place.route().await;
        Self {
            client,
            address: route.address,
            path: route.base,
            lines: 0,
        }
    }

    /// Starts a turn and gives the generation that codex was given for it.
    async fn start_turn(&mut self) -> Option<String> {
        let from = self.client.inbox.len();
        let params = json!({"threadId": "t1", "input": []});
        self.client.call("turn/start", params).await.ok()?;
        let lines = self.client.inbox.since(from);
        let is_it = |it: &&Line| it.value["params"]["method"] == "turn/start";
        let got = lines.iter().find(is_it)?;
        let metadata = &got.value["params"]["params"]["responsesapiClientMetadata"];
        Some(metadata["codex_relay_generation"].as_str()?.to_owned())
    }

    async fn end_turn(&self) {
        let from = self.client.inbox.len();
        self.client.send(&json!({"method": "end"})).await;
        self.client
            .notification(from, "turn/completed", |_| true)
            .await;
    }

    async fn say_something(&mut self) {
        let line = json!({"method": "note", "params": self.lines});
        self.client.send(&line).await;
        self.lines += 1;
    }

    /// What came back of what was said: all from the first on, in order, none torn.
    fn assert_nothing_lost(&self, is_whole: bool) {
        let mut wanted = 0;
        for line in self.client.inbox.since(0) {
            let got = &line.value["params"];
            if line.method() == Some("got") && got["method"] == "note" {
                assert_eq!(got["params"], wanted, "{}", line.raw);
                wanted += 1;
            }
            assert!(!line.value.is_null(), "torn: {}", line.raw);
        }
        assert!(
            !is_whole || wanted == self.lines,
            "{wanted} of {}",
            self.lines
        );
    }
}

/// A request of codex: for its parent, or with a mark.
fn body(turn: u64, generation: &str, mark: Option<(&str, &str)>, size: usize) -> String {
    let mut metadata = json!({"thread_id": "t1", "turn_id": "any", "request_kind": "turn"});
    metadata["codex_relay_generation"] = json!(generation);
    if let Some((name, value)) = mark {
        metadata[name] = json!(value);
    }
    json!({
        "nonce": format!("{} {turn}", if mark.is_some() { "marked" } else { "parent" }),
        "input": "x".repeat(size),
        "client_metadata": {"x-codex-turn-metadata": metadata.to_string()},
    })
    .to_string()
}

/// Posts a request and reads the answer; none where the connection broke.
async fn post(address: SocketAddr, path: String, body: String) -> Option<String> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let head = format!(
        "POST {path}/responses HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.write_all(body.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

/// The requests of a turn, at once: its own, two of its children, a compaction.
fn requests(life: &Life, turn: u64, generation: &str, size: usize) -> JoinSet<Option<String>> {
    let marks = [
        None,
        Some(("parent_thread_id", "t1")),
        Some(("subagent_kind", "review")),
        Some(("request_kind", "compaction")),
        None,
    ];
    let mut requests = JoinSet::new();
    for mark in marks {
        let body = body(turn, generation, mark, size);
        requests.spawn(post(life.address, life.path.clone(), body));
    }
    requests
}

/// Asserts that each parent's request has its turn's persona once, and each other none.
fn assert_right_text(bodies: &[Vec<u8>]) -> usize {
    for body in bodies {
        let body: Value = serde_json::from_slice(body).unwrap();
        let nonce = body["nonce"].as_str().unwrap();
        let text = body["instructions"].as_str().unwrap_or_default();
        let all = body.to_string().matches("persona number").count();
        if let Some(turn) = nonce.strip_prefix("parent ") {
            assert!(
                text.contains(&format!("persona number {turn}.")),
                "{nonce}: {text}"
            );
            assert_eq!(all, 1, "{nonce}");
        } else {
            assert_eq!((all, text), (0, ""), "{nonce}");
        }
    }
    bodies.len()
}

fn write_persona(place: &StandIn, turn: u64) {
    let text = format!("You are persona number {turn}.\n");
    fs::write(place.folder().join("SOUL.md"), text).unwrap();
}

#[tokio::test]
async fn deaths_at_random_moments_lose_nothing_and_mix_nothing() {
    let place = StandIn::new();
    let upstream = FragileUpstream::start().await;
    let mut dice = Dice::new();
    let mut life = Life::begin(&place, &upstream).await;
    let (mut arrived, mut kills) = (0, 0);
    for turn in 0..turns(120) {
        write_persona(&place, turn);
        let Some(generation) = life.start_turn().await else {
            panic!("no turn\n{}", life.client.stderr());
        };
        let mut running = requests(&life, turn, &generation, 2000);
        for _ in 0..dice.roll(20) {
            life.say_something().await;
        }
        let moment = Duration::from_micros(dice.roll(4000));
        match dice.roll(5) {
            0 => {
                tokio::time::sleep(moment).await;
                upstream.die();
            }
            1 => {
                tokio::time::sleep(moment).await;
                let pid = fs::read_to_string(place.folder().join("pid")).unwrap();
                kill(Pid::from_raw(pid.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
                assert_eq!(life.client.exit().await.code(), Some(128 + 9));
                life.assert_nothing_lost(false);
                none_marked(&life.client.mark).await;
                running.shutdown().await;
                life = Life::begin(&place, &upstream).await;
                kills += 1;
                arrived += assert_right_text(&upstream.take_bodies());
                continue;
            }
            _ => {}
        }
        while running.join_next().await.is_some() {}
        life.end_turn().await;
        arrived += assert_right_text(&upstream.take_bodies());
    }
    life.client.close_stdin();
    assert!(life.client.exit().await.success());
    life.assert_nothing_lost(true);
    none_marked(&life.client.mark).await;
    eprintln!("{arrived} requests arrived, codex was killed {kills} times");
    assert!(kills > 0 && arrived > 0);
}

#[tokio::test]
async fn long_session_takes_no_more_and_no_more() {
    let place = StandIn::new();
    let upstream = FragileUpstream::start().await;
    let mut life = Life::begin(&place, &upstream).await;
    let pid = life.client.pid();
    let rounds = turns(36);
    let mut curve = Vec::new();
    for turn in 0..rounds {
        write_persona(&place, turn);
        let generation = life.start_turn().await.unwrap();
        let size = if turn % 10 == 9 { 4 << 20 } else { 20_000 };
        let mut running = requests(&life, turn, &generation, size);
        while let Some(answer) = running.join_next().await {
            let answer = answer.unwrap().unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
        for _ in 0..20 {
            life.say_something().await;
        }
        life.end_turn().await;
        assert_eq!(assert_right_text(&upstream.take_bodies()), 5);
        if turn % (rounds / 6).max(1) == 0 {
            curve.push((
                turn,
                resident_memory(pid) >> 20,
                descriptors(pid),
                threads(pid),
            ));
        }
    }
    eprintln!("turn, MiB, descriptors, threads: {curve:?}");
    // Pooled connections and caches fill once.
    let (_, early, _, _) = curve[2];
    let (_, late, open, _) = curve[curve.len() - 1];
    assert!(late <= early + 48, "{curve:?}");
    assert!(open < 64, "{curve:?}");
    life.client.close_stdin();
    assert!(life.client.exit().await.success());
    life.assert_nothing_lost(true);
}

#[tokio::test]
async fn many_large_requests_at_once_are_held_within_bounds() {
    let place = StandIn::new();
    let upstream = FragileUpstream::start().await;
    let mut life = Life::begin(&place, &upstream).await;
    write_persona(&place, 0);
    let generation = life.start_turn().await.unwrap();
    let mut running = JoinSet::new();
    for _ in 0..12 {
        let body = body(0, &generation, None, 16 << 20);
        running.spawn(post(life.address, life.path.clone(), body));
    }
    while let Some(answer) = running.join_next().await {
        let answer = answer.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    assert_eq!(assert_right_text(&upstream.take_bodies()), 12);
    let peak = crate::support::processes::peak_memory(life.client.pid()) >> 20;
    eprintln!("{peak} MiB at most, for 192 MiB");
    life.end_turn().await;
    assert!(life.client.close().await.success());
}

#[tokio::test]
async fn workspace_that_vanishes_refuses_the_turn_and_no_more() {
    let place = StandIn::new();
    let upstream = FragileUpstream::start().await;
    let mut life = Life::begin(&place, &upstream).await;
    write_persona(&place, 0);
    let generation = life.start_turn().await.unwrap();
    let away = place.folder().with_extension("away");
    // The folder that codex runs in goes too: it holds on to what it has open.
    fs::rename(place.folder(), &away).unwrap();
    let mut running = requests(&life, 0, &generation, 10);
    while let Some(answer) = running.join_next().await {
        assert!(answer.unwrap().unwrap().starts_with("HTTP/1.1 200 "));
    }
    life.end_turn().await;
    let params = json!({"threadId": "t1", "input": []});
    let refused = life.client.call("turn/start", params).await.unwrap_err();
    assert_eq!(refused["data"]["reason"], "context_unavailable");
    life.say_something().await;
    fs::rename(&away, place.folder()).unwrap();
    write_persona(&place, 1);
    let generation = life.start_turn().await.unwrap();
    let mut running = requests(&life, 1, &generation, 10);
    while running.join_next().await.is_some() {}
    assert_eq!(assert_right_text(&upstream.take_bodies()), 10);
    life.end_turn().await;
    life.client.close_stdin();
    assert!(life.client.exit().await.success());
    life.assert_nothing_lost(true);
}

#[tokio::test]
async fn clock_that_jumps_changes_nothing() {
    let place = StandIn::new();
    let upstream = FragileUpstream::start().await;
    let clock = place.folder().join("clock");
    fs::write(&clock, "+0").unwrap();
    let library = debian::clock_library();
    let environment = [
        ("LD_PRELOAD", library.as_os_str()),
        ("FAKETIME_TIMESTAMP_FILE", clock.as_os_str()),
        ("FAKETIME_NO_CACHE", OsStr::new("1")),
        // No system's does.
        ("FAKETIME_DONT_FAKE_MONOTONIC", OsStr::new("1")),
    ];
    let mut life = Life::begin_with(&place, &upstream, environment).await;
    for (turn, time) in (0..).zip(["+0", "+3650d", "-3650d", "+0", "+1h", "-1h"]) {
        fs::write(&clock, time).unwrap();
        write_persona(&place, turn);
        let generation = life.start_turn().await.unwrap();
        let mut running = requests(&life, turn, &generation, 10);
        while let Some(answer) = running.join_next().await {
            assert!(answer.unwrap().unwrap().starts_with("HTTP/1.1 200 "));
        }
        assert_eq!(assert_right_text(&upstream.take_bodies()), 5);
        life.say_something().await;
        life.end_turn().await;
    }
    life.client.close_stdin();
    assert!(life.client.exit().await.success());
    life.assert_nothing_lost(true);
}

#[tokio::test]
async fn full_disk_for_the_log_costs_the_log_alone() {
    let place = StandIn::new();
    let program = place.program("exec cat");
    let mut relay = tokio::process::Command::new(env!("CARGO_BIN_EXE_codex-relay"));
    relay.arg("--codex").arg(program);
    relay.args(["--log", "trace", "--log-file", "/dev/full"]);
    relay.args(["--upstream", "http://127.0.0.1:1", "app-server"]);
    relay.env("HOME", place.folder());
    let client = Client::spawn(relay);
    for number in 0..100 {
        client
            .send(&json!({"method": "note", "params": number}))
            .await;
    }
    let is_last = |params: &Value| *params == 99;
    client.notification(0, "note", is_last).await;
    assert_eq!(client.inbox.len(), 100);
    assert!(client.close().await.success());
}

#[tokio::test]
async fn stderr_that_is_closed_or_full_costs_nothing() {
    for redirect in ["2>&-", "2>/dev/full"] {
        let place = StandIn::new();
        let program = place.program("echo complaint >&2; echo '{\"method\":\"said\"}'; exec cat");
        let relay = place.relay(&program);
        let mut shell = tokio::process::Command::new("sh");
        shell.args(["-c", &format!("exec \"$@\" {redirect}"), "sh"]);
        shell
            .arg(relay.as_std().get_program())
            .args(relay.as_std().get_args());
        shell.env("HOME", place.folder());
        let client = Client::spawn(shell);
        client.notification(0, "said", |_| true).await;
        assert!(client.close().await.success(), "{redirect}");
    }
}

fn threads(pid: u32) -> u64 {
    number_in_status(pid, "Threads:")
}
