//! Termination signals of the system.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask the relay to leave: TERM, INT and HUP.
///
/// Codex has a process group of its own, so a terminal's Ctrl-C reaches the relay alone.
#[derive(Debug)]
pub struct Signals {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Starts to listen.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next one. Cancel-safe.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.hangup.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
