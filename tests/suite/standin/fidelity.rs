//! Bytes pass as they are, however they come, and no stream holds another up.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::support::PATIENCE;
use crate::support::processes::peak_memory;
use crate::support::standin::StandIn;

fn spawn(mut relay: Command) -> Child {
    let relay = relay.stdin(Stdio::piped()).stdout(Stdio::piped());
    relay
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

async fn all(mut from: ChildStdout) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = timeout(PATIENCE, from.read_to_end(&mut bytes)).await;
    read.expect("it ends").unwrap();
    bytes
}

/// Sends `input` in pieces of `piece` bytes to a codex that gives everything back.
async fn echoed(input: &[u8], piece: usize) -> (Vec<u8>, ExitStatus) {
    let place = StandIn::new();
    let mut relay = spawn(place.relay(&place.program("exec cat")));
    let mut stdin = relay.stdin.take().unwrap();
    let write = async {
        for piece in input.chunks(piece) {
            stdin.write_all(piece).await.unwrap();
            stdin.flush().await.unwrap();
        }
        drop(stdin);
    };
    let ((), bytes) = tokio::join!(write, all(relay.stdout.take().unwrap()));
    (bytes, relay.wait().await.unwrap())
}

/// Lines that are no JSON-RPC, or just about.
fn odd_lines() -> Vec<u8> {
    let mut odd = Vec::new();
    odd.extend("\u{FEFF}{\"method\":\"x\"}\r\n\n\r\n \t\n".as_bytes());
    odd.extend("{\"method\":\"é€😀\u{2028}\u{2029}\",\"params\":{}}\n".as_bytes());
    odd.extend(b"\x00\xff\xfe{\"id\":1,\"method\":\"\xc3\x28\"}\n");
    odd.extend(b"{\"id\":1,\"result\":{\"text\":\"a raw\nnewline\"}}\n");
    odd.extend(b"panicked at src/main.rs\n[1,2]\nnull\n{\"id\":1e400,\"id\":\"1\",\"error\":7}\n");
    odd.extend(b"{\"method\":\"last, without a newline\"}");
    odd
}

#[tokio::test]
async fn odd_lines_pass_as_they_are_both_ways() {
    let odd = odd_lines();
    for piece in [1, 7, odd.len()] {
        let (bytes, status) = echoed(&odd, piece).await;
        assert!(bytes == odd, "{}", String::from_utf8_lossy(&bytes));
        assert!(status.success());
    }
}

#[tokio::test]
async fn long_lines_pass_as_they_are_both_ways() {
    let mut lines = Vec::new();
    for mebibytes in [1, 8, 31] {
        lines.extend(b"{\"method\":\"long\",\"params\":{\"text\":\"");
        lines.resize(lines.len() + (mebibytes << 20), b'x');
        lines.extend(b"\"}}\n");
    }
    let (bytes, status) = echoed(&lines, 1 << 20).await;
    assert!(bytes == lines, "{} of {} bytes", bytes.len(), lines.len());
    assert!(status.success());
}

#[tokio::test]
async fn line_over_the_bound_passes_unread() {
    let mut lines = b"{\"method\":\"long\",\"params\":{\"text\":\"".to_vec();
    lines.resize(lines.len() + (65 << 20), b'x');
    lines.extend(b"\"}}\n{\"method\":\"next\"}\n");
    let (bytes, status) = echoed(&lines, 1 << 20).await;
    assert!(bytes == lines, "{} of {} bytes", bytes.len(), lines.len());
    assert!(status.success());
}

#[tokio::test]
async fn line_over_the_bound_that_must_be_read_is_refused_by_its_id() {
    let mut lines = Vec::new();
    for (before, behind) in [("\"id\":\"a\",", ""), ("", ",\"id\":2")] {
        let head = format!("{{{before}\"method\":\"turn/start\",\"params\":{{\"text\":\"");
        lines.extend(head.as_bytes());
        lines.resize(lines.len() + (64 << 20), b'x');
        lines.extend(format!("\"}}{behind}}}\n").as_bytes());
    }
    lines.extend(b"{\"method\":\"next\"}\n");
    let (bytes, status) = echoed(&lines, 1 << 20).await;
    assert!(status.success());
    let text = String::from_utf8(bytes).unwrap();
    let mut lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    // The echo of the last line may come at any time.
    lines.retain(|line| line["method"] != "next");
    let said: Vec<_> = lines
        .iter()
        .map(|line| (line["id"].clone(), line["error"]["code"].clone()))
        .collect();
    let wanted = [serde_json::json!("a"), serde_json::json!(2)];
    assert_eq!(said, wanted.map(|id| (id, serde_json::json!(-32600))));
}

#[tokio::test]
async fn much_on_stderr_before_the_first_line_holds_nobody() {
    let place = StandIn::new();
    let script = "head -c 50000000 /dev/zero | tr '\\0' x >&2; echo first; cat >/dev/null";
    let mut relay = spawn(place.relay(&place.program(script)));
    let mut stderr = relay.stderr.take().unwrap();
    let count = async {
        let (mut piece, mut count) = (vec![0; 1 << 16], 0);
        while count < 50_000_000 {
            count += stderr.read(&mut piece).await.unwrap();
        }
        count
    };
    let mut stdout = relay.stdout.take().unwrap();
    let mut line = [0; 6];
    let first = timeout(PATIENCE, stdout.read_exact(&mut line));
    let (count, first) = tokio::join!(count, first);
    first.expect("codex's first line").unwrap();
    assert_eq!((count, &line), (50_000_000, b"first\n"));
    drop(relay.stdin.take());
    assert!(relay.wait().await.unwrap().success());
}

#[tokio::test]
async fn stderr_that_nobody_reads_holds_no_other_stream() {
    let place = StandIn::new();
    let script = "{ head -c 5000000 /dev/zero >&2; } & exec cat";
    let mut relay = spawn(place.relay(&place.program(script)));
    let mut stdin = relay.stdin.take().unwrap();
    let mut stdout = relay.stdout.take().unwrap();
    for _ in 0..100 {
        stdin.write_all(b"{\"method\":\"x\"}\n").await.unwrap();
        let mut line = [0; 15];
        let read = timeout(PATIENCE, stdout.read_exact(&mut line)).await;
        read.expect("an echo").unwrap();
    }
    drop(relay.stderr.take());
    drop(stdin);
    assert!(relay.wait().await.unwrap().success());
}

#[tokio::test]
async fn both_sides_write_at_once_and_read_later() {
    let place = StandIn::new();
    // Codex says 64 MiB before it reads what the client sends meanwhile.
    let script =
        "head -c 67108864 /dev/zero | tr '\\0\\n' 'x' | fold -w 65535; cat | wc -c > count";
    let mut relay = spawn(place.relay(&place.program(script)));
    let mut stdin = relay.stdin.take().unwrap();
    let line = format!("{}\n", "y".repeat(65_535));
    let write = async {
        for _ in 0..1024 {
            stdin.write_all(line.as_bytes()).await.unwrap();
        }
        drop(stdin);
    };
    let ((), bytes) = tokio::join!(write, all(relay.stdout.take().unwrap()));
    assert_eq!(memchr::memchr_iter(b'x', &bytes).count(), 64 << 20);
    assert!(relay.wait().await.unwrap().success());
    let count = std::fs::read_to_string(place.folder().join("count")).unwrap();
    assert_eq!(count.trim(), (64 << 20).to_string());
}

#[tokio::test]
async fn client_that_stops_reading_slows_codex_and_takes_no_memory() {
    let place = StandIn::new();
    let script = "line=$(head -c 65000 /dev/zero | tr '\\0' z); n=0
while [ $n -lt 2000 ]; do echo $line; n=$((n+1)); echo $n > said; done; cat >/dev/null";
    let mut relay = spawn(place.relay(&place.program(script)));
    let pid = relay.id().unwrap();
    let said = || {
        let said = std::fs::read_to_string(place.folder().join("said")).unwrap_or_default();
        said.trim().parse::<u32>().ok()
    };
    // Nobody reads: codex comes to a halt, the same number twice with time between.
    let mut last = None;
    let halt = crate::support::eventually("codex is slowed", || {
        let now = said().filter(|now| *now > 0);
        let is_halted = now.is_some() && now == last;
        last = now;
        std::thread::sleep(Duration::from_millis(300));
        is_halted.then_some(now)
    });
    let halted = halt.await.unwrap();
    assert!(halted < 2000, "{halted}");
    assert!(peak_memory(pid) < 64 << 20, "{}", peak_memory(pid));
    // All of it is read before stdin ends: from then on codex has five seconds.
    let mut stdout = relay.stdout.take().unwrap();
    let mut bytes = vec![0; 2000 * 65_001];
    AsyncReadExt::read_exact(&mut stdout, &mut bytes)
        .await
        .unwrap();
    assert_eq!(memchr::memchr_iter(b'\n', &bytes).count(), 2000);
    drop(relay.stdin.take());
    assert_eq!(all(stdout).await, b"");
    assert!(relay.wait().await.unwrap().success());
}

/// Closes a relay's stdin and holds its stdout unread; gives how it ended, and its log.
async fn leaves_unread(script: &str, input: &[u8]) -> (ExitStatus, String) {
    let place = StandIn::new();
    let mut relay = spawn(place.relay(&place.program(script)));
    let mut stdin = relay.stdin.take().unwrap();
    // What a codex that doesn't read leaves no room for is never taken.
    let _ = timeout(Duration::from_secs(2), stdin.write_all(input)).await;
    drop(stdin);
    let status = timeout(2 * PATIENCE, relay.wait()).await;
    let status = status.expect("the relay goes").unwrap();
    let mut said = String::new();
    let mut stderr = relay.stderr.take().unwrap();
    stderr.read_to_string(&mut said).await.unwrap();
    (status, said)
}

#[tokio::test]
async fn client_that_leaves_and_holds_stdout_unread_keeps_nobody_for_ever() {
    // More than its pipe holds, less than what the relay takes on top.
    let last_words = "cat >/dev/null; head -c 500000 /dev/zero | tr '\\0' '\\n'; exit 3";
    let flood = "trap '' PIPE; head -c 4000000 /dev/zero | tr '\\0' '\\n'; sleep 1000";
    let much = vec![b'\n'; 4 << 20];
    let (first, second, third, fourth) = tokio::join!(
        // It is gone itself, its words are waited for, and then no longer.
        leaves_unread(last_words, b"{}\n"),
        // It heeds neither the end of its stdin nor that of its stdout, but a TERM.
        leaves_unread(flood, b"{}\n"),
        // Between two closed doors: it reads only what its own words leave room for.
        leaves_unread("exec cat", &much),
        // It never reads.
        leaves_unread("sleep 1000", &much),
    );
    assert_eq!(first.0.code(), Some(3));
    assert_eq!(second.0.code(), Some(128 + 15));
    assert_eq!(fourth.0.code(), Some(128 + 15));
    for said in [first.1, second.1] {
        assert!(said.contains("takes nothing of our stdout"), "{said}");
    }
    assert!(third.1.contains("takes nothing"), "{}", third.1);
    assert!(fourth.1.contains("codex takes nothing"), "{}", fourth.1);
}

#[tokio::test]
async fn client_that_leaves_and_reads_late_gets_everything() {
    let place = StandIn::new();
    let last_words = "cat >/dev/null; head -c 3000000 /dev/zero | tr '\\0' '\\n'; exit 3";
    let mut relay = spawn(place.relay(&place.program(last_words)));
    drop(relay.stdin.take());
    // Longer than codex has to end, while it waits for somebody to read.
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(all(relay.stdout.take().unwrap()).await.len(), 3_000_000);
    assert_eq!(relay.wait().await.unwrap().code(), Some(3));
}
