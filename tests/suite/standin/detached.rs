//! What a tool deliberately detached is the user's, and lives on.

use nix::sys::signal::Signal;

use crate::support::eventually;
use crate::support::processes::{Process, eventually_one, marked};
use crate::support::standin::StandIn;

/// Starts a daemon: a session of its own, no parent, no stream.
const DAEMON: &str = "
(setsid sleep 1000 </dev/null >/dev/null 2>&1 &)
echo '{\"method\":\"started\"}'
cat >/dev/null
";

async fn survives(signal: Option<Signal>) {
    let place = StandIn::new();
    let mut client = place.start(DAEMON);
    client.notification(0, "started", |_| true).await;
    let daemon = eventually_one(&client.mark, |it| it.command.starts_with("sleep ")).await;
    match signal {
        Some(signal) => client.signal(signal),
        None => client.close_stdin(),
    }
    client.exit().await;
    eventually("only the daemon is left", || {
        let left = marked(&client.mark);
        let is_it = |it: &Process| it.pid == daemon.pid;
        (left.len() == 1 && left.iter().all(is_it)).then_some(())
    })
    .await;
    daemon.try_kill();
    daemon.is_gone().await;
}

#[tokio::test]
async fn daemon_survives_the_end_of_stdin() {
    survives(None).await;
}

#[tokio::test]
async fn daemon_survives_a_stop() {
    survives(Some(Signal::SIGTERM)).await;
}

#[tokio::test]
async fn daemon_survives_a_killed_relay() {
    survives(Some(Signal::SIGKILL)).await;
}
