//! The three streams on the relay's binary, codex played by small shell programs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::support::PATIENCE;
use crate::support::processes::peak_memory;

/// A relay in front of a shell script.
struct Relayed {
    child: Child,
    _folder: TempDir,
}

fn relay(script: &str) -> Relayed {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let codex = folder.path().join("codex");
    fs::write(&codex, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&codex, fs::Permissions::from_mode(0o755)).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_codex-relay"))
        .arg("--codex")
        .arg(&codex)
        .args(["--context", "none", "app-server"])
        .env_clear()
        .env("PATH", env!("PATH"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    Relayed {
        child,
        _folder: folder,
    }
}

impl Relayed {
    /// Sends `input`, closes stdin, and gives stdout, stderr and the exit code.
    async fn run(mut self, input: Vec<u8>) -> (Vec<u8>, Vec<u8>, Option<i32>) {
        let mut stdin = self.child.stdin.take().unwrap();
        let send = async move {
            // A program that ends early doesn't read it all.
            let _ = stdin.write_all(&input).await;
        };
        let mut stdout = self.child.stdout.take().unwrap();
        let mut stderr = self.child.stderr.take().unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let all = async {
            let ((), out_read, err_read) = tokio::join!(
                send,
                stdout.read_to_end(&mut out),
                stderr.read_to_end(&mut err)
            );
            out_read.unwrap();
            err_read.unwrap();
            self.child.wait().await.unwrap()
        };
        let status = timeout(PATIENCE, all).await.expect("an end in time");
        (out, err, status.code())
    }
}

/// Asserts without printing megabytes.
fn assert_same(got: &[u8], expected: &[u8]) {
    assert_eq!(got.len(), expected.len());
    assert!(got == expected, "the bytes differ");
}

#[tokio::test]
async fn lines_that_are_not_ours_pass_byte_for_byte_both_ways() {
    let odd: &[&[u8]] = &[
        b"{\"method\":\"x\",\"params\":{\"n\":1e400,\"n\":12345678901234567890,\"s\":\"\\ud83d\"}}\n",
        b"\n",
        b"\r\n",
        b"  \n",
        b"not json\r\n",
        b"\x00\xff\xfe\n",
        b"\xef\xbb\xbf{\"id\":1}\n",
        "{\"s\":\"\u{2028}\u{1F600}\"}\n".as_bytes(),
        b"{\"id\":1,\"method\":\"turn/start\"\n",
        b"[{\"id\":1,\"method\":\"turn/start\",\"params\":{}}]\n",
        b"{\"id\":9,\"result\":{}}\n",
        b"{ \"method\" : \"initialized\" }\n",
        b"the last line has no newline",
    ];
    let all = odd.concat();
    let (out, _, code) = relay("exec cat").run(all.clone()).await;
    assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(&all));
    assert_same(&out, &all);
    assert_eq!(code, Some(0));
}

#[tokio::test]
async fn lines_of_every_size_pass() {
    for size in [1 << 20, 8 << 20, 64 << 20, (64 << 20) + 1, 70 << 20] {
        let mut line = b"{\"id\":7,\"result\":\"".to_vec();
        line.resize(size - 3, b'x');
        line.extend_from_slice(b"\"}\n");
        line.extend_from_slice(b"{\"short\":1}\n");
        let (out, _, code) = relay("exec cat").run(line.clone()).await;
        assert_same(&out, &line);
        assert_eq!(code, Some(0));
    }
}

#[tokio::test]
async fn bytes_that_come_one_by_one_are_the_same_lines() {
    let text = "{\"a\":\"\u{1F600}\"}\r\n\u{e9}".as_bytes();
    let mut relayed = relay("exec cat");
    let mut stdin = relayed.child.stdin.take().unwrap();
    let mut stdout = relayed.child.stdout.take().unwrap();
    for byte in text {
        stdin.write_all(&[*byte]).await.unwrap();
        stdin.flush().await.unwrap();
        tokio::task::yield_now().await;
    }
    drop(stdin);
    let mut out = Vec::new();
    timeout(PATIENCE, stdout.read_to_end(&mut out))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(out, text);
}

#[tokio::test]
async fn last_words_of_a_codex_that_ends_at_once_arrive() {
    let (out, err, code) = relay("printf 'a\\nlast'; printf 'e' >&2; exit 3")
        .run(Vec::new())
        .await;
    assert_eq!(
        (out.as_slice(), err.as_slice(), code),
        (&b"a\nlast"[..], &b"e"[..], Some(3))
    );
    let (out, _, code) = relay("head -c 3000000 /dev/zero; kill -9 $$")
        .run(Vec::new())
        .await;
    assert_same(&out, &vec![0; 3_000_000]);
    assert_eq!(code, Some(137));
}

#[tokio::test]
async fn flood_on_stderr_holds_nothing_up() {
    let script = "head -c 50000000 /dev/zero >&2; exec cat";
    let (out, err, code) = relay(script).run(b"{\"id\":1}\n".to_vec()).await;
    assert_eq!((out.as_slice(), code), (&b"{\"id\":1}\n"[..], Some(0)));
    assert_same(&err, &vec![0; 50_000_000]);
}

#[tokio::test]
async fn stderr_that_nobody_reads_holds_up_no_other_stream() {
    let mut relayed = relay("head -c 10000000 /dev/zero >&2 & exec cat");
    let mut stdin = relayed.child.stdin.take().unwrap();
    let mut stdout = relayed.child.stdout.take().unwrap();
    for round in 0..100 {
        let line = format!("{{\"id\":{round}}}\n");
        stdin.write_all(line.as_bytes()).await.unwrap();
        let mut got = vec![0; line.len()];
        timeout(PATIENCE, stdout.read_exact(&mut got))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(got, line.as_bytes());
    }
}

#[tokio::test]
async fn client_that_does_not_read_slows_codex_and_loses_nothing() {
    let mut relayed =
        relay("head -c 64000000 /dev/zero | tr '\\0' 'x' | fold -w 1000; echo; cat >/dev/null");
    let mut stdin = relayed.child.stdin.take().unwrap();
    let mut stdout = relayed.child.stdout.take().unwrap();
    // The other direction goes on: 64 MB up while nothing is read.
    let line = [vec![b'y'; 999], vec![b'\n']].concat();
    let mut first = [0];
    timeout(PATIENCE, stdout.read_exact(&mut first))
        .await
        .unwrap()
        .unwrap();
    let send = async {
        for _ in 0..64_000 {
            stdin.write_all(&line).await.unwrap();
        }
        drop(stdin);
    };
    let mut out = first.to_vec();
    let ((), read) = tokio::join!(send, stdout.read_to_end(&mut out));
    read.unwrap();
    // 64,000 lines of 1,000 characters, the last of them ended by the echo.
    let expected = [vec![b'x'; 1000], vec![b'\n']].concat().repeat(64_000);
    assert_same(&out, &expected);
}

#[tokio::test]
async fn memory_stays_flat_while_the_client_does_not_read() {
    let mut relayed = relay("yes 0123456789012345678901234567890123456789 | head -c 200000000");
    let pid = relayed.child.id().unwrap();
    let mut stdout = relayed.child.stdout.take().unwrap();
    let mut most = vec![0; 199_000_000];
    let read = timeout(PATIENCE, stdout.read_exact(&mut most)).await;
    read.expect("most of it in time").unwrap();
    // Before the last byte is read the process can't have ended.
    let peak = peak_memory(pid);
    let mut rest = Vec::new();
    let read = timeout(PATIENCE, stdout.read_to_end(&mut rest)).await;
    assert_eq!(read.expect("the rest in time").unwrap(), 1_000_000);
    assert!(peak < 64 << 20, "{peak} bytes at the most");
}
