//! The child's process group: signalled as one, and how its leader ended.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::base::exit::ExitReason;

/// The process group of codex.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    leader: Pid,
}

impl Group {
    /// The group that the process with id `leader` leads.
    pub fn led_by(leader: u32) -> Option<Self> {
        let leader = i32::try_from(leader).ok().filter(|pid| *pid > 1)?;
        Some(Self {
            leader: Pid::from_raw(leader),
        })
    }

    /// Asks every process of the group to end.
    pub fn terminate(self) {
        self.signal(Signal::SIGTERM);
    }

    /// Ends every process of the group.
    pub fn kill(self) {
        self.signal(Signal::SIGKILL);
    }

    fn signal(self, signal: Signal) {
        // An empty group is what we want to see.
        if let Err(error) = killpg(self.leader, signal)
            && error != nix::errno::Errno::ESRCH
        {
            tracing::debug!(%error, %signal, "process group not signalled");
        }
    }
}

/// Says how codex ended.
pub fn reason(status: ExitStatus) -> ExitReason {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitReason::CodexCode(code),
        (None, Some(signal)) => ExitReason::CodexSignal(signal),
        (None, None) => ExitReason::RelayFault,
    }
}
