//! AGENTS.md of the workspace: a copy stands where codex itself doesn't show the file, and only there.

use std::fs;

use codex_relay::commands::witness::Recorded;
use serde_json::{Value, json};

use super::policy::OLD;
use super::renewals::turn_of_kind;
use crate::support::case::Case;
use crate::support::client::Client;
use crate::support::launch::Launch;
use crate::support::orders::{replaced, told, turn};
use crate::support::persona::copies;
use crate::support::stage::Stage;
use crate::support::story;

/// What the file says.
pub(super) const AGENTS: &str = "Agents-mark-4b1f";

async fn agents_file_is_copied_where_codex_does_not_find_it(case: Case) {
    let stage = Stage::set(case).await;
    stage.write("AGENTS.md", &format!("{AGENTS}\n"));
    let mut client = stage.relay().start().await;
    let elsewhere = client.thread("thread/start", json!({})).await;
    let workspace = stage.workspace.display().to_string();
    let inside = json!({"cwd": workspace});
    let inside = client.thread("thread/start", inside).await;
    let without = json!({"cwd": workspace, "environments": []});
    let without = client.thread("thread/start", without).await;
    for thread in [&elsewhere, &inside, &without] {
        turn(&mut client, thread, "one").await;
    }
    turn_of_kind(&mut client, &elsewhere, "message", "message-only").await;
    turn(&mut client, &elsewhere, "two").await;
    stage.write("AGENTS.md", "Another-mark-9e37\n");
    turn(&mut client, &elsewhere, "three").await;
    turn(&mut client, &without, "three").await;
    assert!(client.close().await.success());
    let copy = |request: &Recorded| told(request, "<agent_workspace_document").len();
    for (thread, is_copied) in [(&elsewhere, 1), (&inside, 0), (&without, 1)] {
        let one = stage.asked(thread, "one");
        assert_eq!((copy(&one), copies(&one, AGENTS)), (is_copied, 1));
    }
    let message = replaced(&stage.asked(&elsewhere, "message"));
    assert_eq!(message.len(), 1);
    assert!(!message[0].contains(AGENTS));
    let two = replaced(&stage.asked(&elsewhere, "two"));
    assert!(two.len() == 2 && two[1].contains(AGENTS), "{two:?}");
    for (thread, count) in [(&elsewhere, 3), (&without, 1)] {
        let three = replaced(&stage.asked(thread, "three"));
        assert_eq!(three.len(), count);
        let last = three.last().unwrap();
        assert!(last.contains("Another-mark-9e37") && !last.contains(AGENTS));
    }
}
matrix!(agents_file_is_copied_where_codex_does_not_find_it: http);

async fn agents_file_for_which_codex_has_no_room_is_copied_from_the_start(case: Case) {
    for is_of_user in [false, true] {
        let stage = Stage::set(case).await;
        stage.write("AGENTS.md", &format!("{AGENTS}\n"));
        let cwd = stage.workspace.display().to_string();
        let mut start = json!({"cwd": cwd});
        if is_of_user {
            let path = stage.codex_home.join("config.toml");
            let text = fs::read_to_string(&path).unwrap();
            fs::write(path, format!("project_doc_max_bytes = 0\n{text}")).unwrap();
        } else {
            start["config"] = json!({"project_doc_max_bytes": 0});
        }
        let mut client = stage.with_policy(OLD).start().await;
        let thread = client.thread("thread/start", start).await;
        turn(&mut client, &thread, "one").await;
        turn(&mut client, &thread, "two").await;
        assert!(client.close().await.success());
        for prompt in ["one", "two"] {
            let request = stage.asked(&thread, prompt);
            let counts = [AGENTS, OLD].map(|word| copies(&request, word));
            assert_eq!(counts, [1, 1], "{prompt}, {is_of_user}");
            assert_eq!(replaced(&request), [""; 0]);
        }
    }
}
matrix!(agents_file_for_which_codex_has_no_room_is_copied_from_the_start: http);

async fn agents_file_is_never_there_twice(case: Case) {
    let stage = Stage::set(case).await;
    stage.write("AGENTS.md", &format!("{AGENTS}\n"));
    let (mut client, thread) = stage.relay().with_thread().await;
    turn(&mut client, &thread, "elsewhere").await;
    // Codex looks for documents again where a turn works elsewhere.
    let inside = json!({"cwd": stage.workspace.display().to_string()});
    let done = client.turn_with(&thread, "inside", inside).await;
    assert_eq!(done["status"], "completed", "{done}");
    turn(&mut client, &thread, "still inside").await;
    story::compact(&mut client, &thread).await;
    turn(&mut client, &thread, "compacted").await;
    assert!(client.close().await.success());
    for prompt in ["inside", "still inside"] {
        let said = replaced(&stage.asked(&thread, prompt));
        assert_eq!(said.len(), 1, "{prompt}");
        assert!(said[0].starts_with("# Developer instructions withdrawn"));
    }
    let compacted = stage.asked(&thread, "compacted");
    assert_eq!(copies(&compacted, AGENTS), 1);
    assert_eq!(told(&compacted, AGENTS), [""; 0], "codex's own copy");
}
matrix!(agents_file_is_never_there_twice: http);

/// Profiles of permissions: `blind` gives no access to the workspace, `open` reads everything.
pub(super) fn write_profiles(stage: &Stage, default: &str) {
    let path = stage.codex_home.join("config.toml");
    let text = fs::read_to_string(&path).unwrap();
    let profiles = "[permissions.blind.filesystem]\n\":minimal\" = \"read\"\n\
        [permissions.open.filesystem]\n\":root\" = \"read\"\n";
    let text = format!("default_permissions = \"{default}\"\n{text}\n{profiles}");
    fs::write(path, text).unwrap();
}

/// A client with a thread that works in the workspace.
pub(super) async fn in_workspace(
    launch: Launch<'_>,
    stage: &Stage,
    more: Value,
) -> (Client, String) {
    let mut client = launch.start().await;
    let mut start = json!({"cwd": stage.workspace.display().to_string()});
    let members = start.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    let thread = client.thread("thread/start", start).await;
    (client, thread)
}

/// The profile of permissions that is in force in a thread.
pub(super) async fn profile(client: &mut Client, thread: &str) -> Value {
    let resume = json!({"threadId": thread, "excludeTurns": true});
    let answer = client.ok("thread/resume", resume).await;
    answer["activePermissionProfile"]["id"].clone()
}

/// Whether codex, and whether the relay, has the model go by the file: what each said last counts.
pub(super) fn shown(request: &Recorded) -> (bool, bool) {
    let is_codexs = |(role, text): &&(String, String)| {
        role == "user" && text.starts_with("# AGENTS.md instructions")
    };
    let texts = crate::support::orders::texts(request);
    let codexs = texts.iter().rev().find(is_codexs);
    let ours = told(request, "<agent_workspace_document");
    let last = replaced(request).pop();
    let ours = last.map_or(!ours.is_empty(), |it| it.contains(AGENTS));
    (codexs.is_some_and(|(_, text)| text.contains(AGENTS)), ours)
}

async fn profile_that_hides_the_file_gets_a_copy(case: Case) {
    let stage = Stage::set(case).await;
    stage.write("AGENTS.md", &format!("{AGENTS}\n"));
    write_profiles(&stage, ":workspace");
    for ephemeral in [false, true] {
        let start = json!({"permissions": "blind", "ephemeral": ephemeral});
        let (mut client, thread) = in_workspace(stage.relay(), &stage, start).await;
        turn(&mut client, &thread, "one").await;
        turn(&mut client, &thread, "two").await;
        if !ephemeral {
            assert_eq!(profile(&mut client, &thread).await, "blind");
            story::compact(&mut client, &thread).await;
            turn(&mut client, &thread, "three").await;
            assert_eq!(shown(&stage.asked(&thread, "three")), (false, true));
            assert_eq!(copies(&stage.asked(&thread, "three"), AGENTS), 1);
        }
        assert!(client.close().await.success());
        for prompt in ["one", "two"] {
            assert_eq!(shown(&stage.asked(&thread, prompt)), (false, true));
            assert_eq!(copies(&stage.asked(&thread, prompt), AGENTS), 1);
        }
    }
}
matrix!(profile_that_hides_the_file_gets_a_copy: http);

async fn copy_goes_with_the_profile_of_a_turn(case: Case) {
    let stage = Stage::set(case).await;
    stage.write("AGENTS.md", &format!("{AGENTS}\n"));
    write_profiles(&stage, "blind");
    let (mut client, thread) = in_workspace(stage.relay(), &stage, json!({})).await;
    let steps = [
        ("as configured", None, (false, true)),
        ("open", Some("open"), (true, false)),
        ("still open", None, (true, false)),
        ("blind", Some("blind"), (false, true)),
        ("still blind", None, (false, true)),
        ("built in", Some(":workspace"), (true, false)),
        ("open again", Some("open"), (true, false)),
        ("blind again", Some("blind"), (false, true)),
    ];
    for (prompt, permissions, _) in steps {
        let more = permissions.map_or_else(|| json!({}), |it| json!({"permissions": it}));
        let done = client.turn_with(&thread, prompt, more).await;
        assert_eq!(done["status"], "completed", "{prompt}: {done}");
        if let Some(chosen) = permissions {
            assert_eq!(profile(&mut client, &thread).await, chosen, "{prompt}");
        }
    }
    let policy = json!({"sandboxPolicy": {"type": "readOnly"}});
    client.turn_with(&thread, "policy", policy).await;
    assert_eq!(profile(&mut client, &thread).await, Value::Null);
    let update = json!({"threadId": thread, "permissions": "blind"});
    client.ok("thread/settings/update", update).await;
    turn(&mut client, &thread, "updated").await;
    assert!(client.close().await.success());
    for (prompt, _, is_shown) in steps {
        assert_eq!(shown(&stage.asked(&thread, prompt)), is_shown, "{prompt}");
    }
    assert_eq!(shown(&stage.asked(&thread, "policy")), (true, false));
    assert_eq!(shown(&stage.asked(&thread, "updated")), (false, true));
}
matrix!(copy_goes_with_the_profile_of_a_turn: http);

async fn copy_goes_with_the_environments_of_a_turn(case: Case) {
    let stage = Stage::set(case).await;
    stage.write("AGENTS.md", &format!("{AGENTS}\n"));
    let (mut client, thread) = in_workspace(stage.relay(), &stage, json!({})).await;
    let folder = stage.workspace.display().to_string();
    let here = json!([{"environmentId": "local", "cwd": folder}]);
    for (prompt, environments) in [("none", json!([])), ("here", here)] {
        let more = json!({"environments": environments});
        let done = client.turn_with(&thread, prompt, more).await;
        assert_eq!(done["status"], "completed", "{done}");
    }
    assert!(client.close().await.success());
    assert_eq!(shown(&stage.asked(&thread, "none")), (false, true));
    assert_eq!(shown(&stage.asked(&thread, "here")), (true, false));
}
matrix!(copy_goes_with_the_environments_of_a_turn: http);

async fn documents_that_are_switched_off_are_copied(case: Case) {
    let stage = Stage::set(case).await;
    stage.write("AGENTS.md", &format!("{AGENTS}\n"));
    let off = json!({"config": {"project_doc_max_bytes": 0}});
    let (mut client, thread) = in_workspace(stage.relay(), &stage, off).await;
    turn(&mut client, &thread, "one").await;
    assert!(client.close().await.success());
    assert_eq!(shown(&stage.asked(&thread, "one")), (false, true));
}
matrix!(documents_that_are_switched_off_are_copied: http);

async fn document_that_the_user_overrides_is_left_so(case: Case) {
    let stage = Stage::set(case).await;
    stage.write("AGENTS.md", &format!("{AGENTS}\n"));
    stage.write("AGENTS.override.md", "Another-mark-9e37\n");
    let (mut client, thread) = in_workspace(stage.relay(), &stage, json!({})).await;
    turn(&mut client, &thread, "one").await;
    assert!(client.close().await.success());
    let one = stage.asked(&thread, "one");
    assert_eq!(
        (copies(&one, AGENTS), copies(&one, "Another-mark-9e37")),
        (0, 1)
    );
}
matrix!(document_that_the_user_overrides_is_left_so: http);
