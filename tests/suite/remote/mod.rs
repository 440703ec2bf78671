//! Commands and files on another machine, codex and the relay on this one; and a relay that is itself far away.
//!
//! The other machine is a sandbox ([`far`]): a network, processes and a file system of its own. The way there is a
//! bridge ([`bridge`]) that writes down every message, so that it can be searched for what belongs here.

mod bridge;
mod confined;
mod cuts;
mod examples;
mod far;
mod model;
mod outages;

mod pipes;
mod placement;
mod search;
mod ssh;

/// Asserts that networks, mounts and accounts of our own can be made.
fn needs_superuser() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test makes a network, mounts or accounts of its own: run it as the superuser"
    );
}
