//! A workspace folder into the material of a context.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::base::ids::ProfileId;
use crate::base::limits::MAX_FILE_BYTES;
use crate::context::compose::Material;
use crate::context::fragment::{Fragment, Kind};
use crate::workspace::cache::Cache;
use crate::workspace::files::{Links, ReadError, Root, to_text};
use crate::workspace::skills::{self, Made, Surroundings};

/// A workspace, with what is remembered of its files.
#[derive(Debug, Default)]
pub struct Workspace {
    /// Its folder, an absolute path.
    pub root: PathBuf,
    /// Whose memory the memory tools serve, if not its own.
    pub memory_root: Option<PathBuf>,
    /// What decides which skills are of use.
    pub around: Surroundings,
    texts: Cache<(Arc<str>, usize)>,
    skills: Cache<((u64, u64), Made)>,
}

/// The workspace as a whole can't be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The root isn't a folder.
    #[error("agent workspace is not a folder")]
    NotAFolder,
    /// The root can't be opened.
    #[error("agent workspace can't be read")]
    Root(#[source] io::Error),
}

/// What was read, and what somebody should know of the rest.
#[derive(Debug, Default)]
pub struct Loaded {
    /// What the context is made of; the memory's guidance is not of the workspace.
    pub material: Material,
    /// What is there and can't be used.
    pub warnings: Vec<String>,
    /// What becomes of files that aren't loaded here.
    pub notes: Vec<String>,
}

impl Workspace {
    /// A workspace at `root` that nothing is remembered of.
    pub fn new(root: PathBuf, memory_root: Option<PathBuf>, around: Surroundings) -> Self {
        Self {
            root,
            memory_root,
            around,
            ..Self::default()
        }
    }

    /// Reads the workspace, with the overlay of `profile`, for a thread that works in `folder`.
    ///
    /// A file that can't be read is left out: only the root itself is an error.
    pub fn load(
        &self,
        profile: Option<&ProfileId>,
        thread_folder: Option<&Path>,
        now: SystemTime,
    ) -> Result<Loaded, LoadError> {
        let folder = Root::open(&self.root).map_err(|error| {
            if error.kind() == io::ErrorKind::NotADirectory {
                LoadError::NotAFolder
            } else {
                LoadError::Root(error)
            }
        })?;
        let mut loaded = Loaded::default();
        for (kind, name) in Kind::FIXED {
            self.add(&folder, kind, name, now, &mut loaded);
            if let (Kind::User, Some(profile)) = (kind, profile) {
                let path = format!("users/{}/USER.md", profile.as_str());
                self.add(&folder, Kind::Overlay, &path, now, &mut loaded);
            }
        }
        let at = (&*self.root, &folder);
        let around = (&self.around, thread_folder);
        let warnings = &mut loaded.warnings;
        loaded.material.skills = skills::find(at, &self.skills, around, now, warnings);
        loaded.material.root = self.root.display().to_string();
        loaded.material.is_memory_workspace = self.serves_memory(&folder);
        let is_there =
            |name: &str| matches!(folder.file(Path::new(name), Links::Inside), Ok(Some(_)));
        let notes = NOT_LOADED.into_iter().filter(|(name, _)| is_there(name));
        loaded.notes = notes.map(|(name, why)| format!("{name} {why}")).collect();
        Ok(loaded)
    }

    fn add(&self, folder: &Root, kind: Kind, path: &str, now: SystemTime, loaded: &mut Loaded) {
        match self.read(folder, kind, path, now) {
            Ok(Some((text, unread_bytes))) => loaded.material.fragments.push(Fragment {
                kind,
                path: path.to_owned(),
                text,
                unread_bytes,
            }),
            Ok(None) => {}
            Err(error) => {
                let warning = format!("{path} left out: it {error}");
                loaded.warnings.push(warning);
            }
        }
    }

    fn read(
        &self,
        folder: &Root,
        kind: Kind,
        path: &str,
        now: SystemTime,
    ) -> Result<Option<(Arc<str>, usize)>, ReadError> {
        let path = Path::new(path);
        // A person's own words must not come from another's folder.
        let links = if kind == Kind::Overlay {
            Links::Never
        } else {
            Links::Inside
        };
        let Some(file) = folder.file(path, links)? else {
            return Ok(None);
        };
        let text = self.texts.make(path, file, now, MAX_FILE_BYTES, |head| {
            (Arc::from(to_text(head)), head.unread)
        });
        text.map(Some)
    }

    fn serves_memory(&self, folder: &Root) -> bool {
        let Some(memory) = &self.memory_root else {
            return true;
        };
        let memory = Root::open(memory).ok().and_then(|it| it.identity());
        memory.is_some() && memory == folder.identity()
    }
}

/// Files that a workspace may have, and what becomes of them.
const NOT_LOADED: [(&str, &str); 3] = [
    (
        "AGENTS.md",
        "is left to codex, which reads it where the workspace is the thread's folder or above it",
    ),
    (
        "TOOLS.md",
        "is not loaded: move what is still of use under ## Tools in AGENTS.md",
    ),
    (
        "HEARTBEAT.md",
        "is not loaded: the client sends such a list with each heartbeat; move standing notes under ## Tools in AGENTS.md",
    ),
];

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
