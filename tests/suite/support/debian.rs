//! Programs of Debian that tests need: taken from the machine, else fetched by apt once and unpacked under `target`.

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

/// A file lock makes sure that a package is fetched once, by whichever test comes first.
fn unpacked(package: &str) -> PathBuf {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let root = temporary.parent().unwrap().join("debian").join(package);
    fs::create_dir_all(&root).unwrap();
    let lock = File::create(root.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let complete = root.join("complete");
    if !complete.exists() {
        let mut download = Command::new("apt-get");
        download.args(["download", package]).current_dir(&root);
        // A fresh machine has no list of packages, or an old one.
        if !download.output().is_ok_and(|it| it.status.success()) {
            run(Command::new("apt-get").arg("update"));
            run(&mut download);
        }
        let archive = fs::read_dir(&root).unwrap().find_map(|entry| {
            let path = entry.unwrap().path();
            path.extension()
                .is_some_and(|it| it == "deb")
                .then_some(path)
        });
        let archive = archive.unwrap_or_else(|| panic!("apt-get gave no {package}"));
        run(Command::new("dpkg-deb").arg("-x").arg(archive).arg(&root));
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
