//! Shell scripts in codex's place: for what the real one can't be made to do.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::process::Command;

use super::client::Client;
use super::eventually;
use super::stage::PrivateRoute;

/// A folder with scripts that stand in for codex. What they write lands in it.
#[derive(Debug)]
pub(crate) struct StandIn(TempDir);

impl StandIn {
    /// Makes the folder.
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    /// Writes a script as a program.
    pub(crate) fn program(&self, script: &str) -> PathBuf {
        let path = self.folder().join("stand-in");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// The command that starts the relay in front of `codex`.
    pub(crate) fn relay(&self, codex: &Path) -> Command {
        let mut relay = Command::new(env!("CARGO_BIN_EXE_codex-relay"));
        relay.arg("--codex").arg(codex);
        relay.args(["--upstream", "http://127.0.0.1:1", "app-server"]);
        relay.env_clear();
        relay.env("PATH", env!("PATH"));
        relay.env("HOME", self.folder());
        relay.env("CODEX_HOME", self.folder());
        relay.current_dir(self.folder());
        relay
    }

    /// The private route in what a script has read, which it copies into the file `input`.
    pub(crate) async fn route(&self) -> PrivateRoute {
        let input = self.folder().join("input");
        let found = || PrivateRoute::find(&fs::read_to_string(&input).ok()?);
        eventually("the route is known", found).await
    }

    /// Starts the relay in front of a script.
    pub(crate) fn start(&self, script: &str) -> Client {
        let program = self.program(script);
        Client::spawn(self.relay(&program))
    }
}

/// The cases of a shell loop over `line` that answers what a session needs; more may follow.
pub(crate) const ANSWERS: &str = r#"
  id=${line#*\"id\":}; id=${id%%,*}; id=${id%\}}
  case "$line" in
    *initialize\"*)
      printf '{"id":%s,"result":{"userAgent":"codex/0.171.0 (Linux) suite (suite; 1)"}}\n' "$id";;
    *config/read*) printf '{"id":%s,"result":{"config":{}}}\n' "$id";;
    *configRequirements/read*) printf '{"id":%s,"result":{"requirements":null}}\n' "$id";;
    *account/read*)
      printf '{"id":%s,"result":{"account":{"type":"apiKey"},"requiresOpenaiAuth":true}}\n' "$id";;
    *thread/start*) printf '{"id":%s,"result":{"thread":{"id":"t1"}}}\n' "$id";;
"#;
