//! What must happen between fork and exec.

use tokio::process::Command;

/// Asks the kernel to send `SIGTERM` to the child when the spawning thread ends.
///
/// Death signals follow the thread, not the process: spawn from the main thread, which lives as
/// long as the process. Where the system knows no death signal, nothing is asked.
#[cfg(target_os = "linux")]
pub(super) fn die_with_parent(command: &mut Command) {
    use std::io;

    use nix::sys::prctl;
    use nix::sys::signal::Signal;
    use nix::unistd::{getpid, getppid};

    let parent = getpid();
    // SAFETY: the closure runs between fork and exec and calls only prctl(2), getppid(2) and
    // error construction from an errno, all async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            prctl::set_pdeathsig(Signal::SIGTERM)?;
            if getppid() != parent {
                return Err(io::Error::from_raw_os_error(
                    nix::errno::Errno::ESRCH as i32,
                ));
            }
            Ok(())
        });
    }
}

/// Asks for nothing: this system has no death signal. The end of stdin ends codex there.
#[cfg(not(target_os = "linux"))]
pub(super) fn die_with_parent(_command: &mut Command) {}
