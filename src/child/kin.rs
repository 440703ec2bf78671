//! Processes that became ours because their parent ended.

use std::path::Path;

use nix::unistd::Pid;

/// Has processes whose parents end below this one become its children, where the system can.
#[cfg(target_os = "linux")]
pub(super) fn adopt() {
    if let Err(error) = nix::sys::prctl::set_child_subreaper(true) {
        tracing::debug!(%error, "orphans are not adopted");
    }
}

/// Adopts nothing: this system leaves orphans to its first process.
#[cfg(not(target_os = "linux"))]
pub(super) fn adopt() {}

/// The children of the calling thread; none where the system doesn't list them.
pub(super) fn children() -> Vec<Pid> {
    std::fs::read_link("/proc/thread-self")
        .ok()
        .and_then(|thread| read(&Path::new("/proc").join(thread).join("children")))
        .unwrap_or_default()
        .split_ascii_whitespace()
        .filter_map(|pid| pid.parse().ok().map(Pid::from_raw))
        .collect()
}

/// Whether a process runs: one that waits to be reaped doesn't.
pub(super) fn is_alive(process: Pid) -> bool {
    let stat = read(&Path::new("/proc").join(process.to_string()).join("stat"));
    // The state stands behind the name, which is in parentheses and may hold some.
    let state = stat
        .as_deref()
        .and_then(|stat| stat.rsplit_once(") "))
        .and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

#[expect(
    clippy::disallowed_methods,
    reason = "what the kernel says of a process, not a file"
)]
fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}
