//! Where one test plays: folders of its own, and a model endpoint.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use codex_relay::commands::endpoint::{Endpoint, OverHttp, Script};
use codex_relay::commands::tap;
use codex_relay::commands::witness::{Pairing, Recorded, pair};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::case::{Case, Login, Transport};
use super::codex::{Codex, Version};
use super::model::Model;

/// An isolated `CODEX_HOME`, an agent workspace, a project folder, and an endpoint.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) case: Case,
    pub(crate) codex: Codex,
    pub(crate) endpoint: Endpoint,
    /// Codex's `CODEX_HOME`.
    pub(crate) codex_home: PathBuf,
    /// The agent workspace, empty at first.
    pub(crate) workspace: PathBuf,
    /// The home folder: nothing in it.
    pub(crate) home: PathBuf,
    /// The folder that threads work in: outside of every repository.
    pub(crate) project: TempDir,
    _root: TempDir,
}

impl Stage {
    /// Sets the stage for a case, with the model that does what the prompt says.
    pub(crate) async fn set(case: Case) -> Self {
        Self::with(case, Model::default()).await
    }

    /// Sets the stage with a script of one's own.
    pub(crate) async fn with(case: Case, script: impl Script) -> Self {
        let endpoint = match case.transport {
            Transport::Http => Endpoint::start(OverHttp(script)).await,
            Transport::WebSocket => Endpoint::start(script).await,
        };
        Self::on(case, endpoint.unwrap())
    }

    /// Sets the stage with an endpoint of one's own.
    pub(crate) fn on(case: Case, endpoint: Endpoint) -> Self {
        let codex = Codex::installed(case.version);
        // Codex warns about a CODEX_HOME in the system's temporary folder.
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let folder = |name: &str| {
            let path = root.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let stage = Self {
            case,
            endpoint,
            codex_home: folder("codex"),
            workspace: folder("workspace"),
            home: folder("home"),
            project: tempfile::tempdir().unwrap(),
            codex,
            _root: root,
        };
        fs::write(stage.codex_home.join("config.toml"), stage.offline()).unwrap();
        stage
    }

    /// Writes a file of the agent workspace.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.workspace.join(name), text).unwrap();
    }

    /// Writes a shell script that is run as a program, outside of all other folders.
    pub(crate) fn program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.home.with_file_name(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Has codex believe that its models have room for a history of any size.
    pub(crate) fn lift_context_windows(&self) {
        let mut catalog: Value =
            serde_json::from_slice(&fs::read(&self.codex.models).unwrap()).unwrap();
        for model in catalog["models"].as_array_mut().unwrap() {
            model["context_window"] = json!(1_000_000_000);
            model["max_context_window"] = json!(1_000_000_000);
        }
        let path = self.home.with_file_name("models.json");
        fs::write(&path, catalog.to_string()).unwrap();
        let config = format!("{}{OFFLINE}", catalog_at(&path));
        fs::write(self.codex_home.join("config.toml"), config).unwrap();
    }

    /// Where the copy of codex's stdin is, if a spy wrote one.
    pub(crate) fn copy_of_stdin(&self) -> PathBuf {
        self.home.with_file_name("stdin")
    }

    /// The private route that a spied codex was given.
    pub(crate) fn spied(&self) -> PrivateRoute {
        PrivateRoute::find(&fs::read_to_string(self.copy_of_stdin()).unwrap()).unwrap()
    }

    /// Makes a program of `codex` with a tap behind it.
    pub(crate) async fn tap(&self, codex: &Path) -> PathBuf {
        let program = self.home.with_file_name("tapped");
        let relay = Path::new(env!("CARGO_BIN_EXE_codex-relay"));
        tap::write_wrapper(&program, relay, codex, &self.tapes())
            .await
            .unwrap();
        program
    }

    /// Where a tap writes.
    pub(crate) fn tapes(&self) -> PathBuf {
        self.home.with_file_name("tapes")
    }

    /// The model requests that left a tapped codex, each with what arrived of it.
    pub(crate) async fn traffic(&self) -> Pairing {
        let sent = tap::sent(&self.tapes()).await.unwrap();
        let arrived = self.endpoint.journal().requests;
        pair(&sent, &arrived, Recorded::is_model_request)
    }

    /// Every file under `CODEX_HOME`.
    pub(crate) fn files_of_codex(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut folders = vec![self.codex_home.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_symlink() || path.is_file() {
                    files.push(path);
                } else if path.is_dir() {
                    folders.push(path);
                }
            }
        }
        files
    }

    /// The configuration that keeps codex from asking anybody but the endpoint.
    fn offline(&self) -> String {
        // With ChatGPT tokens 0.155.1 asks the real service for its models, whatever the thread's route is.
        let is_asking = self.case.version == Version::V155 && self.case.login == Login::ChatGpt;
        let catalog = catalog_at(&self.codex.models);
        let catalog = if is_asking { &catalog[..] } else { "" };
        format!("{catalog}{OFFLINE}")
    }
}

/// The configuration that has codex know the models in a file, and ask for no others.
fn catalog_at(path: &Path) -> String {
    format!("model_catalog_json = \"{}\"\n", path.display())
}

/// Where codex reaches its model through the relay.
#[derive(Clone, Debug)]
pub(crate) struct PrivateRoute {
    pub(crate) address: SocketAddr,
    /// The path of the base URL; its first segment is the secret.
    pub(crate) base: String,
}

impl PrivateRoute {
    /// Finds it in what codex has read.
    pub(crate) fn find(input: &str) -> Option<Self> {
        let (_, after) = input.split_once("\"openai_base_url\":\"http://")?;
        let (url, _) = after.split_once('"')?;
        let (address, path) = url.split_once('/')?;
        Some(Self {
            address: address.parse().ok()?,
            base: format!("/{path}"),
        })
    }

    /// The secret.
    pub(crate) fn secret(&self) -> &str {
        self.base.split('/').nth(1).unwrap()
    }

    /// The path behind the secret.
    pub(crate) fn tail(&self) -> &str {
        &self.base[1 + self.secret().len()..]
    }
}

/// Says whether a file holds these bytes.
pub(crate) fn holds(file: &Path, needle: &str) -> bool {
    let bytes = fs::read(file).unwrap_or_default();
    memchr::memmem::find(&bytes, needle.as_bytes()).is_some()
}

/// Nobody listens on port 1 of the loopback.
const OFFLINE: &str = r#"chatgpt_base_url = "http://127.0.0.1:1/"

[features]
plugins = false
apps = false

[analytics]
enabled = false
"#;
