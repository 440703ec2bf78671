//! Every way to end, and the exit code that it has.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::support::PATIENCE;
use crate::support::client::Client;
use crate::support::processes::{marked, none_marked};
use crate::support::standin::StandIn;

/// Says that it is there, then does as told.
const READY: &str = "echo '{\"method\":\"ready\"}'\n";

/// Heeds neither the end of its stdin nor TERM.
const STUBBORN: &str = "trap '' TERM INT HUP; while :; do sleep 1000; done";

async fn ready(place: &StandIn, script: &str) -> Client {
    let client = place.start(&format!("{READY}{script}"));
    client.notification(0, "ready", |_| true).await;
    client
}

#[tokio::test]
async fn end_of_stdin_reaches_codex_and_its_code_comes_back() {
    let place = StandIn::new();
    let mut client = ready(
        &place,
        "cat >/dev/null; echo '{\"method\":\"last\"}'; exit 7",
    )
    .await;
    client.close_stdin();
    assert_eq!(client.exit().await.code(), Some(7));
    client.notification(0, "last", |_| true).await;
    none_marked(&client.mark).await;
}

#[tokio::test]
async fn codex_that_heeds_only_term_gets_it_after_its_grace() {
    let place = StandIn::new();
    let script = "trap 'exit 5' TERM; while :; do sleep 1000 & wait; done";
    let mut client = ready(&place, script).await;
    client.close_stdin();
    assert_eq!(client.exit().await.code(), Some(5));
    none_marked(&client.mark).await;
}

#[tokio::test]
async fn codex_that_heeds_nothing_is_killed() {
    let place = StandIn::new();
    let mut client = ready(&place, STUBBORN).await;
    client.signal(Signal::SIGHUP);
    assert_eq!(client.exit().await.code(), Some(128 + 9));
    none_marked(&client.mark).await;
}

#[tokio::test]
async fn second_signal_kills_at_once() {
    for (first, second) in [
        (Signal::SIGTERM, Signal::SIGTERM),
        (Signal::SIGINT, Signal::SIGTERM),
        (Signal::SIGHUP, Signal::SIGINT),
    ] {
        let place = StandIn::new();
        let mut client = ready(&place, STUBBORN).await;
        client.signal(first);
        client.signal(second);
        assert_eq!(client.exit().await.code(), Some(128 + 9));
        none_marked(&client.mark).await;
    }
}

#[tokio::test]
async fn stubborn_codex_does_not_outlive_a_killed_relay() {
    let place = StandIn::new();
    let mut client = ready(&place, STUBBORN).await;
    client.signal(Signal::SIGKILL);
    assert_eq!(client.exit().await.signal(), Some(9));
    none_marked(&client.mark).await;
}

#[tokio::test]
async fn codex_that_is_well_ends_in_order_after_a_killed_relay() {
    let place = StandIn::new();
    let mut client = ready(&place, "cat >/dev/null; sleep 0.2; echo done > orderly").await;
    client.signal(Signal::SIGKILL);
    client.exit().await;
    none_marked(&client.mark).await;
    assert!(place.folder().join("orderly").exists());
}

#[tokio::test]
async fn client_that_dies_without_a_word_takes_all_with_it() {
    let place = StandIn::new();
    let program = place.program(&format!("{READY}cat >/dev/null"));
    // The client is a shell that holds the pipes of the relay, and is killed.
    let mark = format!("client-{}", std::process::id());
    let relay = place.relay(&program);
    let mut shell = tokio::process::Command::new("sh");
    shell.args([
        "-c",
        "sleep 1000 | \"$@\" | { read line; echo \"$line\"; sleep 1000; }",
        "sh",
    ]);
    shell
        .arg(relay.as_std().get_program())
        .args(relay.as_std().get_args());
    shell
        .env("SUITE_MARK", &mark)
        .env("HOME", place.folder())
        .process_group(0);
    let mut shell = shell
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut line = [0; 18];
    let mut stdout = shell.stdout.take().unwrap();
    tokio::io::AsyncReadExt::read_exact(&mut stdout, &mut line)
        .await
        .unwrap();
    // Everybody but the relay's side.
    for process in marked(&mark) {
        if process.command.starts_with("sh -c") || process.command.starts_with("sleep ") {
            process.try_kill();
        }
    }
    shell.wait().await.unwrap();
    none_marked(&mark).await;
}

#[tokio::test]
async fn codex_that_dies_at_once_is_what_the_exit_code_says() {
    for (script, code) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("kill -9 $$", 128 + 9),
        ("kill -TERM $$", 128 + 15),
        ("kill -SEGV $$", 128 + 11),
    ] {
        let place = StandIn::new();
        let mut client = place.start(script);
        assert_eq!(client.exit().await.code(), Some(code), "{script}");
        none_marked(&client.mark).await;
    }
}

#[tokio::test]
async fn last_words_of_a_codex_that_dies_at_once_are_delivered() {
    let place = StandIn::new();
    let mut client =
        place.start("printf '{\"method\":\"a\"}\\n{\"method\":\"unterminated\"}'; exit 3");
    assert_eq!(client.exit().await.code(), Some(3));
    let lines: Vec<_> = client.inbox.since(0).into_iter().map(|it| it.raw).collect();
    assert_eq!(
        lines,
        ["{\"method\":\"a\"}", "{\"method\":\"unterminated\"}"]
    );
}

#[tokio::test]
async fn codex_that_cannot_be_started_is_named() {
    let place = StandIn::new();
    let file = |name: &str, text: &str, mode: u32| {
        let path = place.folder().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    for program in [
        place.folder().join("missing"),
        place.folder().to_path_buf(),
        file("plain", "#!/bin/sh\n", 0o644),
        file("no-interpreter", "#!/missing/interpreter\n", 0o755),
    ] {
        let mut client = Client::spawn(place.relay(&program));
        assert_eq!(
            client.exit().await.code(),
            Some(69),
            "{}",
            program.display()
        );
        let name = program.file_name().unwrap().to_str().unwrap();
        assert!(client.stderr().contains(name), "{}", client.stderr());
        none_marked(&client.mark).await;
    }
}

#[tokio::test]
async fn half_dead_codex_is_ended() {
    // It closes its stdout, or its stdin, and lives on.
    let closes_stdout = format!("{READY}exec >&-; exec sleep 1000");
    let closes_stdin = format!("exec <&-; {READY}exec sleep 1000");
    for script in [closes_stdout, closes_stdin] {
        let place = StandIn::new();
        let mut client = place.start(&script);
        client.notification(0, "ready", |_| true).await;
        client
            .send(&serde_json::json!({"id": 1, "method": "x"}))
            .await;
        client
            .send(&serde_json::json!({"id": 2, "method": "x"}))
            .await;
        assert_eq!(client.exit().await.code(), Some(128 + 15), "{script}");
        none_marked(&client.mark).await;
    }
}

#[tokio::test]
async fn any_end_in_the_first_moments_leaves_nothing() {
    let place = StandIn::new();
    let program = place.program("trap '' TERM; sleep 1000 & cat >/dev/null; kill $!; exit 0");
    let ways = [
        Some(Signal::SIGTERM),
        Some(Signal::SIGINT),
        Some(Signal::SIGHUP),
        Some(Signal::SIGKILL),
        None,
    ];
    for (number, way) in ways.into_iter().cycle().take(50).enumerate() {
        let mut client = Client::spawn(place.relay(&program));
        // A moment like any other: nothing is waited for.
        let moment = u64::try_from(number).unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(moment)).await;
        match way {
            Some(signal) => client.signal(signal),
            None => client.close_stdin(),
        }
        let gone = tokio::time::timeout(PATIENCE, client.exit()).await;
        assert!(gone.is_ok(), "{way:?} after {moment} ms");
        none_marked(&client.mark).await;
    }
}
