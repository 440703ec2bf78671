//! The relay's end of a supervised codex: its streams, and the line to its guardian.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as BlockingStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::time::timeout;

use crate::base::exit::ExitReason;
use crate::base::limits::START_DEADLINE;
use crate::child::command::Config;
use crate::child::group::{Group, reason};
use crate::child::guardian::{CLOSE_STDIN, KILL, NAME, TERMINATE};
use crate::child::pipe::widen;
use crate::child::report::Report;
use crate::child::{order, sys};

/// A codex that runs under a guardian. Dropping it has the guardian end codex, and then itself.
#[derive(Debug)]
pub struct Codex {
    guardian: Child,
    wire: UnixStream,
    group: Option<Group>,
    /// What the guardian said that isn't a whole line yet.
    said: String,
    /// How codex ended, while the guardian is still waited for.
    end: Option<Report>,
}

/// The standard streams of codex.
#[derive(Debug)]
pub struct Streams {
    /// What codex reads.
    pub stdin: ChildStdin,
    /// What codex says.
    pub stdout: ChildStdout,
    /// What codex complains of.
    pub stderr: ChildStderr,
}

impl Codex {
    /// Starts codex in a process group of its own, under a guardian that is a second process of
    /// `this_program`.
    ///
    /// # Errors
    /// Where either can't be started.
    pub async fn start(config: &Config, this_program: &Path) -> io::Result<(Self, Streams)> {
        let (ours, theirs) = BlockingStream::pair()?;
        let (from_client, to_codex) = io::pipe()?;
        let mut command = std::process::Command::new(this_program);
        command
            .arg0(NAME)
            .arg(theirs.as_raw_fd().to_string())
            .arg(to_codex.as_raw_fd().to_string())
            .env_clear()
            .envs(config.environment.iter().map(|(name, value)| (name, value)))
            .stdin(from_client)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Neither the terminal's signals nor those for codex's group are the guardian's.
            .process_group(0);
        sys::hand_on(&mut command, &theirs);
        sys::hand_on(&mut command, &to_codex);
        // The command goes with its descriptors: codex's stdin is read by codex alone.
        let mut guardian = tokio::process::Command::from(command).spawn()?;
        drop(theirs);
        let stdin = std::process::ChildStdin::from(OwnedFd::from(to_codex));
        let stdin = ChildStdin::from_std(stdin)?;
        let Some((stdout, stderr)) = guardian.stdout.take().zip(guardian.stderr.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        widen(&stdin);
        widen(&stdout);
        ours.set_nonblocking(true)?;
        let mut codex = Self {
            guardian,
            wire: UnixStream::from_std(ours)?,
            group: None,
            said: String::new(),
            end: None,
        };
        let words: Vec<_> = std::iter::once(config.program.as_os_str())
            .chain(config.args.iter().map(std::ffi::OsString::as_os_str))
            .collect();
        codex
            .wire
            .write_all(&order::encode(words.into_iter()))
            .await?;
        let Ok(report) = timeout(START_DEADLINE, codex.report()).await else {
            codex.abandon();
            return Err(io::ErrorKind::TimedOut.into());
        };
        match report {
            Some(Report::Started(pid)) => codex.group = Group::led_by(pid),
            Some(Report::Failed(errno)) => return Err(io::Error::from_raw_os_error(errno)),
            Some(Report::Ended(_)) | None => return Err(io::ErrorKind::BrokenPipe.into()),
        }
        let streams = Streams {
            stdin,
            stdout,
            stderr,
        };
        Ok((codex, streams))
    }

    /// Waits until codex and everything it owned has ended. Cancel-safe.
    pub async fn ended(&mut self) -> ExitReason {
        if self.end.is_none() {
            self.end = self.report().await;
        }
        // Nothing of ours is left when the relay leaves.
        let guardian = self.guardian.wait().await;
        match (self.end, guardian) {
            (Some(Report::Ended(reason)), _) => reason,
            // Somebody ended the guardian, and the kernel ended codex with it, but for its group.
            (_, status) => {
                if let Some(group) = self.group {
                    group.kill();
                }
                status.map_or(ExitReason::RelayFault, reason)
            }
        }
    }

    /// Ends codex's stdin, once [`Streams::stdin`] is dropped too: the guardian holds it open until
    /// it has noted what is detached from codex.
    pub fn close_stdin(&self) {
        self.tell(CLOSE_STDIN);
    }

    /// Asks every process of codex's group to end.
    pub fn terminate(&self) {
        self.tell(TERMINATE);
    }

    /// Ends every process of codex's group.
    pub fn kill(&self) {
        self.tell(KILL);
    }

    /// Ends a guardian that doesn't say that codex has ended; the kernel ends codex with it.
    pub fn abandon(&mut self) {
        tracing::error!("the guardian of codex doesn't answer; it is ended");
        if let Err(error) = self.guardian.start_kill() {
            tracing::debug!(%error, "guardian not ended");
        }
    }

    fn tell(&self, what: u8) {
        // The line has room for all the orders of a lifetime; a guardian that is gone needs none.
        if let Err(error) = self.wire.try_write(&[what]) {
            tracing::debug!(%error, "guardian not told");
        }
    }

    async fn report(&mut self) -> Option<Report> {
        loop {
            if let Some((line, _)) = self.said.split_once('\n') {
                let report = Report::read(line);
                let taken = line.len() + 1;
                self.said.drain(..taken);
                return report;
            }
            let mut piece = [0; 64];
            let count = self.wire.read(&mut piece).await.ok().filter(|it| *it > 0)?;
            let piece = piece.get(..count).unwrap_or_default();
            self.said.push_str(&String::from_utf8_lossy(piece));
        }
    }
}
