//! The skills of a workspace: which there are, and which of them are of use here.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::base::limits::{MAX_FRONT_MATTER_BYTES, MAX_SKILL_FOLDERS};
use crate::context::front_matter::{FrontMatter, FrontMatterError, Needs};
use crate::context::skills::Skill;
use crate::workspace::cache::Cache;
use crate::workspace::files::{Links, Root, to_text};

/// What decides which skills are of use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The value of PATH.
    pub path: Option<OsString>,
    /// The names of the variables that are set.
    pub variables: BTreeSet<OsString>,
    /// Skills that are switched off, by name or folder.
    pub disabled: BTreeSet<String>,
    /// Folders whose skills codex lists itself.
    pub of_codex: Vec<PathBuf>,
}

/// What was made of one SKILL.md.
pub type Made = Result<FrontMatter, FrontMatterError>;

/// Finds the skills of the workspace at `root`, open as `folder`, for a thread that works in
/// `thread_folder`; what can't be used is told to `warnings`.
pub fn find(
    (root, folder): (&Path, &Root),
    cache: &Cache<((u64, u64), Made)>,
    (around, thread_folder): (&Surroundings, Option<&Path>),
    now: SystemTime,
    warnings: &mut Vec<String>,
) -> Vec<Skill> {
    let names = match folder.names(Path::new(FOLDER), MAX_SKILL_FOLDERS) {
        Ok(Some((names, is_more))) => {
            if is_more {
                warnings.push(format!(
                    "skills: more than {MAX_SKILL_FOLDERS} folders, the rest is left out"
                ));
            }
            names
        }
        Ok(None) => return Vec::new(),
        Err(error) => {
            warnings.push(format!("{FOLDER} left out: it {error}"));
            return Vec::new();
        }
    };
    if names.is_empty() {
        return Vec::new();
    }
    let of_codex = around.skills_of_codex(thread_folder);
    let mut skills = Vec::new();
    for name in names {
        let path = Path::new(FOLDER).join(&name).join("SKILL.md");
        let made = folder.file(&path, Links::Inside).and_then(|file| {
            let Some(file) = file else {
                return Ok(None);
            };
            let identity = crate::workspace::files::Identity::of(&file)?;
            let make = |head: &_| (identity.file, FrontMatter::read(&to_text(head)));
            let made = cache.make(&path, file, now, MAX_FRONT_MATTER_BYTES, make);
            made.map(Some)
        });
        match made {
            Ok(None) => {}
            Ok(Some((_, Err(error)))) => {
                warnings.push(format!("{} left out: it {error}", path.display()));
            }
            Err(error) => warnings.push(format!("{} left out: it {error}", path.display())),
            Ok(Some((file, Ok(read)))) => {
                let is_of_codex = of_codex.contains(&file);
                if !is_of_codex && around.has_use_for(&read, &name) {
                    skills.push(Skill {
                        name: read.name.unwrap_or(name),
                        description: read.description,
                        location: root.join(&path).display().to_string(),
                    });
                }
            }
        }
    }
    skills
}

impl Surroundings {
    fn has_use_for(&self, skill: &FrontMatter, folder: &str) -> bool {
        let is_disabled = |name: &str| self.disabled.contains(name);
        let is_off = is_disabled(folder) || skill.name.as_deref().is_some_and(is_disabled);
        !skill.is_hidden && !is_off && (skill.needs.nothing || self.satisfy(&skill.needs))
    }

    fn satisfy(&self, needs: &Needs) -> bool {
        let has_program = |name: &String| self.has_program(name);
        let is_set = |name: &String| self.variables.contains(OsStr::new(name));
        (needs.os.is_empty() || needs.os.iter().any(|os| is_this_system(os)))
            && needs.bins.iter().all(has_program)
            && (needs.any_bins.is_empty() || needs.any_bins.iter().any(has_program))
            && needs.env.iter().all(is_set)
    }

    fn has_program(&self, name: &str) -> bool {
        let is_name = !name.is_empty() && !name.contains('/');
        let folders = self.path.iter().flat_map(std::env::split_paths);
        let is_program = |path: PathBuf| {
            path.metadata()
                .is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
        };
        is_name && folders.map(|folder| folder.join(name)).any(is_program)
    }

    /// Every SKILL.md that codex lists itself, by device and number.
    fn skills_of_codex(&self, thread_folder: Option<&Path>) -> BTreeSet<(u64, u64)> {
        let of_project = thread_folder.into_iter().flat_map(of_project);
        let folders = self.of_codex.iter().cloned().chain(of_project);
        let folders = folders.filter_map(|it| it.read_dir().ok());
        let entries = folders.flat_map(|it| it.take(MAX_SKILL_FOLDERS).flatten());
        let files = entries.filter_map(|entry| entry.path().join("SKILL.md").metadata().ok());
        files.map(|it| (it.dev(), it.ino())).collect()
    }
}

/// Where codex looks for skills of the project that `folder` is in: in every folder up to the
/// repository's.
fn of_project(folder: &Path) -> Vec<PathBuf> {
    let repository = folder
        .ancestors()
        .position(|it| it.join(".git").symlink_metadata().is_ok());
    folder
        .ancestors()
        .take(repository.map_or(1, |last| last + 1))
        .flat_map(|it| [it.join(".agents/skills"), it.join(".codex/skills")])
        .collect()
}

/// Whether `os` names the system that this runs on, in Node's words or Rust's.
fn is_this_system(os: &str) -> bool {
    let os = match os {
        "darwin" => "macos",
        "win32" => "windows",
        other => other,
    };
    os == std::env::consts::OS
}

/// Where skills are, below the root.
const FOLDER: &str = "skills";

#[cfg(test)]
#[path = "skills_tests.rs"]
mod tests;
