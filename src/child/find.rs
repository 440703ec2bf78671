//! Which executable is codex.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The codex executable, and what its npm package would have put into its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The executable to start.
    pub program: PathBuf,
    /// Variables that the npm shim sets.
    pub variables: Vec<(OsString, OsString)>,
}

/// Why there is no codex to start.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// Nothing on PATH.
    #[error(
        "no codex on PATH; install it (npm install -g @openai/codex) or name it with --codex PATH"
    )]
    NotOnPath,
    /// The name that was given isn't on PATH.
    #[error("--codex {0:?}: no such program on PATH; give the path of the codex executable")]
    NameNotOnPath(PathBuf),
    /// What was named is the relay.
    #[error("--codex {0:?} is codex-relay itself; name the real codex")]
    ThisProgram(PathBuf),
    /// What was named can't be run.
    #[error("--codex {0:?} is not an executable file")]
    NotExecutable(PathBuf),
}

/// Finds codex: what was named, else the first `codex` on `path`; never this program.
///
/// An npm shim is resolved to the native binary behind it: the shim costs a node process, which
/// codex would outlive.
pub fn find(
    named: Option<&Path>,
    path: Option<&OsStr>,
    this_program: Option<&Path>,
) -> Result<Found, FindError> {
    // A bare name is looked for on PATH, as a shell does.
    let bare = named.filter(|named| named.components().count() == 1 && named.is_relative());
    let this = this_program.and_then(|this| this.canonicalize().ok());
    if let (Some(named), None) = (named, bare) {
        if this.is_some() && named.canonicalize().ok() == this {
            return Err(FindError::ThisProgram(named.to_path_buf()));
        }
        if !is_executable(named) {
            return Err(FindError::NotExecutable(named.to_path_buf()));
        }
        return Ok(resolve(named));
    }
    let name = bare.unwrap_or_else(|| Path::new("codex"));
    std::env::split_paths(path.unwrap_or_default())
        .map(|folder| folder.join(name))
        .filter(|candidate| is_executable(candidate))
        .find(|candidate| this.is_none() || candidate.canonicalize().ok() != this)
        .map(|candidate| resolve(&candidate))
        .ok_or_else(|| match bare {
            Some(name) => FindError::NameNotOnPath(name.to_path_buf()),
            None => FindError::NotOnPath,
        })
}

/// Whether `file` is one that somebody may execute, links followed.
pub fn is_executable(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// The native binary behind an npm shim, or the program itself.
fn resolve(program: &Path) -> Found {
    native_of_shim(program).unwrap_or_else(|| Found {
        program: program.to_path_buf(),
        variables: Vec::new(),
    })
}

/// The layout of the npm package `@openai/codex`: `bin/codex.js` beside, or above, a package with
/// the binary of this platform.
fn native_of_shim(program: &Path) -> Option<Found> {
    let script = program.canonicalize().ok()?;
    if script.file_name()? != "codex.js" || !starts_with_node(&script) {
        return None;
    }
    let root = script.parent()?.parent()?;
    let (package, target) = platform()?;
    let below = Path::new("vendor").join(target).join("bin").join("codex");
    let beside = root.parent()?;
    let places = [
        root.join("node_modules/@openai").join(package),
        beside.join(package),
        root.to_path_buf(),
    ];
    let native = places
        .into_iter()
        .map(|place| place.join(&below))
        .find(|native| is_executable(native))?;
    let variables = vec![
        ("CODEX_MANAGED_PACKAGE_ROOT".into(), root.into()),
        ("CODEX_MANAGED_BY_NPM".into(), "1".into()),
    ];
    Some(Found {
        program: native,
        variables,
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "64 bytes of a program, not a workspace file"
)]
fn starts_with_node(script: &Path) -> bool {
    let mut first = [0; 64];
    let read = File::open(script).and_then(|mut file| file.read(&mut first));
    let first = first.get(..read.unwrap_or(0)).unwrap_or_default();
    first.starts_with(b"#!") && memchr::memmem::find(first, b"node").is_some()
}

fn platform() -> Option<(&'static str, &'static str)> {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => Some(("codex-linux-x64", "x86_64-unknown-linux-musl")),
        ("linux", "aarch64") => Some(("codex-linux-arm64", "aarch64-unknown-linux-musl")),
        ("macos", "x86_64") => Some(("codex-darwin-x64", "x86_64-apple-darwin")),
        ("macos", "aarch64") => Some(("codex-darwin-arm64", "aarch64-apple-darwin")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn executable(path: &Path, content: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn first_codex_on_path_that_is_not_this_program_is_taken() {
        let root = tempfile::tempdir().unwrap();
        let this = root.path().join("relay/codex-relay");
        executable(&this, "");
        let link = root.path().join("a/codex");
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(&this, &link).unwrap();
        fs::create_dir_all(root.path().join("b/codex")).unwrap();
        let real = root.path().join("c d/codex");
        executable(&real, "");
        let path = std::env::join_paths(["a", "b", "c d"].map(|d| root.path().join(d))).unwrap();
        assert_eq!(find(None, Some(&path), Some(&this)).unwrap().program, real);
        assert_eq!(find(None, None, Some(&this)), Err(FindError::NotOnPath));
        assert!(find(Some(&root.path().join("b/codex")), None, None).is_err());
        assert_eq!(
            find(Some(&link), None, Some(&this)),
            Err(FindError::ThisProgram(link))
        );
        let bare = find(Some(Path::new("codex")), Some(&path), Some(&this));
        assert_eq!(bare.unwrap().program, real);
        assert!(find(Some(Path::new("other")), Some(&path), Some(&this)).is_err());
    }

    #[test]
    fn npm_shim_gives_its_native_binary() {
        let Some((package, target)) = platform() else {
            return;
        };
        let root = tempfile::tempdir().unwrap();
        let modules = root.path().canonicalize().unwrap().join("node_modules");
        let script = modules.join("@openai/codex/bin/codex.js");
        executable(&script, "#!/usr/bin/env node\n");
        let shim = modules.join(".bin/codex");
        fs::create_dir_all(shim.parent().unwrap()).unwrap();
        symlink(&script, &shim).unwrap();
        assert_eq!(find(Some(&shim), None, None).unwrap().program, shim);
        let native = modules
            .join("@openai")
            .join(package)
            .join("vendor")
            .join(target)
            .join("bin/codex");
        executable(&native, "");
        let found = find(Some(&shim), None, None).unwrap();
        assert_eq!(found.program, native);
        assert_eq!(found.variables[0].1, modules.join("@openai/codex"));
    }
}
