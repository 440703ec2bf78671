//! The pinned versions of codex: fetched from npm once, kept under `target/codex`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A version that the relay is tested with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// 0.155.1
    V155,
    /// 0.171.0
    V171,
}

impl Version {
    /// The version as npm names it.
    pub(crate) fn number(self) -> &'static str {
        match self {
            Self::V155 => "0.155.1",
            Self::V171 => "0.171.0",
        }
    }

    /// A model that isn't "lite": its tools are a top-level member, on 0.155.1 its `instructions` too.
    pub(crate) fn classic_model(self) -> &'static str {
        match self {
            Self::V155 => "gpt-5.4",
            Self::V171 => "gpt-5.5",
        }
    }
}

/// An installed codex.
#[derive(Clone, Debug)]
pub(crate) struct Codex {
    /// The script that npm links as `codex`.
    pub(crate) shim: PathBuf,
    /// The program that it starts.
    pub(crate) native: PathBuf,
    /// The list of models that the program carries, as `model_catalog_json` takes it.
    pub(crate) models: PathBuf,
}

impl Codex {
    /// Finds a version, or has npm fetch it.
    ///
    /// A file lock makes sure that it is fetched once, by whichever test comes first, in whichever process.
    pub(crate) fn installed(version: Version) -> Self {
        let root = shelf().join(version.number());
        fs::create_dir_all(&root).unwrap();
        let lock = File::create(root.with_extension("lock")).unwrap();
        lock.lock().unwrap();
        let complete = root.join("complete");
        if !complete.exists() {
            fetch(version, &root);
            let found = Self::in_folder(&root);
            list_models(&found);
            fs::write(complete, "").unwrap();
        }
        Self::in_folder(&root)
    }

    fn in_folder(root: &Path) -> Self {
        let modules = root.join("node_modules");
        Self {
            shim: modules.join(".bin/codex"),
            native: native(&modules),
            models: root.join("models.json"),
        }
    }
}

/// The folder that outlives the tests: beside that of cargo's for temporary files, in `target`.
fn shelf() -> PathBuf {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    temporary.parent().unwrap().join("codex")
}

fn fetch(version: Version, root: &Path) {
    let package = format!("@openai/codex@{}", version.number());
    let mut npm = Command::new("npm");
    npm.arg("install").arg("--prefix").arg(root).args(NPM_FLAGS);
    npm.arg(&package);
    let fetched = npm
        .output()
        .unwrap_or_else(|error| panic!("npm is needed to fetch {package}: {error}"));
    assert!(
        fetched.status.success(),
        "npm can't fetch {package}: {}",
        said(&fetched)
    );
}

fn native(modules: &Path) -> PathBuf {
    let platforms = entries(&modules.join("@openai"));
    let vendors = platforms.iter().flat_map(|it| entries(&it.join("vendor")));
    let mut programs = vendors.map(|it| it.join("bin/codex"));
    programs
        .find(|program| program.is_file())
        .unwrap_or_else(|| panic!("no codex under {}", modules.display()))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(folder).into_iter().flatten();
    listed.map(|entry| entry.unwrap().path()).collect()
}

/// Writes down the models that the program knows: given them, it asks nobody for others.
fn list_models(codex: &Codex) {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let listed = Command::new(&codex.native)
        .args(["debug", "models", "--bundled"])
        .env("CODEX_HOME", home.path())
        .output()
        .unwrap();
    assert!(listed.status.success(), "no models: {}", said(&listed));
    fs::write(&codex.models, listed.stdout).unwrap();
}

fn said(output: &Output) -> String {
    let words = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&words).into_owned()
}

const NPM_FLAGS: [&str; 5] = [
    "--no-save",
    "--no-audit",
    "--no-fund",
    "--no-package-lock",
    "--ignore-scripts",
];
