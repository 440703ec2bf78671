//! Developer instructions of threads that work on another machine.

use std::fs;

use serde_json::json;

use super::bridge::Bridge;
use super::far::Far;
use super::model::FarModel;
use super::placement::thread_there;
use crate::support::case::Case;
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::needs_superuser;
use crate::support::orders::{replaced, told, turn};
use crate::support::persona::{self, MARKER};
use crate::support::stage::Stage;

/// Runs a turn that names no machine, and whose command must run on the thread's.
async fn work(client: &mut Client, thread: &str, far: &Far, prompt: &str) {
    for name in ["looking", "go", "edited"] {
        // Left by the turn before, if there was one.
        let _ = fs::remove_file(far.work().join(name));
    }
    let from = client.inbox.len();
    client.start_turn(thread, prompt).await;
    let looking = far.work().join("looking");
    eventually("a command runs there", || looking.exists().then_some(())).await;
    fs::write(far.work().join("go"), "").unwrap();
    let turn = client.turn_end(from, thread).await;
    assert_eq!(turn["status"], "completed", "{turn}\n{}", client.stderr());
    let edited = fs::read_to_string(far.work().join("edited")).unwrap();
    assert_eq!(edited, "by apply_patch\n");
}

async fn thread_keeps_its_machine_when_its_policy_is_renewed(case: Case) {
    needs_superuser();
    let stage = Stage::with(case, FarModel::default()).await;
    persona::write(&stage);
    let mut far = Far::new(&stage.codex, stage.home.with_file_name("far"));
    far.start().await;
    let bridge = Bridge::start().await;
    bridge.lead(Some(far.door()));
    let mut client = stage.with_policy("Policy-old-52c1").start().await;
    let thread = thread_there(&mut client, &bridge).await;
    work(&mut client, &thread, &far, "[far] one").await;
    stage.policy("Policy-new-8a3e");
    for prompt in ["[far] two", "[far] three"] {
        work(&mut client, &thread, &far, prompt).await;
    }
    assert!(client.close().await.success());
    let two = stage.asked(&thread, "[far] two");
    let messages = replaced(&two);
    assert_eq!(messages.len(), 1);
    assert!(messages[0].contains("Policy-new-8a3e"));
    for prompt in ["[far] one", "[far] two", "[far] three"] {
        assert_eq!(persona::copies(&stage.asked(&thread, prompt), MARKER), 1);
    }
    let passed = bridge.record().messages.concat();
    let is_there = |text: &str| memchr::memmem::find(&passed, text.as_bytes()).is_some();
    assert!(
        is_there("process/start") && !is_there("Policy-"),
        "it stays on this side"
    );
}
matrix!(thread_keeps_its_machine_when_its_policy_is_renewed: versions);

/// The folder of a thread there is no folder here, whatever it is called.
async fn agents_file_is_copied_for_a_thread_there(case: Case) {
    needs_superuser();
    let stage = Stage::with(case, FarModel::default()).await;
    stage.write("AGENTS.md", &format!("{AGENTS}\n"));
    let mut far = Far::new(&stage.codex, stage.home.with_file_name("far"));
    far.start().await;
    let bridge = Bridge::start().await;
    bridge.lead(Some(far.door()));
    let mut client = stage.relay().start().await;
    let add = json!({"environmentId": "far", "execServerUrl": bridge.url()});
    client.ok("environment/add", add).await;
    let workspace = stage.workspace.to_str().unwrap();
    let far_away = json!({"environmentId": "far", "cwd": "/work"});
    let near = json!({"environmentId": "local", "cwd": workspace});
    for (environments, is_copied) in [
        (json!([far_away]), true),
        (json!([near]), false),
        // Codex reads the file of either.
        (json!([far_away, near]), false),
    ] {
        let start = json!({"cwd": workspace, "environments": environments});
        let thread = client.thread("thread/start", start).await;
        turn(&mut client, &thread, "one").await;
        assert_told_once(&stage, &thread, "one", is_copied);
        if is_copied {
            continue;
        }
        // It goes there, and stays.
        let move_there = json!({"environments": [far_away]});
        let moved = client.turn_with(&thread, "two", move_there).await;
        assert_eq!(moved["status"], "completed", "{moved}");
        turn(&mut client, &thread, "three").await;
        // Told once, in the turn that went there.
        for prompt in ["two", "three"] {
            let messages = replaced(&stage.asked(&thread, prompt));
            assert!(
                messages.len() == 1 && messages[0].contains(AGENTS),
                "{messages:?}"
            );
        }
    }
    assert!(client.close().await.success());
}
matrix!(agents_file_is_copied_for_a_thread_there: http);

/// Asserts that the model is told the workspace's AGENTS.md once, by the relay's copy or by codex.
fn assert_told_once(stage: &Stage, thread: &str, prompt: &str, is_copied: bool) {
    let request = stage.asked(thread, prompt);
    let copies = told(&request, "<agent_workspace_document").len();
    assert_eq!(copies, usize::from(is_copied), "{request:?}");
    assert_eq!(persona::copies(&request, AGENTS), 1, "{request:?}");
}

const AGENTS: &str = "Agents-mark-4b1f";
