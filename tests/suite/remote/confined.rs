//! A machine that gives the relay little: no terminal, no home, no room, nowhere to write.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::blocks::files_before;
use crate::support::case::Case;
use crate::support::client::Client;
use crate::support::launch::Launch;
use crate::support::needs_superuser;
use crate::support::persona::{self, MARKER};
use crate::support::stage::Stage;
use crate::support::story;

async fn set_stage(case: Case) -> Stage {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    stage.write(
        "BOOTSTRAP.md",
        "Gr\u{fc}\u{df} the keeper \u{1f9ed} first.\n",
    );
    stage
}

/// Runs all that a session is made of, and asserts that nothing is missing.
async fn assert_all_works(stage: &Stage, launch: Launch<'_>) {
    let (mut client, thread) = launch.with_thread().await;
    for prompt in ["[commands 1]", "again"] {
        let turn = client.turn(&thread, prompt).await;
        assert_eq!(turn["status"], "completed", "{turn}\n{}", client.stderr());
    }
    story::spawn_child(&mut client, &thread).await;
    story::compact(&mut client, &thread).await;
    assert!(client.close().await.success());
    for request in stage.endpoint.model_requests() {
        // A prewarm may come before its thread is known.
        if request.purpose().as_deref() == Some("prewarm") {
            continue;
        }
        let is_parent = request.purpose().as_deref() == Some("turn");
        let text = request.instructions().unwrap_or_default();
        assert_eq!(
            persona::copies(&request, MARKER),
            usize::from(is_parent),
            "{request:?}"
        );
        assert!(!is_parent || text.contains("caf\u{e9} \u{1f9ed}"), "{text}");
    }
    assert_eq!(
        files_before(stage, &thread, "[commands 1]"),
        [["BOOTSTRAP.md"]]
    );
}

async fn little_environment_is_enough(case: Case) {
    let stage = set_stage(case).await;
    let folder = stage.home.with_file_name("bin");
    fs::create_dir(&folder).unwrap();
    symlink(&stage.codex.native, folder.join("codex")).unwrap();
    let launch = stage.relay().sought().without_env("HOME");
    let launch = launch.env("LC_ALL", "C").env("PATH", folder);
    assert_all_works(&stage, launch).await;
}
matrix!(little_environment_is_enough: transports);

async fn only_the_home_of_codex_has_to_be_writable(case: Case) {
    needs_superuser();
    let stage = set_stage(case).await;
    let script = include_str!("read_only.sh");
    let home = stage.codex_home.to_str().unwrap().to_owned();
    let words = [
        "unshare",
        "--mount",
        "--",
        "sh",
        "-c",
        script,
        "read-only",
        &home,
    ];
    // Codex's database needs a place for temporary files, too.
    let launch = stage.relay().env("TMPDIR", &stage.codex_home);
    assert_all_works(&stage, launch.within(words)).await;
}
matrix!(only_the_home_of_codex_has_to_be_writable: versions);

async fn log_that_has_no_room_holds_nothing_up(case: Case) {
    let stage = set_stage(case).await;
    let launch = stage.relay().option("--log", "trace");
    assert_all_works(&stage, launch.option("--log-file", "/dev/full")).await;
    let stage = set_stage(case).await;
    let launch = stage
        .relay()
        .option("--log", "trace")
        .env("RUST_LOG", "info");
    let words = ["sh", "-c", "exec \"$@\" 2>/dev/full", "full"];
    assert_all_works(&stage, launch.within(words)).await;
}
matrix!(log_that_has_no_room_holds_nothing_up: versions);

async fn full_disk_is_what_it_is_without_the_relay(case: Case) {
    needs_superuser();
    let with_relay = set_stage(case).await;
    let without = set_stage(case).await;
    let relayed = without_room(&with_relay, with_relay.relay()).await;
    let plain = without_room(&without, without.plain()).await;
    assert_eq!(relayed, plain);
    for request in with_relay.endpoint.model_requests() {
        let is_turn = request.purpose().as_deref() == Some("turn");
        let copies = persona::copies(&request, MARKER);
        assert!(!is_turn || copies == 1, "{request:?}");
    }
}
matrix!(full_disk_is_what_it_is_without_the_relay: versions);

/// Runs a turn with room, one without and one with room again, and says how they ended.
async fn without_room(stage: &Stage, launch: Launch<'_>) -> Vec<Value> {
    let home = stage.codex_home.to_str().unwrap();
    let words = [
        "unshare",
        "--mount",
        "--",
        "sh",
        "-c",
        include_str!("small_disk.sh"),
        "small",
        home,
    ];
    let (mut client, thread) = launch.within(words).with_thread().await;
    let mut ends = vec![end(&mut client, &thread, "one").await];
    let ballast = fill(&client, stage);
    ends.push(end(&mut client, &thread, "two").await);
    fs::remove_file(ballast).unwrap();
    ends.push(end(&mut client, &thread, "three").await);
    assert!(client.stderr().contains("No space left"), "codex noticed");
    assert!(client.close().await.success());
    ends
}

async fn end(client: &mut Client, thread: &str, prompt: &str) -> Value {
    let turn = client.turn(thread, prompt).await;
    json!([
        turn["status"],
        turn["error"]["message"],
        turn["error"]["codexErrorInfo"]
    ])
}

/// Fills codex's disk, which only codex has.
fn fill(client: &Client, stage: &Stage) -> PathBuf {
    let root = PathBuf::from(format!("/proc/{}/root", client.pid()));
    let path = root
        .join(stage.codex_home.strip_prefix("/").unwrap())
        .join("ballast");
    let mut file = File::create(&path).unwrap();
    for size in [1 << 16, 1 << 9, 1] {
        while file.write_all(&vec![7; size]).is_ok() {}
    }
    path
}
