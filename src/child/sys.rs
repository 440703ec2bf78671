//! What no safe call can do: the steps between fork and exec, and a descriptor known by its number.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};

/// Leaves `descriptor` open in the program that `command` starts, under the number it has here.
///
/// Only there: the copy of this process stays closed to all other programs.
pub(super) fn hand_on(command: &mut std::process::Command, descriptor: &impl AsRawFd) {
    let number = descriptor.as_raw_fd();
    let keep = move || {
        // SAFETY: the caller's descriptor outlives the start of the program: the number is open.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::empty()))?;
        Ok(())
    };
    // SAFETY: the closure runs between fork and exec and calls only fcntl(2) and error
    // construction from an errno, all async-signal-safe.
    unsafe {
        command.pre_exec(keep);
    }
}

/// Takes over what [`hand_on`] left open, and closes it to programs started from here.
pub(super) fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: nothing else in this process knows the number: it was made for us before we began.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl(&descriptor, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(descriptor)
}

/// Asks the kernel to kill the child when the spawning thread ends.
///
/// Death signals follow the thread, not the process: spawn from a process of one thread. Where the
/// system knows no death signal, nothing is asked.
#[cfg(target_os = "linux")]
pub(super) fn die_with_parent(command: &mut std::process::Command) {
    use nix::sys::prctl;
    use nix::sys::signal::Signal;
    use nix::unistd::{getpid, getppid};

    let parent = getpid();
    let ask = move || {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        if getppid() != parent {
            return Err(io::Error::from_raw_os_error(
                nix::errno::Errno::ESRCH as i32,
            ));
        }
        Ok(())
    };
    // SAFETY: the closure runs between fork and exec and calls only prctl(2), getppid(2) and
    // error construction from an errno, all async-signal-safe.
    unsafe {
        command.pre_exec(ask);
    }
}

/// Asks for nothing: this system has no death signal.
#[cfg(not(target_os = "linux"))]
pub(super) fn die_with_parent(_command: &mut std::process::Command) {}
