//! When to ask codex to leave, and when to make it leave.
//!
//! ```text
//!            ClientClosed or
//!            first StopRequested      Tick at deadline         Tick at deadline
//!   Running ─────────────────▶ Draining ────────────▶ Terminating ────────────▶ Killed
//!                                 │  second StopRequested   │  second StopRequested ▲
//!                                 └─────────────────────────┴───────────────────────┘
//!   Killed ── Tick at deadline ──▶ Abandoned
//!   any state ── ChildExited(reason) ──▶ Leave(reason)
//! ```
//!
//! The end of stdin and the first signal do the same: codex's stdin is closed, and it has its grace.
//! Any signal after the first signal kills at once; the end of stdin doesn't count as one. Without a
//! signal codex's grace begins anew as long as the client is behind with reading: a codex that can't
//! write can't end.

use std::time::{Duration, Instant};

use crate::base::exit::ExitReason;
use crate::base::limits::{CHILD_EOF_GRACE, CHILD_TERM_GRACE, KILLED_GRACE};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Codex ended.
    ChildExited(ExitReason),
    /// The deadline has passed, but the client is behind with reading what codex says: codex may be
    /// waiting for it.
    ClientBehind,
    /// The client closed our stdin, or reads our stdout no more.
    ClientClosed,
    /// A termination signal reached us.
    StopRequested,
    /// The deadline from [`Lifecycle::deadline`] may have passed.
    Tick,
}

/// What the driver must do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Close the child's stdin.
    CloseStdin,
    /// Send `SIGTERM` to the child's process group.
    Terminate,
    /// Send `SIGKILL` to the child's process group.
    Kill,
    /// End whoever should have told us of codex's end by now: the kernel ends codex with it.
    Abandon,
    /// Deliver what codex still said and leave.
    Leave(ExitReason),
}

/// The supervision of one child.
#[derive(Debug)]
pub struct Lifecycle {
    state: State,
    /// Whether a signal asked us to leave.
    signalled: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Running,
    Draining(Instant),
    Terminating(Instant),
    Killed(Instant),
    Abandoned,
}

impl Lifecycle {
    /// Starts with a running child.
    pub fn new() -> Self {
        Self {
            state: State::Running,
            signalled: false,
        }
    }

    /// Advances on `event` and says what to do.
    pub fn on_event(&mut self, event: Event, now: Instant) -> Option<Action> {
        match (event, self.state) {
            (Event::ChildExited(reason), _) => Some(Action::Leave(reason)),
            (Event::ClientClosed, State::Running) => Some(self.drain(now)),
            (Event::StopRequested, State::Killed(_) | State::Abandoned) => None,
            (Event::StopRequested, _) if self.signalled => Some(self.kill(now)),
            (Event::StopRequested, State::Running) => {
                self.signalled = true;
                Some(self.drain(now))
            }
            (Event::StopRequested, State::Draining(_) | State::Terminating(_)) => {
                self.signalled = true;
                None
            }
            (Event::ClientBehind, State::Draining(_)) if !self.signalled => {
                self.state = State::Draining(now + CHILD_EOF_GRACE);
                None
            }
            (Event::ClientBehind, _) => self.on_event(Event::Tick, now),
            (Event::Tick, State::Draining(at)) if now >= at => {
                self.state = State::Terminating(now + CHILD_TERM_GRACE);
                Some(Action::Terminate)
            }
            (Event::Tick, State::Terminating(at)) if now >= at => Some(self.kill(now)),
            (Event::Tick, State::Killed(at)) if now >= at => {
                self.state = State::Abandoned;
                Some(Action::Abandon)
            }
            (Event::ClientClosed | Event::Tick, _) => None,
        }
    }

    /// How long the client may take for what codex still said: as long as it likes, unless a signal
    /// asked us to leave.
    pub fn delivery_grace(&self) -> Option<Duration> {
        match self.state {
            State::Killed(_) | State::Abandoned => Some(KILLED_GRACE),
            State::Running | State::Draining(_) | State::Terminating(_) => {
                self.signalled.then_some(CHILD_TERM_GRACE)
            }
        }
    }

    /// When to send [`Event::Tick`], if ever.
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Draining(at) | State::Terminating(at) | State::Killed(at) => Some(at),
            State::Running | State::Abandoned => None,
        }
    }

    fn drain(&mut self, now: Instant) -> Action {
        self.state = State::Draining(now + CHILD_EOF_GRACE);
        Action::CloseStdin
    }

    fn kill(&mut self, now: Instant) -> Action {
        self.state = State::Killed(now + CHILD_TERM_GRACE);
        Action::Kill
    }
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test starts at some time")]
mod tests {
    use super::*;

    #[test]
    fn end_of_stdin_closes_then_terminates_then_kills() {
        let mut machine = Lifecycle::new();
        let start = Instant::now();
        assert_eq!(machine.deadline(), None);
        assert_eq!(
            machine.on_event(Event::ClientClosed, start),
            Some(Action::CloseStdin)
        );
        let early = start + CHILD_EOF_GRACE.saturating_sub(Duration::from_millis(1));
        assert_eq!(machine.on_event(Event::Tick, early), None);
        let at = machine.deadline().unwrap();
        assert_eq!(machine.on_event(Event::Tick, at), Some(Action::Terminate));
        let at = machine.deadline().unwrap();
        assert_eq!(machine.on_event(Event::Tick, at), Some(Action::Kill));
        let at = machine.deadline().unwrap();
        assert_eq!(machine.on_event(Event::Tick, at), Some(Action::Abandon));
        assert_eq!(machine.deadline(), None);
    }

    #[test]
    fn first_signal_is_as_the_end_of_stdin_and_the_second_kills() {
        let mut machine = Lifecycle::new();
        let now = Instant::now();
        assert_eq!(
            machine.on_event(Event::StopRequested, now),
            Some(Action::CloseStdin)
        );
        assert_eq!(machine.on_event(Event::ClientClosed, now), None);
        assert_eq!(
            machine.on_event(Event::StopRequested, now),
            Some(Action::Kill)
        );
        assert_eq!(machine.on_event(Event::StopRequested, now), None);
    }

    #[test]
    fn end_of_stdin_does_not_count_as_a_signal() {
        let mut machine = Lifecycle::new();
        let now = Instant::now();
        machine.on_event(Event::ClientClosed, now);
        assert_eq!(machine.on_event(Event::StopRequested, now), None);
        assert_eq!(
            machine.on_event(Event::StopRequested, now),
            Some(Action::Kill)
        );
    }

    #[test]
    fn only_a_signal_bounds_the_wait_for_a_client_that_reads_slowly() {
        let now = Instant::now();
        let mut machine = Lifecycle::new();
        machine.on_event(Event::ClientClosed, now);
        assert_eq!(machine.delivery_grace(), None);
        machine.on_event(Event::StopRequested, now);
        assert_eq!(machine.delivery_grace(), Some(CHILD_TERM_GRACE));
        machine.on_event(Event::StopRequested, now);
        assert_eq!(machine.delivery_grace(), Some(KILLED_GRACE));
    }

    #[test]
    fn codex_is_left_alone_while_the_client_is_behind_unless_a_signal_came() {
        let mut machine = Lifecycle::new();
        let now = Instant::now();
        machine.on_event(Event::ClientClosed, now);
        let at = machine.deadline().unwrap();
        assert_eq!(machine.on_event(Event::ClientBehind, at), None);
        assert_eq!(machine.on_event(Event::Tick, at), None);
        let later = machine.deadline().unwrap();
        assert_eq!(later, at + CHILD_EOF_GRACE);
        machine.on_event(Event::StopRequested, at);
        let ended = machine.on_event(Event::ClientBehind, later);
        assert_eq!(ended, Some(Action::Terminate));
    }

    #[test]
    fn exit_of_codex_ends_every_state() {
        let reason = ExitReason::CodexSignal(9);
        for events in [
            &[][..],
            &[Event::ClientClosed],
            &[Event::StopRequested, Event::StopRequested],
        ] {
            let mut machine = Lifecycle::new();
            for event in events {
                machine.on_event(*event, Instant::now());
            }
            assert_eq!(
                machine.on_event(Event::ChildExited(reason), Instant::now()),
                Some(Action::Leave(reason))
            );
        }
    }
}
