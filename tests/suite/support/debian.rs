//! Programs of Debian that tests need: taken from the machine, else fetched by apt once and unpacked under `target`.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program of a package, by its path in it.
pub(crate) fn program(package: &str, path: &str) -> PathBuf {
    let installed = Path::new("/").join(path);
    if installed.is_file() {
        return installed;
    }
    let file = unpacked(package).join(path);
    assert!(file.is_file(), "{package} has no {path}");
    file
}

/// The library that answers for the system's resolver out of a file.
pub(crate) fn hosts_library() -> PathBuf {
    library("libnss-wrapper", "libnss_wrapper.so")
}

/// The library that tells a program another time.
pub(crate) fn clock_library() -> PathBuf {
    library("libfaketime", "libfaketimeMT.so.1")
}

/// A library of a package, by its name, wherever the machine's kind has it.
fn library(package: &str, name: &str) -> PathBuf {
    let mut folders = vec![unpacked(package)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.ends_with(name) {
                return path;
            }
        }
    }
    panic!("{package} has no {name}");
}

/// A program of a package that needs libraries, and the folders of those that the machine lacks, as
/// `LD_LIBRARY_PATH` takes them.
pub(crate) fn program_and_libraries(package: &str, path: &str) -> (PathBuf, OsString) {
    let installed = Path::new("/").join(path);
    if installed.is_file() {
        return (installed, OsString::new());
    }
    let root = unpacked_with(&format!("{package}-whole"), |root| {
        let mut download = Command::new("apt-get");
        // Nothing is installed: the packages alone, with those that they need and the machine lacks.
        download.args([
            "install",
            "--yes",
            "--no-install-recommends",
            "--download-only",
        ]);
        let archives = format!("Dir::Cache::archives={}", root.display());
        download.args(["-o", &archives, "-o", "Debug::NoLocking=1", package]);
        download
    });
    let file = root.join(path);
    assert!(file.is_file(), "{package} has no {path}");
    let kinds = fs::read_dir(root.join("usr/lib")).unwrap();
    let folders = kinds.map(|entry| entry.unwrap().path());
    let folders = folders.filter(|it| it.to_string_lossy().ends_with("-linux-gnu"));
    let folders: Vec<OsString> = folders.map(Into::into).collect();
    (file, folders.join(OsStr::new(":")))
}

fn unpacked(package: &str) -> PathBuf {
    unpacked_with(package, |_| {
        let mut download = Command::new("apt-get");
        download.args(["download", package]);
        download
    })
}

/// Has a command fetch packages, and unpacks them.
///
/// A file lock makes sure that they are fetched once, by whichever test comes first.
fn unpacked_with(name: &str, download: impl Fn(&Path) -> Command) -> PathBuf {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let root = temporary.parent().unwrap().join("debian").join(name);
    fs::create_dir_all(root.join("partial")).unwrap();
    let lock = File::create(root.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let complete = root.join("complete");
    if !complete.exists() {
        let mut download = download(&root);
        download.current_dir(&root);
        // A fresh machine has no list of packages, or an old one.
        if !download.output().is_ok_and(|it| it.status.success()) {
            run(Command::new("apt-get").arg("update"));
            run(&mut download);
        }
        let entries = fs::read_dir(&root).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let archives: Vec<_> = paths
            .filter(|it| it.extension().is_some_and(|it| it == "deb"))
            .collect();
        assert!(!archives.is_empty(), "apt-get gave no {name}");
        for archive in archives {
            run(Command::new("dpkg-deb").arg("-x").arg(archive).arg(&root));
        }
        fs::write(complete, "").unwrap();
    }
    root
}

fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?} is needed: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
