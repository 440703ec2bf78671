//! The tap as one executable path, which is what a relay takes for its codex.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tokio::fs::OpenOptions;
use tokio::io::AsyncWriteExt;

/// Writes a new program to `path` that runs `codex` behind a tap, with whatever arguments it gets.
///
/// `relay` is this program's own executable, `record` the folder for the recordings; both and
/// `codex` should be absolute.
///
/// # Errors
/// The file exists already, or can't be written.
pub async fn write_wrapper(
    path: &Path,
    relay: &Path,
    codex: &Path,
    record: &Path,
) -> io::Result<()> {
    let mut script = b"#!/bin/sh\nexec".to_vec();
    let words: [&OsStr; 6] = [
        relay.as_ref(),
        "tap".as_ref(),
        "--codex".as_ref(),
        codex.as_ref(),
        "--record".as_ref(),
        record.as_ref(),
    ];
    for word in words {
        script.push(b' ');
        quote(word, &mut script);
    }
    script.extend_from_slice(b" -- \"$@\"\n");
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o700);
    let mut file = options.open(path).await?;
    file.write_all(&script).await?;
    file.flush().await
}

/// Quotes a word for the shell.
fn quote(word: &OsStr, out: &mut Vec<u8>) {
    out.push(b'\'');
    for byte in word.as_bytes() {
        match byte {
            b'\'' => out.extend_from_slice(b"'\\''"),
            other => out.push(*other),
        }
    }
    out.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn paths_with_spaces_and_quotes_reach_the_tap() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("it's a wrapper");
        let (relay, codex) = (Path::new("/bin/echo"), Path::new("/a b/it's"));
        write_wrapper(&path, relay, codex, Path::new("/$r"))
            .await
            .unwrap();
        let mut shell = tokio::process::Command::new("/bin/sh");
        let ran = shell
            .arg(&path)
            .args(["app-server", "-c", "a=\"b c\""])
            .output()
            .await
            .unwrap();
        assert_eq!(
            String::from_utf8(ran.stdout).unwrap(),
            "tap --codex /a b/it's --record /$r -- app-server -c a=\"b c\"\n"
        );
    }
}
