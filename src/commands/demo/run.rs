//! The demo from its first step to its last.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use super::client::Client;
use super::error::{DemoError, Trouble};
use super::find::{Found, PACKAGE, Search};
use super::plot::{Plot, QUESTION};
use super::report::{Evidence, Verdict};
use super::stage::{Stage, WORDS};
use crate::commands::endpoint::{Endpoint, OverHttp};
use crate::commands::tap;
use crate::commands::witness::{Transport, pair};

/// What a demo is to be played with.
#[derive(Clone, Debug)]
pub struct DemoConfig {
    /// The relay's executable, started as a user would start it.
    pub relay: PathBuf,
    /// The codex that was asked for; else one on `PATH`, else one that npm fetches.
    pub codex: Option<PathBuf>,
    /// The value of `PATH`.
    pub path: Option<OsString>,
    /// A folder that stays: for codex if npm fetches it, and for the scratch folder, which goes again.
    pub cache: PathBuf,
    /// How codex is to reach the model.
    pub transport: Transport,
}

/// Plays the demo: writes the table to `out`, and to `notes` what a person waits for.
///
/// Everything that it started has ended when it returns, also after INT, TERM or HUP; every wait
/// is bounded.
///
/// # Errors
/// See [`DemoError`]: the demo came to no verdict.
pub async fn run(
    config: &DemoConfig,
    out: &mut (dyn Write + Send),
    notes: &mut (dyn Write + Send),
) -> Result<Verdict, DemoError> {
    let mut interrupt = Interrupt::listen().map_err(DemoError::Report)?;
    let codex = tokio::select! {
        codex = find(config, notes) => codex?,
        () = interrupt.given() => return Err(DemoError::Interrupted),
    };
    let stage = Stage::build(&config.cache).await?;
    let endpoint = match config.transport {
        Transport::Http => Endpoint::start(OverHttp(Plot)).await,
        Transport::WebSocket => Endpoint::start(Plot).await,
    };
    let endpoint = endpoint.map_err(DemoError::Endpoint)?;
    let scratch = |source| DemoError::Scratch {
        dir: config.cache.clone(),
        source,
    };
    let (tapped, tapes) = (stage.tapped(), stage.tapes());
    let written = tap::write_wrapper(&tapped, &config.relay, &codex, &tapes);
    written.await.map_err(scratch)?;
    let mut client =
        Client::start(&mut command(config, &stage, &endpoint, &tapped)).map_err(|source| {
            DemoError::Start {
                program: config.relay.clone(),
                source,
            }
        })?;
    let played = tokio::select! {
        played = play(&mut client, &stage) => played,
        () = interrupt.given() => Err(DemoError::Interrupted),
    };
    let ended = client.close().await;
    let user_agent = played?;
    if !ended.is_some_and(|ended| ended.success()) {
        let how = ended.map_or_else(
            || "it had to be killed".to_owned(),
            |ended| ended.to_string(),
        );
        return Err(client.blame("end of standard input", Trouble::Refused(how)));
    }
    writeln!(out, "codex: {user_agent} ({})", codex.display())?;
    let sent = tap::sent(&tapes).await.map_err(scratch)?;
    let (strays, arrived): (Vec<_>, Vec<_>) = endpoint
        .journal()
        .requests
        .into_iter()
        .partition(|request| request.head.method == "CONNECT");
    let pairing = pair(&sent, &arrived, |_| true);
    let stored = stage.search(&WORDS).await.map_err(scratch)?;
    let evidence = Evidence {
        sent,
        arrived,
        pairing,
        stored,
        strays: strays.len(),
    };
    Ok(evidence.report(out)?)
}

async fn find(config: &DemoConfig, notes: &mut (dyn Write + Send)) -> Result<PathBuf, DemoError> {
    let search = Search {
        codex: config.codex.as_deref(),
        path: config.path.as_deref(),
        relay: &config.relay,
        cache: &config.cache,
    };
    match search.find().await? {
        Found::Here(codex) => Ok(codex),
        Found::Fetch(fetch) => {
            let dir = fetch.dir.display().to_string();
            writeln!(notes, "no codex on PATH: npm fetches {PACKAGE} into {dir}")?;
            fetch.run().await
        }
    }
}

fn command(config: &DemoConfig, stage: &Stage, endpoint: &Endpoint, tapped: &Path) -> Command {
    let mut command = Command::new(&config.relay);
    command.arg("--codex").arg(tapped);
    command.arg("--workspace").arg(stage.workspace());
    command.arg("--upstream").arg(endpoint.base_url());
    command.arg("app-server");
    command.current_dir(stage.project());
    for name in FOREIGN {
        command.env_remove(name);
    }
    command.env("CODEX_HOME", stage.home());
    // Whatever would leave this machine is led to the endpoint, which refuses it and writes it down.
    for name in ["HTTPS_PROXY", "https_proxy"] {
        command.env(name, format!("http://{}", endpoint.address()));
    }
    command
}

/// Plays one turn, and returns what codex calls itself.
async fn play(client: &mut Client, stage: &Stage) -> Result<String, DemoError> {
    let hello = client.call(
        "initialize",
        json!({
            "clientInfo": {"name": "codex-relay-demo", "version": env!("CARGO_PKG_VERSION")},
            "capabilities": {"experimentalApi": true},
        }),
    );
    let hello = hello.await?;
    client.notify("initialized").await?;
    let login = json!({"type": "apiKey", "apiKey": "sk-demo"});
    client.call("account/login/start", login).await?;
    let start = json!({"cwd": stage.project(), "approvalPolicy": "never", "sandbox": "read-only"});
    let started = client.call("thread/start", start).await?;
    let thread = started.pointer("/thread/id").cloned().unwrap_or_default();
    let input = json!([{"type": "text", "text": QUESTION}]);
    let turn = json!({"threadId": thread, "input": input});
    client.call("turn/start", turn).await?;
    let is_ours = |params: &Value| params.get("threadId") == Some(&thread);
    let done = client.notified("turn/completed", is_ours).await?;
    let status = done.pointer("/turn/status").and_then(Value::as_str);
    if status != Some("completed") {
        let why = done.pointer("/turn/error/message").and_then(Value::as_str);
        let why = why.or(status).unwrap_or("no reason given").to_owned();
        return Err(client.blame("turn/completed", Trouble::Refused(why)));
    }
    let name = hello.get("userAgent").and_then(Value::as_str);
    Ok(name.unwrap_or("unknown").to_owned())
}

/// The signals that end a demo.
struct Interrupt([tokio::signal::unix::Signal; 3]);

impl Interrupt {
    fn listen() -> std::io::Result<Self> {
        Ok(Self([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    async fn given(&mut self) {
        let Self([interrupt, terminate, hangup]) = self;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// Variables that would lead codex or the relay away from the demo's own files and endpoint.
const FOREIGN: [&str; 27] = [
    "ALL_PROXY",
    "CODEX_ACCESS_TOKEN",
    "CODEX_API_KEY",
    "CODEX_EXEC_SERVER_URL",
    "CODEX_INTERNAL_ORIGINATOR_OVERRIDE",
    "CODEX_RELAY_CA_FILE",
    "CODEX_RELAY_CODEX",
    "CODEX_RELAY_CONFIG",
    "CODEX_RELAY_CONTEXT",
    "CODEX_RELAY_LOG",
    "CODEX_RELAY_LOG_FILE",
    "CODEX_RELAY_LOG_FORMAT",
    "CODEX_RELAY_MAX_CONTEXT_BYTES",
    "CODEX_RELAY_ON_UNRECOGNIZED",
    "CODEX_RELAY_POLICY_FILE",
    "CODEX_RELAY_PROFILE",
    "CODEX_RELAY_UPSTREAM",
    "CODEX_RELAY_UPSTREAM_BEARER_COMMAND",
    "CODEX_RELAY_UPSTREAM_BEARER_ENV",
    "CODEX_RELAY_UPSTREAM_BEARER_FILE",
    "CODEX_RELAY_WORKSPACE",
    "CODEX_SQLITE_HOME",
    "HTTP_PROXY",
    "OPENAI_ORGANIZATION",
    "OPENAI_PROJECT",
    "all_proxy",
    "http_proxy",
];
