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

/// Says whether this test can have a machine of its own, and tells the reader where it can't.
#[expect(clippy::print_stderr, reason = "a test that isn't run says so")]
fn may_make_machines() -> bool {
    let is_superuser = nix::unistd::geteuid().is_root();
    if !is_superuser {
        eprintln!("not run: only the superuser can make networks, mounts and accounts of its own");
    }
    is_superuser
}
