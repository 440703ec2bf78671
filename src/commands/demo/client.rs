//! The demo's client: speaks app-server JSON-RPC on the standard streams of a relay.

use std::collections::VecDeque;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;

use super::error::{DemoError, Trouble};
use crate::base::limits::{MAX_LINE_BYTES, PIPE_READ_BYTES};
use crate::wire::lines::{LineFramer, Piece};

/// A relay that was started, and the client's side of its streams.
pub(super) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    framer: LineFramer,
    calls: u64,
    tail: Tail,
    _stderr: JoinSet<()>,
}

/// The end of what a process wrote.
#[derive(Clone, Default)]
struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl Client {
    /// Starts the relay; `command`'s streams are set here.
    pub(super) fn start(command: &mut Command) -> std::io::Result<Self> {
        use std::process::Stdio;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let missing = || std::io::Error::other("a standard stream is missing");
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or_else(missing)?;
        let stderr = child.stderr.take().ok_or_else(missing)?;
        let tail = Tail::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(tail.clone().follow(stderr));
        Ok(Self {
            child,
            stdin,
            stdout,
            framer: LineFramer::new(MAX_LINE_BYTES),
            calls: 0,
            tail,
            _stderr: tasks,
        })
    }

    /// Calls a method and waits for its result.
    pub(super) async fn call(
        &mut self,
        method: &'static str,
        params: Value,
    ) -> Result<Value, DemoError> {
        let id = self.calls;
        self.calls += 1;
        let request = json!({"id": id, "method": method, "params": params});
        let answer = async {
            self.send(&request).await?;
            self.read(|message| message.get("id") == Some(&id.into()) && is_answer(message))
                .await
        };
        let answer = within(answer).await;
        let answer = answer.and_then(|mut answer| match answer.get_mut("result") {
            Some(result) => Ok(result.take()),
            None => Err(Trouble::Refused(said(&answer))),
        });
        answer.map_err(|trouble| self.blame(method, trouble))
    }

    /// Sends a notification.
    pub(super) async fn notify(&mut self, method: &'static str) -> Result<(), DemoError> {
        let sent = within(self.send(&json!({"method": method}))).await;
        sent.map_err(|trouble| self.blame(method, trouble))
    }

    /// Waits for a notification.
    pub(super) async fn notified(
        &mut self,
        method: &'static str,
        which: impl Fn(&Value) -> bool,
    ) -> Result<Value, DemoError> {
        let matches = |message: &Value| {
            message.get("method") == Some(&method.into())
                && message.get("params").is_some_and(&which)
        };
        let message = within(self.read(matches)).await;
        let params = message.map(|mut message| message.get_mut("params").map(Value::take));
        params
            .map(Option::unwrap_or_default)
            .map_err(|trouble| self.blame(method, trouble))
    }

    /// Makes the error of a step.
    pub(super) fn blame(&self, step: &'static str, trouble: Trouble) -> DemoError {
        let tail = self.tail.text();
        DemoError::Step {
            step,
            trouble,
            tail,
        }
    }

    /// Closes standard input and waits for the relay's end; kills it where it doesn't come.
    pub(super) async fn close(&mut self) -> Option<ExitStatus> {
        self.stdin = None;
        let ended = async {
            // What is still said must be read, else codex could wait for us.
            let _ = self.read(|_| false).await;
            self.child.wait().await.ok()
        };
        if let Ok(ended) = tokio::time::timeout(CLOSE_DEADLINE, ended).await {
            return ended;
        }
        let _ = self.child.kill().await;
        None
    }

    async fn send(&mut self, message: &Value) -> Result<(), Trouble> {
        let stdin = self.stdin.as_mut().ok_or(Trouble::Gone)?;
        let line = format!("{message}\n");
        let written = stdin.write_all(line.as_bytes()).await;
        written.map_err(|_| Trouble::Gone)
    }

    async fn read(&mut self, which: impl Fn(&Value) -> bool) -> Result<Value, Trouble> {
        loop {
            while let Some(piece) = self.framer.next_piece() {
                let Piece::Line(line) = piece else { continue };
                let message = serde_json::from_slice(&line);
                if let Some(message) = message.ok().filter(&which) {
                    return Ok(message);
                }
            }
            let buffer = self.framer.buffer();
            buffer.reserve(PIPE_READ_BYTES);
            match self.stdout.read_buf(buffer).await {
                Ok(0) | Err(_) => return Err(Trouble::Gone),
                Ok(_) => {}
            }
        }
    }
}

impl Tail {
    async fn follow(self, mut stderr: ChildStderr) {
        let mut chunk = vec![0; PIPE_READ_BYTES];
        while let Ok(read @ 1..) = stderr.read(&mut chunk).await {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend(chunk.iter().take(read));
            let over = kept.len().saturating_sub(MAX_TAIL_BYTES);
            kept.drain(..over);
        }
    }

    fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_empty() {
            return "(nothing)".to_owned();
        }
        let bytes: Vec<u8> = kept.iter().copied().collect();
        String::from_utf8_lossy(&bytes).trim_end().to_owned()
    }
}

async fn within<T>(step: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    tokio::time::timeout(STEP_DEADLINE, step)
        .await
        .unwrap_or(Err(Trouble::Silent(STEP_DEADLINE)))
}

fn is_answer(message: &Value) -> bool {
    message.get("method").is_none()
}

fn said(answer: &Value) -> String {
    let text = answer.pointer("/error/message").and_then(Value::as_str);
    text.unwrap_or("no reason given").to_owned()
}

/// Longest wait for one step: codex needs less than a second for each, on a machine with time to spare.
const STEP_DEADLINE: Duration = Duration::from_secs(90);

/// Longest wait for the end: the relay's own grace periods fit in.
const CLOSE_DEADLINE: Duration = Duration::from_secs(20);

const MAX_TAIL_BYTES: usize = 4096;
