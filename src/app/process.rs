//! What holds for this process as a whole.

use std::io::Write;
use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Says something to the person at the terminal.
pub fn say(words: &str) {
    let _ = writeln!(std::io::stderr(), "{words}");
}

/// The path of this program.
pub fn this_program() -> Option<PathBuf> {
    std::env::current_exe()
        .ok()
        .filter(|path| path != Path::new(""))
}

/// Keeps memory out of core dumps, and makes room for descriptors.
///
/// The process stays dumpable as such: `/proc` shows the user what it shows of any process, and a
/// debugger of the same user may attach. Only where it holds a Gateway's credential
/// (`has_credential`) its environment and memory are closed to other processes of the user, the
/// commands that codex runs among them. Programs that are started later inherit the limits.
pub fn harden(has_credential: bool) {
    // Handlers of core dumps that the kernel pipes into don't heed the limit: they get a dump
    // without memory.
    #[cfg(target_os = "linux")]
    if let Err(error) = std::fs::write("/proc/self/coredump_filter", "0") {
        tracing::debug!(%error, "core dumps keep their memory");
    }
    limit(Resource::RLIMIT_CORE, |_, _| 0);
    // A connection of codex has a counterpart upstream: the usual 1024 are few.
    limit(Resource::RLIMIT_NOFILE, |soft, hard| {
        soft.max(hard.min(DESCRIPTORS))
    });
    // Last: our own files in /proc are the superuser's then.
    #[cfg(target_os = "linux")]
    if has_credential && let Err(error) = nix::sys::prctl::set_dumpable(false) {
        tracing::warn!(%error, "this process can't be closed to others of the user");
    }
}

/// Sets the soft limit, from itself and the hard one.
fn limit(resource: Resource, change: impl Fn(u64, u64) -> u64) {
    let set =
        getrlimit(resource).and_then(|(soft, hard)| setrlimit(resource, change(soft, hard), hard));
    if let Err(error) = set {
        tracing::debug!(%error, ?resource, "limit not set");
    }
}

/// Two for each connection that the private endpoint may hold, and some.
const DESCRIPTORS: u64 = 4096;
