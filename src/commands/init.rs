//! A starter workspace: files that are of use as they are, and never in place of others.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Why no workspace could be written.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// A file or folder can't be made.
    #[error("{}: can't be written", path.display())]
    Write {
        /// What was to be made.
        path: PathBuf,
        /// Why it can't.
        #[source]
        source: io::Error,
    },
    /// Nobody reads what was done.
    #[error("standard output can't be written")]
    Say(#[source] io::Error),
}

/// Writes what is missing of a starter workspace into `folder`, and says what was done to `out`.
///
/// A workspace is about a person: only its owner can read what is made here.
pub fn run(folder: &Path, out: &mut impl Write) -> Result<(), InitError> {
    for (name, text) in STARTER {
        let path = folder.join(name);
        let is_new = write_new(&path, text).map_err(|source| InitError::Write {
            path: path.clone(),
            source,
        })?;
        let done = if is_new { "wrote" } else { "kept " };
        writeln!(out, "{done} {}", path.display()).map_err(InitError::Say)?;
    }
    let folder = folder.display();
    writeln!(
        out,
        "\nSee what the model would be told: codex-relay --workspace '{folder}' render"
    )
    .map_err(InitError::Say)
}

/// Writes a file that isn't there; false where something is.
fn write_new(path: &Path, text: &str) -> io::Result<bool> {
    if path.symlink_metadata().is_ok() {
        return Ok(false);
    }
    if let Some(folder) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
    }
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match file {
        Ok(mut file) => file.write_all(text.as_bytes()).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// The files, by their path below the workspace.
const STARTER: [(&str, &str); 5] = [
    ("SOUL.md", include_str!("starter/SOUL.md")),
    ("IDENTITY.md", include_str!("starter/IDENTITY.md")),
    ("USER.md", include_str!("starter/USER.md")),
    ("AGENTS.md", include_str!("starter/AGENTS.md")),
    (
        "skills/write-a-skill/SKILL.md",
        include_str!("starter/skills/write-a-skill/SKILL.md"),
    ),
];

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;
    use crate::context::wish::Wish;
    use crate::feed::source::Local;
    use crate::workspace::load::Workspace;
    use crate::workspace::skills::Surroundings;

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "a test looks at what was written"
    )]
    fn what_is_there_is_kept_and_the_rest_is_of_use() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("deep/workspace");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("SOUL.md"), "mine").unwrap();
        symlink("nowhere", folder.join("USER.md")).unwrap();
        let mut said = Vec::new();
        run(&folder, &mut said).unwrap();
        let said = String::from_utf8(said).unwrap();
        assert_eq!(said.matches("kept ").count(), 2, "{said}");
        assert_eq!(said.matches("wrote ").count(), 3, "{said}");
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(read("SOUL.md"), "mine");
        assert!(!folder.join("nowhere").exists());
        let mode = folder.join("IDENTITY.md").metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);

        let before = read("AGENTS.md");
        run(&folder, &mut Vec::new()).unwrap();
        assert_eq!(read("AGENTS.md"), before);

        std::fs::remove_file(folder.join("USER.md")).unwrap();
        run(&folder, &mut Vec::new()).unwrap();
        let local = Local {
            workspace: Some(Workspace::new(folder, None, Surroundings::default())),
            ..Local::default()
        };
        let read = local.read(&Wish::default()).unwrap();
        assert_eq!(read.prepared.warnings, [""; 0]);
        assert!(
            read.prepared
                .snapshot
                .text()
                .contains("<name>write-a-skill</name>")
        );
    }
}
