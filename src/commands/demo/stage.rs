//! The demo's scratch folder: a codex home, a sample workspace, an empty project, and a tap.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use tokio::fs;

use super::error::DemoError;

/// A scratch folder; dropping it removes it.
#[derive(Debug)]
pub(super) struct Stage {
    root: PathBuf,
}

impl Stage {
    /// Makes the folder below `cache`, which is not in the system's temporary folder: there codex
    /// would warn about its home.
    pub(super) async fn build(cache: &Path) -> Result<Self, DemoError> {
        let scratch = |source| DemoError::Scratch {
            dir: cache.to_owned(),
            source,
        };
        fs::create_dir_all(cache).await.map_err(scratch)?;
        let cache = fs::canonicalize(cache).await.map_err(scratch)?;
        let random = getrandom::u64().map_err(|fault| scratch(fault.into()))?;
        let stage = Self {
            root: cache.join(format!("demo-{random:016x}")),
        };
        stage.fill().await.map_err(scratch)?;
        Ok(stage)
    }

    /// The folder for `CODEX_HOME`.
    pub(super) fn home(&self) -> PathBuf {
        self.root.join("codex-home")
    }

    /// The agent workspace.
    pub(super) fn workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    /// The empty project.
    pub(super) fn project(&self) -> PathBuf {
        self.root.join("project")
    }

    /// Where the tap writes.
    pub(super) fn tapes(&self) -> PathBuf {
        self.root.join("tapes")
    }

    /// Where the program goes that runs codex behind a tap.
    pub(super) fn tapped(&self) -> PathBuf {
        self.root.join("tapped-codex")
    }

    /// Counts the files and bytes that codex stored, and finds those that hold one of `words`.
    pub(super) async fn search(&self, words: &[&str]) -> io::Result<Stored> {
        let mut stored = Stored::default();
        let mut waiting = vec![self.home(), self.project()];
        while let Some(dir) = waiting.pop() {
            let mut entries = fs::read_dir(&dir).await?;
            while let Some(entry) = entries.next_entry().await? {
                let kind = entry.file_type().await?;
                if kind.is_dir() {
                    waiting.push(entry.path());
                } else if kind.is_file() {
                    let bytes = fs::read(entry.path()).await?;
                    stored.files += 1;
                    stored.bytes += bytes.len();
                    let holds =
                        |word: &&str| memchr::memmem::find(&bytes, word.as_bytes()).is_some();
                    if words.iter().any(holds) {
                        stored.holders.push(entry.path());
                    }
                }
            }
        }
        Ok(stored)
    }

    async fn fill(&self) -> io::Result<()> {
        for dir in [
            self.root.clone(),
            self.home(),
            self.workspace(),
            self.project(),
            self.tapes(),
        ] {
            std::fs::DirBuilder::new().mode(0o700).create(dir)?;
        }
        fs::write(&self.home().join("config.toml"), CONFIG).await?;
        for (name, text) in PERSONA {
            fs::write(&self.workspace().join(name), text.as_bytes()).await?;
        }
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// What codex left on disk.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// Files.
    pub(super) files: usize,
    /// Bytes in them.
    pub(super) bytes: usize,
    /// Files that hold what was searched for.
    pub(super) holders: Vec<PathBuf>,
}

/// Words of the sample workspace that nothing else says, one in each file.
pub(super) const WORDS: [&str; 3] = ["Quillwhistle", "Marlowena", "Tamsinette"];

const PERSONA: [(&str, &str); 3] = [
    (
        "SOUL.md",
        "# Soul\n\nYou keep the lighthouse of Quillwhistle. You are warm, brief and a little dry, and you\nnever let a guest leave without good news.\n",
    ),
    (
        "IDENTITY.md",
        "# Identity\n\nYour name is Marlowena. You sign with a small drawing of a lamp.\n",
    ),
    (
        "USER.md",
        "# User\n\nYou work for Tamsinette, who likes short answers and tea without milk.\n",
    ),
];

/// Keeps codex to the demo's endpoint: no plugins, no analytics, no question for a newer version.
const CONFIG: &[u8] = b"check_for_update_on_startup = false\n\n[analytics]\nenabled = false\n\n[features]\nplugins = false\n";
