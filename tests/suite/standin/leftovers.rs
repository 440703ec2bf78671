//! What codex still owned when it ended goes with it, in whatever session it is.

use std::fs;

use nix::sys::signal::Signal;

use crate::support::client::Client;
use crate::support::processes::{Process, eventually_one, marked, none_marked};
use crate::support::standin::StandIn;
use crate::support::{eventually, needs_superuser};

/// A tool in a session of its own that heeds nothing, and codex's child; it has a child in turn,
/// in a further session.
const OWNED: &str = "
setsid sh -c 'trap \"\" TERM HUP; setsid sleep 4321 & while :; do sleep 1234; done' >/dev/null &
cat >/dev/null
";

async fn with_owned_tool(place: &StandIn, script: &str) -> Client {
    let client = place.start(script);
    eventually_one(&client.mark, |it| it.command.starts_with("sleep 4321")).await;
    client
}

async fn stand_in(client: &Client) -> Process {
    eventually_one(&client.mark, |it| it.command.starts_with("/bin/sh ")).await
}

async fn guardian(client: &Client) -> Process {
    eventually_one(&client.mark, |it| {
        it.command.starts_with("codex-relay-guardian")
    })
    .await
}

#[tokio::test]
async fn tools_in_sessions_of_their_own_go_with_codex() {
    let place = StandIn::new();
    let mut client = with_owned_tool(&place, OWNED).await;
    client.close_stdin();
    client.exit().await;
    none_marked(&client.mark).await;

    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut client = with_owned_tool(&place, OWNED).await;
        client.signal(signal);
        client.exit().await;
        none_marked(&client.mark).await;
    }
}

#[tokio::test]
async fn tools_in_sessions_of_their_own_go_when_codex_is_killed() {
    let place = StandIn::new();
    let mut client = with_owned_tool(&place, OWNED).await;
    stand_in(&client).await.signal(Signal::SIGKILL);
    assert_eq!(client.exit().await.code(), Some(128 + 9));
    none_marked(&client.mark).await;
}

#[tokio::test]
async fn grandchild_that_holds_stdout_open_holds_nobody() {
    let place = StandIn::new();
    let mut client = place.start("setsid sleep 1000 & echo '{\"method\":\"last\"}'; exit 4");
    assert_eq!(client.exit().await.code(), Some(4));
    client.notification(0, "last", |_| true).await;
    none_marked(&client.mark).await;
}

#[tokio::test]
async fn killed_guardian_takes_codex_with_it() {
    let place = StandIn::new();
    let mut client = place.start("trap '' TERM; while :; do read line || sleep 1000; done");
    stand_in(&client).await;
    guardian(&client).await.signal(Signal::SIGKILL);
    assert_eq!(client.exit().await.code(), Some(128 + 9));
    none_marked(&client.mark).await;
}

#[tokio::test]
async fn relay_and_guardian_killed_together_leave_no_codex() {
    let place = StandIn::new();
    let mut client = place.start("trap '' TERM; while :; do read line || exec sleep 1000; done");
    let codex = stand_in(&client).await;
    let guardian = guardian(&client).await;
    client.signal(Signal::SIGKILL);
    guardian.signal(Signal::SIGKILL);
    client.exit().await;
    codex.is_gone().await;
}

#[tokio::test]
async fn term_to_the_guardian_is_for_codex() {
    let place = StandIn::new();
    let mut client = place.start("trap 'exit 6' TERM; while :; do sleep 1000 & wait; done");
    eventually_one(&client.mark, |it| it.command.starts_with("sleep ")).await;
    guardian(&client).await.signal(Signal::SIGTERM);
    assert_eq!(client.exit().await.code(), Some(6));
    none_marked(&client.mark).await;
}

#[tokio::test]
async fn death_of_codex_hangs_on_no_thread_that_may_retire() {
    let place = StandIn::new();
    let client = place.start("cat >/dev/null");
    let codex = stand_in(&client).await;
    let guardian = guardian(&client).await;
    let stat = fs::read_to_string(format!("/proc/{}/stat", codex.pid)).unwrap();
    let parent = stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap();
    assert_eq!(parent, guardian.pid.to_string());
    let threads = fs::read_dir(format!("/proc/{}/task", guardian.pid)).unwrap();
    assert_eq!(
        threads.count(),
        1,
        "codex's death signal hangs on the only thread"
    );
    // It lets go of codex's streams, which are the client's in part, as soon as codex has them.
    eventually("the guardian holds no stream", || {
        let target = |number| fs::read_link(format!("/proc/{}/fd/{number}", guardian.pid)).unwrap();
        let is_closed = |number| target(number).to_str() == Some("/dev/null");
        (0..3).all(is_closed).then_some(())
    })
    .await;
    assert!(client.close().await.success());
}

#[tokio::test]
async fn orphans_are_reaped_while_codex_runs() {
    let place = StandIn::new();
    let client = place.start(
        "n=0; while [ $n -lt 200 ]; do (sleep 0 &); n=$((n+1)); done; echo '{\"method\":\"dropped\"}'; cat >/dev/null",
    );
    client.notification(0, "dropped", |_| true).await;
    let guardian = guardian(&client).await;
    eventually("no orphan is left, not even dead", || {
        let list = format!("/proc/{0}/task/{0}/children", guardian.pid);
        let children = fs::read_to_string(list).unwrap();
        (children.split_whitespace().count() == 1).then_some(())
    })
    .await;
    assert!(client.close().await.success());
}

#[tokio::test]
async fn many_starts_and_stops_leave_nothing() {
    let place = StandIn::new();
    let program = place.program("read line; exit 0");
    let missing = place.folder().join("missing");
    for number in 0..40 {
        let codex = if number % 4 == 0 { &missing } else { &program };
        let client = Client::spawn(place.relay(codex));
        let mark = client.mark.clone();
        client.close().await;
        none_marked(&mark).await;
        assert!(marked(&mark).is_empty());
    }
}

/// As the first process of a container nobody else reaps.
#[tokio::test]
async fn first_process_of_a_container_keeps_no_zombies() {
    needs_superuser();
    let place = StandIn::new();
    let program = place.program(
        "n=0; while [ $n -lt 1000 ]; do (sleep 0 &); n=$((n+1)); done
echo '{\"method\":\"dropped\"}'
read line
while grep -qE '^[0-9]+ \\(.*\\) Z' /proc/[0-9]*/stat 2>/dev/null; do sleep 0.1; done
echo \"{\\\"method\\\":\\\"clean\\\",\\\"params\\\":{\\\"first\\\":\\\"$(cat /proc/1/comm)\\\"}}\"
cat >/dev/null",
    );
    let relay = place.relay(&program);
    let mut namespace = tokio::process::Command::new("unshare");
    namespace.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    namespace.arg(relay.as_std().get_program());
    namespace.args(relay.as_std().get_args());
    namespace.env("HOME", place.folder());
    let client = Client::spawn(namespace);
    client.notification(0, "dropped", |_| true).await;
    client.send(&serde_json::json!({"method": "look"})).await;
    let clean = client.notification(0, "clean", |_| true).await;
    assert_eq!(clean["first"], "codex-relay");
    assert!(client.close().await.success());
}
