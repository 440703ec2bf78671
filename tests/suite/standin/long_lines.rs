//! What a line of many MiB costs: the memory of one copy while it is under way, and none
//! afterwards.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::time::timeout;

use crate::support::processes::{peak_memory, resident_memory};
use crate::support::standin::StandIn;
use crate::support::{PATIENCE, eventually};

const MIB: usize = 1 << 20;

/// What the relay takes without any line, and may take beside one, in a build for tests as well.
const BESIDE: u64 = 28 << 20;

/// A line whose `...` stands for that many bytes of `filling`.
fn line(shape: &str, filling: &str, bytes: usize) -> Vec<u8> {
    let (before, behind) = shape.split_once("...").unwrap();
    let filling = filling.repeat(bytes / filling.len());
    [before, &filling, behind, "\n"].concat().into_bytes()
}

/// Reads each line whole and gives its beginning back; writes a long one when it is asked to.
const READER: &str = r#"exec perl -ne '
  $| = 1;
  chomp;
  print substr($_, 0, 300), "\n";
  print "x" x 33554432, "\n" if /^.{11}emit/;
'"#;

fn lines() -> [Vec<u8>; 11] {
    let start = |params: &str, filling: &str, mebibytes: usize| {
        let shape = format!(r#"{{"id":1,"method":"thread/start","params":{{{params}}}}}"#);
        line(&shape, filling, mebibytes * MIB)
    };
    let set = r#"{"id":1,"method":"relay/context/set","params":{"scope":"thread","text":"..."}}"#;
    [
        // The texts of clients, with an edit in front of them.
        start(r#""developerInstructions":"...""#, "x", 32),
        start(r#""developerInstructions":"...""#, "\\n", 8),
        // The relay's own member is taken out of it.
        start(r#""relay":{"kind":"user"},"config":{"a":"..."}"#, "x", 32),
        // Ids and names of no use.
        start(r#""cwd":"...""#, "x", 32),
        // Many small things, each of which a tree would make large.
        start(r#""dynamicTools":[...0]"#, r#"{"name":"x"},"#, 6),
        start(r#""environments":[...0]"#, "0,", 6),
        // Answered by the relay itself.
        start(r#""relay":{"context":{"text":"..."}}"#, "x", 32),
        line(set, "x", 32 * MIB),
        // What it has nothing to do with.
        line(r#"{"method":"n","params":{"text":"..."}}"#, "x", 32 * MIB),
        line("...", "x", 32 * MIB),
        // The other way.
        line(r#"{"method":"emit..."}"#, "x", 1),
    ]
}

#[tokio::test]
async fn long_line_takes_one_copy_and_gives_it_back() {
    let place = StandIn::new();
    let mut relay = place.relay(&place.program(READER));
    let mut relay = relay
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let pid = relay.id().unwrap();
    let mut stdin = relay.stdin.take().unwrap();
    let mut stdout = BufReader::new(relay.stdout.take().unwrap());
    let mut next = async || {
        let mut got = Vec::new();
        // What the relay asks codex itself comes back as well.
        while got.is_empty() || got.starts_with(b"{\"id\":\"codex-relay-") {
            got.clear();
            stdout.read_until(b'\n', &mut got).await.unwrap();
        }
        got
    };
    for line in lines() {
        let shown = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
        let all = async { tokio::join!(stdin.write_all(&line), next()) };
        let (sent, got) = timeout(2 * PATIENCE, all).await.expect(&shown);
        sent.unwrap();
        let is_refused = memchr::memmem::find(&got, b"context_too_large").is_some();
        let gives = [&b"relay/context/set"[..], b"\"relay\":{\"context\""];
        let head = &line[..line.len().min(100)];
        let is_given = gives
            .iter()
            .any(|it| memchr::memmem::find(head, it).is_some());
        assert_eq!(is_refused, is_given, "{shown}");
        if line.starts_with(b"{\"method\":\"emit") {
            let got = timeout(2 * PATIENCE, next()).await.expect(&shown);
            assert_eq!(got.len(), 32 * MIB + 1);
        }
        let peak = peak_memory(pid);
        assert!(peak < (32 << 20) + BESIDE, "{shown}: {} MiB", peak >> 20);
        eventually("the memory is given back", || {
            (resident_memory(pid) < BESIDE).then_some(())
        })
        .await;
    }
    drop(stdin);
    assert!(relay.wait().await.unwrap().success());
}
