//! A workspace folder into fragments.

use std::io;
use std::path::Path;

use crate::context::fragment::{Fragment, Kind};
use crate::workspace::files::{ReadError, read_below};

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

/// What was read, and what was left out with its reason.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The files that are there, in order.
    pub fragments: Vec<Fragment>,
    /// Files that are there and can't be used.
    pub left_out: Vec<(&'static str, ReadError)>,
}

/// Reads the workspace below `root`.
///
/// A file that can't be read is left out: only the root itself is an error.
pub fn load(root: &Path) -> Result<Loaded, LoadError> {
    let metadata = root.metadata().map_err(LoadError::Root)?;
    if !metadata.is_dir() {
        return Err(LoadError::NotAFolder);
    }
    // A folder that exists and can't be entered would look like one without files.
    root.read_dir().map_err(LoadError::Root)?;
    let mut loaded = Loaded::default();
    for kind in Kind::ALL {
        match read_below(root, kind.file_name()) {
            Ok(Some(text)) => loaded.fragments.push(Fragment { kind, text }),
            Ok(None) => {}
            Err(error) => loaded.left_out.push((kind.file_name(), error)),
        }
    }
    Ok(loaded)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_come_in_order_and_the_unreadable_are_named() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("USER.md"), "u").unwrap();
        fs::write(root.path().join("SOUL.md"), "s").unwrap();
        fs::create_dir(root.path().join("IDENTITY.md")).unwrap();
        let loaded = load(root.path()).unwrap();
        let kinds: Vec<Kind> = loaded.fragments.iter().map(|f| f.kind).collect();
        assert_eq!(kinds, [Kind::Soul, Kind::User]);
        assert_eq!(loaded.left_out.len(), 1);
        assert_eq!(loaded.left_out[0].0, "IDENTITY.md");
    }

    #[test]
    fn root_that_is_no_folder_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(matches!(load(&file), Err(LoadError::NotAFolder)));
        assert!(matches!(
            load(&root.path().join("no")),
            Err(LoadError::Root(_))
        ));
    }
}
