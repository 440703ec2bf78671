//! Finding a codex for the demo, or having npm fetch one.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::fs;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use super::error::DemoError;
use crate::child::find::is_executable;

/// Where a codex may be.
pub(super) struct Search<'a> {
    /// The one that was asked for.
    pub(super) codex: Option<&'a Path>,
    /// The value of `PATH`.
    pub(super) path: Option<&'a OsStr>,
    /// This program, which may itself be called `codex`.
    pub(super) relay: &'a Path,
    /// Where npm installs.
    pub(super) cache: &'a Path,
}

/// Where a codex was found.
pub(super) enum Found {
    /// Here it is.
    Here(PathBuf),
    /// Nowhere, but npm can fetch it.
    Fetch(Fetch),
}

/// An installation by npm that is still to be done.
pub(super) struct Fetch {
    npm: PathBuf,
    path: Option<OsString>,
    /// Where it goes.
    pub(super) dir: PathBuf,
}

impl Search<'_> {
    /// Looks for the codex that was asked for, on `PATH`, and among what npm installed before.
    pub(super) async fn find(&self) -> Result<Found, DemoError> {
        if let Some(codex) = self.codex {
            // Links are kept: what they lead to may look at the name that it was called by.
            return match std::path::absolute(codex) {
                Ok(whole) if is_executable(&whole) => Ok(Found::Here(whole)),
                _ => Err(DemoError::CodexMissing {
                    path: codex.to_owned(),
                }),
            };
        }
        if let Some(codex) = self.on_path("codex").await {
            return Ok(Found::Here(codex));
        }
        let dir = self.cache.join(FOLDER);
        let installed = installed(&dir);
        if is_executable(&installed) {
            return Ok(Found::Here(installed));
        }
        let npm = self.on_path("npm").await;
        let npm = npm.ok_or(DemoError::NpmMissing { package: PACKAGE })?;
        let path = self.path.map(OsStr::to_owned);
        Ok(Found::Fetch(Fetch { npm, path, dir }))
    }

    async fn on_path(&self, name: &str) -> Option<PathBuf> {
        let own = fs::metadata(self.relay).await.ok();
        let own = own.map(|own| (own.dev(), own.ino()));
        for dir in std::env::split_paths(self.path?) {
            let candidate = dir.join(name);
            let Ok(found) = fs::metadata(&candidate).await else {
                continue;
            };
            if dir.is_absolute()
                && Some((found.dev(), found.ino())) != own
                && is_executable(&candidate)
            {
                return Some(candidate);
            }
        }
        None
    }
}

impl Fetch {
    /// Has npm install the pinned codex.
    pub(super) async fn run(self) -> Result<PathBuf, DemoError> {
        let scratch = |source| DemoError::Scratch {
            dir: self.dir.clone(),
            source,
        };
        fs::create_dir_all(&self.dir).await.map_err(scratch)?;
        let mut npm = Command::new(&self.npm);
        npm.arg("install").arg("--prefix").arg(&self.dir);
        npm.args(["--no-audit", "--no-fund", "--loglevel=error", PACKAGE]);
        if let Some(path) = &self.path {
            npm.env("PATH", path);
        }
        npm.current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let failed = |outcome: String, said: &[u8]| DemoError::Npm {
            package: PACKAGE,
            outcome,
            said: String::from_utf8_lossy(said).trim().to_owned(),
        };
        let mut child = npm
            .spawn()
            .map_err(|fault| failed(fault.to_string(), b""))?;
        let mut said = Vec::new();
        let ended = async {
            if let Some(stderr) = child.stderr.take() {
                let mut bounded = stderr.take(MAX_SAID_BYTES);
                while let Ok(1..) = bounded.read_buf(&mut said).await {}
                let mut rest = bounded.into_inner();
                let _ = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await;
            }
            child.wait().await
        };
        match tokio::time::timeout(NPM_DEADLINE, ended).await {
            Ok(Ok(ended)) if ended.success() => {}
            Ok(Ok(ended)) => return Err(failed(ended.to_string(), &said)),
            Ok(Err(fault)) => return Err(failed(fault.to_string(), &said)),
            Err(_) => return Err(failed(format!("no end within {NPM_DEADLINE:?}"), &said)),
        }
        let codex = installed(&self.dir);
        if is_executable(&codex) {
            return Ok(codex);
        }
        Err(failed("it left no codex behind".to_owned(), &said))
    }
}

fn installed(dir: &Path) -> PathBuf {
    dir.join("node_modules").join(".bin").join("codex")
}

/// What npm is asked for: the newest codex that the relay is tested with.
pub(super) const PACKAGE: &str = "@openai/codex@0.171.0";

const FOLDER: &str = "codex-0.171.0";

/// Longest wait for npm: the package has some 100 MB.
const NPM_DEADLINE: Duration = Duration::from_mins(15);

const MAX_SAID_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn program(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "#!/bin/sh\n").unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(path, mode).unwrap();
    }

    #[tokio::test]
    async fn codex_on_the_path_is_not_this_program() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        program(&dir.join("relay"));
        program(&dir.join("b").join("codex"));
        program(&dir.join("c").join("npm"));
        std::fs::create_dir(dir.join("a")).unwrap();
        std::os::unix::fs::symlink(dir.join("relay"), dir.join("a").join("codex")).unwrap();
        let found = |names: &[&str]| {
            let path = std::env::join_paths(names.iter().map(|name| dir.join(name))).unwrap();
            let (relay, cache) = (dir.join("relay"), dir.join("cache"));
            async move {
                let search = Search {
                    codex: None,
                    path: Some(&path),
                    relay: &relay,
                    cache: &cache,
                };
                search.find().await
            }
        };
        let both = found(&["a", "b", "c"]).await.unwrap();
        assert!(matches!(both, Found::Here(codex) if codex == dir.join("b").join("codex")));
        assert!(matches!(found(&["a", "c"]).await, Ok(Found::Fetch(_))));
        let neither = found(&["a"]).await;
        assert!(matches!(neither, Err(DemoError::NpmMissing { .. })));
    }
}
