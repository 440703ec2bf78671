//! Room in pipes.

use std::os::fd::AsFd;

/// Makes room for more in a pipe: every time it is full, both its ends wait for each other, which
/// takes longer than what is in it. Where that isn't granted it stays as it is.
#[cfg(target_os = "linux")]
pub fn widen(pipe: impl AsFd) {
    use nix::fcntl::{FcntlArg, fcntl};

    use crate::base::limits::PIPE_BYTES;

    let room = fcntl(pipe.as_fd(), FcntlArg::F_GETPIPE_SZ);
    if room.is_ok_and(|room| usize::try_from(room).is_ok_and(|room| room >= PIPE_BYTES)) {
        return;
    }
    let wanted = nix::libc::c_int::try_from(PIPE_BYTES);
    let wanted = wanted.unwrap_or(nix::libc::c_int::MAX);
    if let Err(error) = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(wanted)) {
        tracing::debug!(%error, "a pipe stays narrow");
    }
}

/// Leaves it as it is: this system doesn't ask.
#[cfg(not(target_os = "linux"))]
pub fn widen(_pipe: impl AsFd) {}
