//! A client of the app server: JSON-RPC over the pipes of a process.

use std::fmt::Display;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::PATIENCE;
use super::inbox::{Inbox, Line};
use super::processes::{MARK, Process, marked};

/// A running program that is spoken to as an app server. Dropping it ends what it started.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) inbox: Inbox,
    /// Marks every process that came of this one.
    pub(crate) mark: String,
    /// What each `thread/start`, `thread/resume` and `thread/fork` is given as `config`, if anything.
    pub(crate) config: Value,
    child: Child,
    writer: Writer,
    stderr: Arc<Mutex<Vec<u8>>>,
    next_id: i64,
    stdout_pump: AbortHandle,
    stderr_pump: AbortHandle,
    _pumps: JoinSet<()>,
}

/// Lines on their way to the other side's stdin; none once it is closed.
type Writer = Arc<Mutex<Option<mpsc::Sender<String>>>>;

impl Client {
    /// Starts a program under a mark of its own.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mark = format!("{:032x}", u128::from_le_bytes(random()));
        let mut child = command
            .env(MARK, &mark)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let inbox = Inbox::default();
        let stderr = Arc::default();
        let (sender, lines) = mpsc::channel(16);
        let writer = Arc::new(Mutex::new(Some(sender)));
        let mut pumps = JoinSet::new();
        pumps.spawn(write_lines(child.stdin.take().unwrap(), lines));
        let stdout = child.stdout.take().unwrap();
        let stdout_pump = pumps.spawn(read_lines(stdout, inbox.clone(), Arc::clone(&writer)));
        let stderr_pump = pumps.spawn(keep(child.stderr.take().unwrap(), Arc::clone(&stderr)));
        Self {
            inbox,
            mark,
            config: Value::Null,
            child,
            writer,
            stderr,
            next_id: 0,
            stdout_pump,
            stderr_pump,
            _pumps: pumps,
        }
    }

    /// The process that was started.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("the program still runs")
    }

    /// What it has said on stderr so far, its beginning if it was much.
    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr.lock().unwrap()).into_owned()
    }

    /// Sends one line: JSON, or whatever else is to be sent.
    pub(crate) async fn send(&self, line: &impl Display) {
        write(&self.writer, line).await;
    }

    /// Calls a method and waits for its result or its error.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.next_id += 1;
        let id = self.next_id;
        let from = self.inbox.len();
        self.send(&json!({"id": id, "method": method, "params": params}))
            .await;
        let what = format!("answer to {method}");
        let answers = |line: &Line| line.method().is_none() && line.value["id"] == id;
        let answer = self.inbox.wait(&what, from, answers).await.value;
        match answer.get("error") {
            Some(error) => Err(error.clone()),
            None => Ok(answer["result"].clone()),
        }
    }

    /// Calls a method that has to succeed.
    pub(crate) async fn ok(&mut self, method: &str, params: Value) -> Value {
        let result = self.call(method, params).await;
        result.unwrap_or_else(|error| panic!("{method}: {error}\n{}", self.stderr()))
    }

    /// Waits for a notification among the lines from `from` on.
    pub(crate) async fn notification(
        &self,
        from: usize,
        method: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        let is_it = |line: &Line| line.method() == Some(method) && wanted(&line.value["params"]);
        self.inbox.wait(method, from, is_it).await.value["params"].clone()
    }

    /// Starts, resumes or forks a thread (`method` says which) and gives its id.
    pub(crate) async fn thread(&mut self, method: &str, mut params: Value) -> String {
        if let Some(config) = self.config.as_object().cloned() {
            let into = params.as_object_mut().unwrap().entry("config");
            let into = into.or_insert_with(|| json!({}));
            into.as_object_mut().unwrap().extend(config);
        }
        let result = self.ok(method, params).await;
        result["thread"]["id"].as_str().unwrap().to_owned()
    }

    /// Starts a turn and gives it as it was answered.
    pub(crate) async fn start_turn(&mut self, thread: &str, text: &str) -> Value {
        let input = json!([{"type": "text", "text": text}]);
        let params = json!({"threadId": thread, "input": input});
        self.ok("turn/start", params).await["turn"].clone()
    }

    /// Waits for the end of a thread's turn, the first `from` lines left out, and gives it.
    pub(crate) async fn turn_end(&self, from: usize, thread: &str) -> Value {
        let of_thread = |params: &Value| params["threadId"] == thread;
        let ended = self.notification(from, "turn/completed", of_thread).await;
        ended["turn"].clone()
    }

    /// Waits until a thread rests, also one that the client has left, the first `from` lines left out.
    pub(crate) async fn rest(&self, from: usize) {
        let is_idle = |params: &Value| params["status"]["type"] == "idle";
        self.notification(from, "thread/status/changed", is_idle)
            .await;
    }

    /// Runs a turn to its end and gives it.
    pub(crate) async fn turn(&mut self, thread: &str, text: &str) -> Value {
        self.turn_with(thread, text, json!({})).await
    }

    /// Runs a turn with more members in its `turn/start`.
    pub(crate) async fn turn_with(&mut self, thread: &str, text: &str, more: Value) -> Value {
        let mut params = json!({
            "threadId": thread,
            "input": [{"type": "text", "text": text}],
        });
        let members = params.as_object_mut().unwrap();
        members.extend(more.as_object().unwrap().clone());
        self.turn_of("turn/start", params).await
    }

    /// Calls a method that starts a turn, and waits for the end of that thread's turn.
    pub(crate) async fn turn_of(&mut self, method: &str, params: Value) -> Value {
        let from = self.inbox.len();
        let thread = params["threadId"].as_str().unwrap().to_owned();
        self.ok(method, params).await;
        self.turn_end(from, &thread).await
    }

    /// Closes the other side's stdin.
    pub(crate) fn close_stdin(&self) {
        self.writer.lock().unwrap().take();
    }

    /// Closes our end of the other side's stdout.
    pub(crate) fn close_stdout(&self) {
        self.stdout_pump.abort();
        self.inbox.end();
    }

    /// Closes our end of the other side's stderr.
    pub(crate) fn close_stderr(&self) {
        self.stderr_pump.abort();
    }

    /// Waits until the program has ended by itself, and its stdout as well.
    pub(crate) async fn exit(&mut self) -> ExitStatus {
        let exit = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        let status = exit.unwrap_or_else(|_| panic!("it doesn't end:\n{}", self.stderr()));
        self.inbox.wait_for_end().await;
        status.unwrap()
    }

    /// Ends the session as a client does, and waits for the end.
    pub(crate) async fn close(mut self) -> ExitStatus {
        self.close_stdin();
        self.exit().await
    }

    /// Sends the program a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).unwrap();
        let command = String::new();
        Process { pid, command }.signal(signal);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Best effort: the process itself is killed by `kill_on_drop`, what it left behind here.
        let _ = self.child.start_kill();
        for process in marked(&self.mark) {
            process.try_kill();
        }
    }
}

async fn write(writer: &Writer, line: &impl Display) {
    let sender = writer.lock().unwrap().clone().expect("stdin is open");
    // A program that has ended is noticed by what it doesn't answer.
    let _ = sender.send(format!("{line}\n")).await;
}

async fn write_lines(mut stdin: ChildStdin, mut lines: mpsc::Receiver<String>) {
    while let Some(line) = lines.recv().await {
        if stdin.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read_lines(stdout: ChildStdout, inbox: Inbox, writer: Writer) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(raw)) = lines.next_line().await {
        let value = serde_json::from_str(&raw).unwrap_or_default();
        let line = Line { raw, value };
        if line.is_request() && line.method().is_some_and(|it| it.ends_with("Approval")) {
            let id = &line.value["id"];
            write(
                &writer,
                &json!({"id": id, "result": {"decision": "accept"}}),
            )
            .await;
        }
        inbox.push(line);
    }
    inbox.end();
}

async fn keep(mut stderr: ChildStderr, kept: Arc<Mutex<Vec<u8>>>) {
    let mut piece = vec![0; 64 << 10];
    while let Ok(read @ 1..) = stderr.read(&mut piece).await {
        let mut kept = kept.lock().unwrap();
        let room = MAX_STDERR_BYTES.saturating_sub(kept.len());
        kept.extend_from_slice(&piece[..read.min(room)]);
    }
}

fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).unwrap();
    bytes
}

/// How much of stderr is kept.
const MAX_STDERR_BYTES: usize = 16 << 20;
