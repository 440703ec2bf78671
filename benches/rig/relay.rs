//! A relay in front of a stand-in, driven as its client.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use super::bodies::Turn;
use super::process::Processes;
use super::standin::COPY;

/// A session with a client's lines.
pub(crate) struct Session {
    process: Child,
    pub(crate) to: ChildStdin,
    pub(crate) from: BufReader<ChildStdout>,
    next_id: u64,
}

/// A relay with a thread whose turn runs.
pub(crate) struct Relay {
    pub(crate) session: Session,
    pub(crate) address: SocketAddr,
    /// The path of the private URL, secret included.
    pub(crate) base: String,
    pub(crate) turn: Turn,
    /// What is put into the requests of the turn.
    pub(crate) context: String,
}

/// The command of a relay whose codex is this program.
pub(crate) fn command(folder: &Path, upstream: &str, ca_file: Option<&Path>) -> Command {
    fs::create_dir_all(folder.join("workspace")).unwrap();
    fs::write(folder.join("workspace/SOUL.md"), soul()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_codex-relay"));
    command
        .arg("--codex")
        .arg(std::env::current_exe().unwrap())
        .arg("--workspace")
        .arg(folder.join("workspace"))
        .args(["--upstream", upstream]);
    if let Some(file) = ca_file {
        command.arg("--ca-file").arg(file);
    }
    command
        .arg("app-server")
        .env_clear()
        .env("HOME", folder)
        .env(COPY, folder.join("copy"));
    command
}

/// The command of a stand-in without a relay.
pub(crate) fn bare_command(folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .arg("app-server")
        .env_clear()
        .env(COPY, folder.join("copy"));
    command
}

impl Session {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        Self {
            to: process.stdin.take().unwrap(),
            from: BufReader::with_capacity(1 << 20, process.stdout.take().unwrap()),
            process,
            next_id: 0,
        }
    }

    pub(crate) fn processes(&self) -> Processes {
        Processes::family(self.process.id())
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the session ended");
        line
    }

    /// Sends a request and waits for it to come back as codex's.
    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.next_id += 1;
        let request = json!({"id": self.next_id, "method": method, "params": params});
        self.to
            .write_all(format!("{request}\n").as_bytes())
            .unwrap();
        self.wait("method")
    }

    fn wait(&mut self, member: &str) -> Value {
        loop {
            let value: Value = serde_json::from_str(&self.line()).unwrap();
            if value["id"] == self.next_id && value.get(member).is_some() {
                return value;
            }
        }
    }

    /// Sends a request, and as codex its answer; gives what codex was asked.
    fn exchange(&mut self, method: &str, params: &Value, result: &Value) -> Value {
        let asked = self.ask(method, params);
        let answer = json!({"id": self.next_id, "result": result});
        self.to.write_all(format!("{answer}\n").as_bytes()).unwrap();
        self.wait("result");
        asked["params"].clone()
    }

    pub(crate) fn shake_hands(&mut self) {
        let introduction = json!({
            "clientInfo": {"name": "rig", "version": "1"},
            "capabilities": {"experimentalApi": true},
        });
        let agent = json!({"userAgent": "rig/0.171.0 (Linux; x86_64) rig"});
        self.exchange("initialize", &introduction, &agent);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.processes().terminate();
        let _ = self.process.wait();
    }
}

impl Relay {
    /// Starts one in `folder`.
    pub(crate) fn start(folder: &Path, upstream: &str, ca_file: Option<&Path>) -> Self {
        let mut session = Session::start(command(folder, upstream, ca_file));
        session.shake_hands();
        let thread = json!({"thread": {"id": THREAD}});
        session.exchange("thread/start", &json!({}), &thread);
        let copy = fs::read_to_string(folder.join("copy")).unwrap();
        let (_, after) = copy.split_once("\"openai_base_url\":\"http://").unwrap();
        let (url, _) = after.split_once('"').unwrap();
        let (address, path) = url.split_once('/').unwrap();
        let params = json!({"threadId": THREAD, "input": []});
        let result = json!({"turn": {"id": TURN}});
        let asked = session.exchange("turn/start", &params, &result);
        let generation = &asked["responsesapiClientMetadata"]["codex_relay_generation"];
        let turn = Turn {
            thread: THREAD.to_owned(),
            id: TURN.to_owned(),
            generation: generation.as_str().unwrap().to_owned(),
        };
        Self {
            address: address.parse().unwrap(),
            base: format!("/{path}"),
            turn,
            context: context(folder),
            session,
        }
    }
}

/// What the relay makes of the workspace, by its own word.
fn context(folder: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_codex-relay"))
        .arg("--workspace")
        .arg(folder.join("workspace"))
        .arg("render")
        .env_clear()
        .env("HOME", folder)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// A persona of some 6 KiB.
fn soul() -> String {
    "You are the agent of this workspace; speak \"plainly\" and keep what you promise.\n".repeat(75)
}

const THREAD: &str = "00000000-0000-7000-8000-000000000009";
const TURN: &str = "00000000-0000-7000-8000-000000000003";
