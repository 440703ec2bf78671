//! What the tests stand on: the pinned codex, an isolated home, a client, a scripted model, processes.

pub(crate) mod blocks;
pub(crate) mod cable;
#[macro_use]
pub(crate) mod case;
pub(crate) mod client;
pub(crate) mod codex;
pub(crate) mod debian;
pub(crate) mod dice;
pub(crate) mod fixtures;
pub(crate) mod front;
pub(crate) mod inbox;
pub(crate) mod launch;
pub(crate) mod mirror;
pub(crate) mod model;
pub(crate) mod orders;
pub(crate) mod persona;
pub(crate) mod processes;
pub(crate) mod proxy;
pub(crate) mod stage;
pub(crate) mod standin;
pub(crate) mod story;
pub(crate) mod upstream;

use std::time::Duration;

/// How long anything may take before a test gives up on it: generous, and never asserted.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Waits until `found` gives something, looking again and again.
pub(crate) async fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let search = async {
        loop {
            if let Some(found) = found() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, search)
        .await
        .unwrap_or_else(|_| panic!("waited in vain until {what}"))
}

/// Asserts that networks, mounts and accounts of our own can be made, and other users asked.
pub(crate) fn needs_superuser() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test makes networks, mounts or processes of other users: run it as the superuser"
    );
}
