//! The guardian: a process of one thread between the relay and codex, which outlives a killed relay
//! for as long as codex needs to end.
//!
//! It is codex's parent, so that three things hold whatever happens to the relay:
//! - Codex's death signal hangs on a thread that lives as long as the guardian does.
//! - The relay's end, however it comes, is the end of the line between the two: codex's stdin ends
//!   then, and it has its grace, `SIGTERM` and `SIGKILL` as in an orderly stop.
//! - Orphans below it become its children (Linux). It reaps them; when codex ends, it kills those
//!   that codex still owned, in whatever session they are. What became an orphan while codex lived
//!   was deliberately detached, and lives on.
//!
//! It knows no secret: its environment and its orders are those of codex.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixStream as BlockingStream;
use std::os::unix::process::CommandExt;
use std::time::Instant;

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};
use tokio::time::{sleep, sleep_until, timeout};

use crate::base::exit::{ExitReason, SOFTWARE};
use crate::base::limits::{CENSUS_INTERVAL, SWEEP_DEADLINE};
use crate::child::group::Group;
use crate::child::report::Report;
use crate::child::signals::Signals;
use crate::child::{kin, order, sys};
use crate::lifecycle::machine::{Action, Event, Lifecycle};

/// The name under which this program is a guardian.
pub const NAME: &str = "codex-relay-guardian";

/// Order of the relay: end codex's stdin.
pub(super) const CLOSE_STDIN: u8 = b'c';
/// Order of the relay: ask codex's group to end.
pub(super) const TERMINATE: u8 = b't';
/// Order of the relay: end codex's group.
pub(super) const KILL: u8 = b'k';

/// Whether this process was started in codex's place: its parent is a guardian.
///
/// Two relays that take each other for codex would start each other without end.
#[expect(
    clippy::disallowed_methods,
    reason = "the name of a process, not a workspace file"
)]
pub fn is_our_parent() -> bool {
    let mut name = [0; NAME.len() + 1];
    let path = format!("/proc/{}/cmdline", nix::unistd::getppid());
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut name));
    read.is_ok() && name.strip_suffix(b"\0") == Some(NAME.as_bytes())
}

/// Guards the codex that the relay orders; `args` are the numbers of two inherited descriptors, the
/// line to the relay and the writing end of codex's stdin.
pub fn main(args: &[OsString]) -> u8 {
    let numbers: Vec<i32> = args
        .iter()
        .filter_map(|number| number.to_str()?.parse().ok())
        .collect();
    match numbers.as_slice() {
        [wire, stdin] if guard(*wire, *stdin).is_ok() => 0,
        _ => SOFTWARE,
    }
}

fn guard(wire: RawFd, stdin: RawFd) -> io::Result<()> {
    let mut wire = BlockingStream::from(sys::inherited(wire)?);
    let stdin = sys::inherited(stdin)?;
    let mut words = order::decode(&mut wire)?.into_iter();
    let program = words.next().ok_or(io::ErrorKind::InvalidInput)?;
    kin::adopt();
    // One thread: codex's death signal hangs on it.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let signals = Signals::listen()?;
        let children = signal(SignalKind::child())?;
        let mut line = wire.try_clone()?;
        line.set_nonblocking(true)?;
        let wire = UnixStream::from_std(wire)?;
        match start(&program, words) {
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or_default();
                line.write_all(Report::Failed(errno).to_string().as_bytes())
            }
            Ok(codex) => {
                // From here on nothing may fail: a relay that is gone already is no reason to leave
                // codex alone.
                let _ = line.write_all(Report::Started(codex).to_string().as_bytes());
                drop(line);
                release_streams();
                let guardian = Guardian {
                    codex: Pid::from_raw(codex.cast_signed()),
                    group: Group::led_by(codex),
                    stdin: Some(stdin),
                    detached: BTreeSet::new(),
                    lifecycle: Lifecycle::new(),
                    signals,
                    children,
                    wire,
                    is_alone: false,
                };
                guardian.watch().await;
                Ok(())
            }
        }
    })
}

/// Starts codex in a process group of its own, on our streams.
fn start(program: &OsStr, args: impl Iterator<Item = OsString>) -> io::Result<u32> {
    let mut command = std::process::Command::new(program);
    command.args(args).process_group(0);
    sys::die_with_parent(&mut command);
    Ok(command.spawn()?.id())
}

/// Leaves codex's streams to codex: held open here, they would never end.
fn release_streams() {
    if let Ok(nothing) = File::options().read(true).write(true).open("/dev/null") {
        let _ = dup2_stdin(&nothing);
        let _ = dup2_stdout(&nothing);
        let _ = dup2_stderr(&nothing);
    }
}

struct Guardian {
    codex: Pid,
    /// None only for a process id that no system gives.
    group: Option<Group>,
    /// Keeps codex's stdin open until it is known what is detached.
    stdin: Option<OwnedFd>,
    /// Orphans that were there before codex ended.
    detached: BTreeSet<Pid>,
    lifecycle: Lifecycle,
    signals: Signals,
    children: Stream,
    wire: UnixStream,
    is_alone: bool,
}

impl Guardian {
    #[expect(clippy::disallowed_methods, reason = "a driver reads the clock")]
    async fn watch(mut self) {
        loop {
            let deadline = self.lifecycle.deadline();
            let mut order = 0;
            let event = tokio::select! {
                biased;
                _ = self.children.recv() => self.reap().map(Event::ChildExited),
                read = self.wire.read(std::slice::from_mut(&mut order)), if !self.is_alone => {
                    self.obey(read.is_ok_and(|count| count > 0).then_some(order))
                }
                () = self.signals.next() => Some(Event::StopRequested),
                () = until(deadline) => Some(Event::Tick),
                () = sleep(CENSUS_INTERVAL) => {
                    self.note_detached();
                    None
                }
            };
            let is_signal = event == Some(Event::StopRequested);
            match event.and_then(|event| self.lifecycle.on_event(event, Instant::now())) {
                // Nobody stands between us and codex: where it was killed nothing is left to do.
                None | Some(Action::Abandon) => {}
                // Whoever signals the guardian means codex, whose stdin is still the relay's.
                Some(Action::CloseStdin) if is_signal => self.terminate(),
                Some(Action::CloseStdin) => self.close_stdin(),
                Some(Action::Terminate) => self.terminate(),
                Some(Action::Kill) => self.kill(),
                Some(Action::Leave(reason)) => return self.leave(reason).await,
            }
        }
    }

    /// Does what the relay orders; no order means that the relay is gone.
    fn obey(&mut self, order: Option<u8>) -> Option<Event> {
        match order {
            Some(TERMINATE) => self.terminate(),
            Some(KILL) => self.kill(),
            Some(_) => self.close_stdin(),
            None => {
                self.is_alone = true;
                return Some(Event::ClientClosed);
            }
        }
        None
    }

    fn close_stdin(&mut self) {
        self.note_detached();
        self.stdin = None;
    }

    fn terminate(&self) {
        if let Some(group) = self.group {
            group.terminate();
        }
    }

    fn kill(&mut self) {
        self.note_detached();
        self.kill_group();
        // Codex itself may have left its group.
        let _ = kill(self.codex, Signal::SIGKILL);
    }

    fn note_detached(&mut self) {
        let mut children = kin::children();
        // What codex owned becomes ours in the moment it dies: then the list says nothing.
        if kin::is_alive(self.codex) {
            children.retain(|child| *child != self.codex);
            self.detached = children.into_iter().collect();
        }
    }

    /// Reaps what has ended; how codex ended, if it has.
    fn reap(&mut self) -> Option<ExitReason> {
        let mut reason = None;
        while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            let Some(child) = status.pid() else {
                break;
            };
            self.detached.remove(&child);
            if child != self.codex {
                continue;
            }
            if let WaitStatus::Exited(_, code) = status {
                reason = Some(ExitReason::CodexCode(code));
            } else if let WaitStatus::Signaled(_, signal, _) = status {
                reason = Some(ExitReason::CodexSignal(signal as i32));
            }
        }
        reason
    }

    /// Ends what codex owned and tells the relay, if it is there.
    async fn leave(mut self, reason: ExitReason) {
        let _ = timeout(SWEEP_DEADLINE, self.sweep()).await;
        let report = Report::Ended(reason).to_string();
        let _ = self.wire.try_write(report.as_bytes());
    }

    fn kill_group(&self) {
        if let Some(group) = self.group {
            group.kill();
        }
    }

    async fn sweep(&mut self) {
        self.kill_group();
        loop {
            self.reap();
            let mut owned = kin::children();
            owned.retain(|child| !self.detached.contains(child));
            if owned.is_empty() {
                return;
            }
            for child in owned {
                // Its group as well, where it leads one; what is below it becomes ours in turn.
                let _ = killpg(child, Signal::SIGKILL);
                let _ = kill(child, Signal::SIGKILL);
            }
            self.children.recv().await;
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}
