//! A short talk with codex: who is logged in, and whether its threads may be routed.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::Stdio;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::base::limits::{CHILD_EOF_GRACE, DOCTOR_DEADLINE, MAX_LINE_BYTES};
use crate::session::route::asking;
use crate::session::route::eligibility::{AccountKind, Ineligible};
use crate::stdio::pipe::Pipe;
use crate::wire::envelope::Envelope;
use crate::wire::lines::{LineFramer, Piece};

/// What codex says of itself.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The account; none where nobody is logged in.
    pub(super) account: Option<AccountKind>,
    /// Codex couldn't tell the account, in its own words.
    pub(super) account_error: Option<String>,
    /// What speaks against a route.
    pub(super) against: Option<Ineligible>,
}

/// Why nothing was learned.
#[derive(Debug, thiserror::Error)]
pub(super) enum TalkError {
    #[error("can't be started: {0}")]
    Start(#[source] io::Error),
    #[error("ended before it answered")]
    Ended,
    #[error("doesn't answer within {} s", DOCTOR_DEADLINE.as_secs())]
    Slow,
    #[error("refuses to start a session: {0}")]
    Refused(String),
}

/// Starts codex, asks what the relay asks, and ends it. Its databases go into a folder that is
/// removed again.
pub(super) async fn talk(
    program: PathBuf,
    mut environment: Vec<(OsString, OsString)>,
) -> Result<Told, TalkError> {
    let scratch = Scratch::build();
    if let Some(scratch) = &scratch {
        environment.push(("CODEX_SQLITE_HOME".into(), scratch.0.clone().into()));
    }
    // No guardian: it owns nothing yet, and ends with its stdin.
    let mut child = Command::new(program)
        .arg("app-server")
        .env_clear()
        .envs(environment)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(TalkError::Start)?;
    let errors = child.stderr.take();
    let drain = async {
        // Full, it would hold codex up.
        if let Some(mut errors) = errors {
            let _ = tokio::io::copy(&mut errors, &mut tokio::io::sink()).await;
        }
        std::future::pending().await
    };
    let told = match Talk::with(&mut child) {
        Some(mut talk) => tokio::select! {
            told = timeout(DOCTOR_DEADLINE, talk.ask_all()) => told.unwrap_or(Err(TalkError::Slow)),
            never = drain => never,
        },
        None => Err(TalkError::Ended),
    };
    // Its stdin is closed by now: it ends by itself, or it is killed when it is dropped.
    let _ = timeout(CHILD_EOF_GRACE, child.wait()).await;
    told
}

struct Talk {
    stdin: ChildStdin,
    stdout: Pipe<ChildStdout>,
    lines: LineFramer,
    /// Says that codex is there: nothing here outlives it.
    _here: watch::Sender<bool>,
}

impl Talk {
    fn with(child: &mut Child) -> Option<Self> {
        let (here, gone) = watch::channel(false);
        Some(Self {
            stdin: child.stdin.take()?,
            stdout: Pipe::new(child.stdout.take()?, gone),
            lines: LineFramer::new(MAX_LINE_BYTES),
            _here: here,
        })
    }

    async fn ask_all(&mut self) -> Result<Told, TalkError> {
        let client = json!({ "name": "codex-relay", "version": env!("CARGO_PKG_VERSION") });
        let greeting = self
            .ask("initialize", json!({ "clientInfo": client }))
            .await?;
        if let Err(words) = greeting {
            return Err(TalkError::Refused(words));
        }
        let config = self.ask("config/read", json!({})).await?.ok();
        let required = self.ask("configRequirements/read", json!({})).await?.ok();
        let account = self
            .ask("account/read", json!({ "refreshToken": false }))
            .await?;
        let whole = |line: &Bytes| Envelope::read(line).and_then(|envelope| envelope.result);
        let (config, required) = (
            config.map(|line| (whole(&line), line)),
            required.map(|line| (whole(&line), line)),
        );
        let kind = account
            .as_ref()
            .ok()
            .and_then(|line| asking::kind(line, &whole(line)?));
        let of = |answer: &Option<(Option<std::ops::Range<usize>>, Bytes)>| {
            let (range, line) = answer.as_ref()?;
            Some((line.clone(), range.clone()?))
        };
        let (config, required) = (of(&config), of(&required));
        let against = asking::judge(
            config.as_ref().map(|(line, range)| (&line[..], range)),
            required.as_ref().map(|(line, range)| (&line[..], range)),
            kind,
        );
        Ok(Told {
            account: kind,
            account_error: account.err(),
            against,
        })
    }

    /// The line of the answer, or codex's own words on why there is none.
    async fn ask(
        &mut self,
        method: &str,
        params: Value,
    ) -> Result<Result<Bytes, String>, TalkError> {
        let line = json!({ "id": method, "method": method, "params": params });
        let sent = self.stdin.write_all(format!("{line}\n").as_bytes()).await;
        sent.map_err(|_| TalkError::Ended)?;
        loop {
            while let Some(piece) = self.lines.next_piece() {
                let Piece::Line(line) = piece else {
                    continue;
                };
                let Ok(value) = serde_json::from_slice::<Value>(&line) else {
                    continue;
                };
                if value.get("id") == Some(&json!(method)) && value.get("method").is_none() {
                    let words = value.pointer("/error/message").and_then(Value::as_str);
                    return Ok(words.map_or(Ok(line), |words| Err(words.to_owned())));
                }
            }
            if !self.stdout.read_into(self.lines.buffer()).await {
                return Err(TalkError::Ended);
            }
        }
    }
}

/// A folder that is removed with what is in it.
struct Scratch(PathBuf);

impl Scratch {
    fn build() -> Option<Self> {
        let random = getrandom::u64().ok()?;
        let path = std::env::temp_dir().join(format!("codex-relay-doctor-{random:016x}"));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.ok().map(|()| Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
