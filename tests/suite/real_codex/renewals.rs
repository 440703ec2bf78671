//! What a renewal keeps, and turn kinds without a route.

use std::fs;
use std::path::Path;

use codex_relay::commands::endpoint::{Journal, Reply, Script, events};
use codex_relay::commands::witness::Recorded;
use serde_json::{Value, json};

use super::documents::{profile, write_profiles};
use super::policy::{NEW, OLD};
use crate::support::PATIENCE;
use crate::support::case::Case;
use crate::support::client::Client;
use crate::support::model::Model;
use crate::support::orders::{replaced, texts, told, turn};
use crate::support::persona::{self, MARKER, copies};
use crate::support::stage::Stage;
use crate::support::story;

/// What a request says of the settings of its thread.
fn settings(request: &Recorded) -> Value {
    let body = request.json().unwrap();
    let names = ["model", "reasoning", "service_tier", "text", "tools"];
    let mut said: Value = names.map(|name| body[name].clone()).to_vec().into();
    let tools = body["input"].as_array().unwrap().iter();
    let tools = tools.filter(|item| item["type"] == "additional_tools");
    said.as_array_mut().unwrap().extend(tools.cloned());
    said
}

/// The headings and names of the tools in settings.
fn tools(settings: &Value) -> Vec<String> {
    let text = settings.to_string();
    let names = text.split("### `").skip(1);
    let names = names.map(|it| it.split('`').next().unwrap().to_owned());
    // 0.155.1 adds these where a thread that began without an environment is loaded again, whoever asks for it.
    names.filter(|it| !it.starts_with("skills__")).collect()
}

/// What codex says of a loaded thread that is resumed as it is.
async fn state(client: &mut Client, thread: &str) -> Value {
    let resume = json!({"threadId": thread, "excludeTurns": true});
    let answer = client.ok("thread/resume", resume).await;
    let names = [
        "model",
        "modelProvider",
        "serviceTier",
        "cwd",
        "approvalPolicy",
        "approvalsReviewer",
        "sandbox",
        "reasoningEffort",
    ];
    let mut state: Vec<Value> = names.map(|name| answer[name].clone()).to_vec();
    state.push(answer["thread"]["environments"].clone());
    state.into()
}

async fn renewal_keeps_the_settings_of_the_thread(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let other = stage.home.join("other");
    fs::create_dir(&other).unwrap();
    let tool = json!({"name": "lamp", "description": "d", "inputSchema": {"type": "object"}});
    let start = json!({"dynamicTools": [tool], "config": {"model_reasoning_effort": "high", "web_search": "disabled"}});
    let policy = json!({"type": "workspaceWrite", "writableRoots": [stage.home.display().to_string()], "networkAccess": true});
    let set = json!({
        "cwd": other.display().to_string(),
        "sandboxPolicy": policy,
        "approvalPolicy": "never",
        "approvalsReviewer": "auto_review",
        "effort": "low",
        "serviceTier": "flex",
        "model": case.version.classic_model(),
    });
    let mut client = stage.with_policy(OLD).start().await;
    let thread = client.thread("thread/start", start).await;
    let done = client.turn_with(&thread, "one", set).await;
    assert_eq!(done["status"], "completed", "{done}");
    turn(&mut client, &thread, "two").await;
    let before = state(&mut client, &thread).await;
    stage.policy(NEW);
    turn(&mut client, &thread, "three").await;
    assert_eq!(state(&mut client, &thread).await, before);
    turn(&mut client, &thread, "four").await;
    assert!(client.close().await.success());
    let two = settings(&stage.asked(&thread, "two"));
    assert!(two.to_string().contains("lamp"));
    for prompt in ["three", "four"] {
        let request = stage.asked(&thread, prompt);
        assert_eq!(settings(&request), two, "{prompt}");
        assert_eq!(replaced(&request).len(), 1);
        assert_eq!(copies(&request, MARKER), 1);
    }
}
matrix!(renewal_keeps_the_settings_of_the_thread: http);

async fn what_a_renewal_has_lost_is_set_by_the_next_turn_that_starts(case: Case) {
    let stage = Stage::set(case).await;
    let other = stage.home.join("other");
    fs::create_dir(&other).unwrap();
    let policy = json!({"type": "workspaceWrite", "writableRoots": [stage.home.display().to_string()], "networkAccess": true});
    let set = json!({
        "cwd": other.display().to_string(),
        "sandboxPolicy": policy,
        "summary": "detailed",
        "serviceTier": "flex",
        "model": case.version.classic_model(),
    });
    let (mut client, thread) = stage.with_policy(OLD).with_thread().await;
    let done = client.turn_with(&thread, "one", set).await;
    assert_eq!(done["status"], "completed", "{done}");
    let before = state(&mut client, &thread).await;
    stage.policy(NEW);
    // Codex reads this when the thread was renewed already.
    let input = json!([{"type": "text", "text": "refused"}]);
    let refused = json!({"threadId": thread, "input": input, "effort": 7});
    client.call("turn/start", refused).await.unwrap_err();
    // So is this, and changes nothing.
    let update = json!({"threadId": thread, "sandboxPolicy": {"type": "none"}, "summary": 7});
    client
        .call("thread/settings/update", update)
        .await
        .unwrap_err();
    turn(&mut client, &thread, "two").await;
    assert_eq!(state(&mut client, &thread).await, before);
    assert!(client.close().await.success());
    let two = stage.asked(&thread, "two");
    assert_eq!(two.json().unwrap()["reasoning"]["summary"], "detailed");
    assert_eq!(replaced(&two).len(), 1);
}
matrix!(what_a_renewal_has_lost_is_set_by_the_next_turn_that_starts: http);

/// Everything that codex says of a thread's settings: it does when one of them changes.
async fn all_settings(client: &mut Client, thread: &str, approvals: &str) -> Value {
    let from = client.inbox.len();
    let update = json!({"threadId": thread, "approvalPolicy": approvals});
    client.ok("thread/settings/update", update).await;
    let is_it = |params: &Value| params["threadId"] == thread;
    let told = client.notification(from, "thread/settings/updated", is_it);
    let mut settings = told.await["threadSettings"].clone();
    assert_eq!(settings["approvalPolicy"].take(), approvals);
    settings
}

async fn renewal_keeps_what_no_resume_takes(case: Case) {
    let stage = Stage::set(case).await;
    let model = case.version.classic_model();
    let mode = json!({"mode": "plan", "settings": {
        "model": model,
        "reasoning_effort": "low",
        "developer_instructions": "Plan-words-20c4",
    }});
    let set = json!({"summary": "detailed", "personality": "friendly", "collaborationMode": mode});
    // What a thread begins with is what it would fall back on.
    let config = json!({"model_reasoning_summary": "concise", "personality": "pragmatic"});
    let mut client = stage.with_policy(OLD).start().await;
    let start = json!({"model": model, "config": config});
    let thread = client.thread("thread/start", start).await;
    let done = client.turn_with(&thread, "one", set).await;
    assert_eq!(done["status"], "completed", "{done}");
    let before = all_settings(&mut client, &thread, "never").await;
    assert_eq!(before["summary"], "detailed");
    assert_eq!(before["personality"], "friendly");
    assert_eq!(before["collaborationMode"]["mode"], "plan");
    stage.policy(NEW);
    turn(&mut client, &thread, "two").await;
    let after = all_settings(&mut client, &thread, "on-request").await;
    assert_eq!(after, before);
    assert!(client.close().await.success());
    let [one, two] = ["one", "two"].map(|prompt| stage.asked(&thread, prompt));
    assert_eq!(replaced(&two).len(), 1);
    assert_eq!(settings(&two), settings(&one));
    assert_eq!(one.json().unwrap()["reasoning"]["summary"], "detailed");
    assert_eq!(told(&two, "Plan-words-20c4").len(), 1);
}
matrix!(renewal_keeps_what_no_resume_takes: http);

async fn renewal_keeps_what_a_turn_of_a_client_of_the_stable_api_has_set(case: Case) {
    let stage = Stage::set(case).await;
    let (mut client, thread) = stage.with_policy(OLD).stable_api().with_thread().await;
    let set = json!({"summary": "detailed", "model": case.version.classic_model()});
    let done = client.turn_with(&thread, "one", set).await;
    assert_eq!(done["status"], "completed", "{done}");
    for (policy, prompt) in [(NEW, "two"), (OLD, "three")] {
        stage.policy(policy);
        turn(&mut client, &thread, prompt).await;
    }
    assert!(client.close().await.success());
    for prompt in ["one", "two", "three"] {
        let body = stage.asked(&thread, prompt).json().unwrap().clone();
        assert_eq!(body["reasoning"]["summary"], "detailed", "{prompt}");
    }
}
matrix!(renewal_keeps_what_a_turn_of_a_client_of_the_stable_api_has_set: http);

async fn renewal_keeps_the_base_instructions_of_a_resume(case: Case) {
    let stage = Stage::set(case).await;
    let (mut client, thread) = stage.with_policy(OLD).with_thread().await;
    turn(&mut client, &thread, "one").await;
    assert!(client.close().await.success());
    let mut client = stage.with_policy(OLD).start().await;
    let resume = json!({"threadId": thread, "baseInstructions": "Base-words-77aa"});
    client.thread("thread/resume", resume).await;
    turn(&mut client, &thread, "two").await;
    stage.policy(NEW);
    turn(&mut client, &thread, "three").await;
    assert!(client.close().await.success());
    for prompt in ["two", "three"] {
        let request = stage.asked(&thread, prompt);
        assert_eq!(copies(&request, "Base-words-77aa"), 1, "{prompt}");
    }
    assert_eq!(copies(&stage.asked(&thread, "three"), NEW), 1);
}
matrix!(renewal_keeps_the_base_instructions_of_a_resume: http);

async fn renewal_keeps_a_profile_by_its_name(case: Case) {
    let stage = Stage::set(case).await;
    write_profiles(&stage, ":workspace");
    let mut client = stage.with_policy(OLD).start().await;
    // A resume would have codex take the profile of the client's own config again.
    let start = json!({"config": {"default_permissions": "open"}});
    let thread = client.thread("thread/start", start).await;
    turn(&mut client, &thread, "one").await;
    for (prompt, policy) in [("two", NEW), ("three", OLD)] {
        let chosen = json!({"permissions": "blind"});
        client.turn_with(&thread, "chosen", chosen).await;
        stage.policy(policy);
        turn(&mut client, &thread, prompt).await;
        assert_eq!(profile(&mut client, &thread).await, "blind", "{prompt}");
    }
    let none = json!({"sandboxPolicy": {"type": "readOnly"}});
    client.turn_with(&thread, "none", none).await;
    let before = state(&mut client, &thread).await;
    stage.policy(NEW);
    turn(&mut client, &thread, "four").await;
    assert_eq!(profile(&mut client, &thread).await, Value::Null);
    assert_eq!(state(&mut client, &thread).await, before);
    stage.policy(OLD);
    let chosen = json!({"permissions": "open"});
    client.turn_with(&thread, "five", chosen).await;
    assert_eq!(profile(&mut client, &thread).await, "open");
    assert!(client.close().await.success());
    assert_eq!(replaced(&stage.asked(&thread, "five")).len(), 4);
}
matrix!(renewal_keeps_a_profile_by_its_name: http);

async fn renewal_keeps_environments(case: Case) {
    let stage = Stage::set(case).await;
    let mut client = stage.with_policy(OLD).start().await;
    let remote = json!({"environmentId": "far", "execServerUrl": "ws://127.0.0.1:1/"});
    client.ok("environment/add", remote).await;
    let far = json!([{"environmentId": "far", "cwd": "/srv/far"}]);
    let mut before = Vec::new();
    let mut threads = Vec::new();
    for environments in [json!([]), far] {
        let start = json!({"environments": environments});
        let thread = client.thread("thread/start", start).await;
        turn(&mut client, &thread, "one").await;
        before.push(state(&mut client, &thread).await);
        threads.push(thread);
    }
    stage.policy(NEW);
    for (thread, before) in threads.iter().zip(before) {
        turn(&mut client, thread, "two").await;
        assert_eq!(state(&mut client, thread).await, before);
    }
    assert!(client.close().await.success());
    for thread in &threads {
        let one = settings(&stage.asked(thread, "one"));
        let two = stage.asked(thread, "two");
        assert_eq!(tools(&settings(&two)), tools(&one));
        assert_eq!(replaced(&two).len(), 1);
        assert!(copies(&two, "<environment_context>") <= 2);
    }
}
matrix!(renewal_keeps_environments: http);

async fn client_without_experimental_members_is_served_too(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let unwanted = [
        "thread/status/changed",
        "turn/started",
        "thread/settings/updated",
    ];
    let launch = stage.with_policy(OLD).stable_api().opting_out(&unwanted);
    let (mut client, thread) = launch.with_thread().await;
    turn(&mut client, &thread, "one").await;
    stage.policy(NEW);
    turn(&mut client, &thread, "two").await;
    story::compact(&mut client, &thread).await;
    turn(&mut client, &thread, "three").await;
    assert!(client.close().await.success());
    assert_eq!(replaced(&stage.asked(&thread, "two")).len(), 1);
    let three = stage.asked(&thread, "three");
    assert_eq!((copies(&three, NEW), copies(&three, OLD)), (1, 0));
    assert_eq!(copies(&three, MARKER), 1);
}
matrix!(client_without_experimental_members_is_served_too: http);

async fn policy_that_changes_before_the_first_turn_is_renewed(case: Case) {
    let stage = Stage::set(case).await;
    let mut client = stage.with_policy(OLD).start().await;
    let from = client.inbox.len();
    let thread = client.thread("thread/start", json!({})).await;
    stage.policy(NEW);
    turn(&mut client, &thread, "one").await;
    let lines = client.inbox.since(from);
    let started = lines
        .iter()
        .filter(|it| it.method() == Some("thread/started"));
    assert_eq!(started.count(), 1, "as without a renewal");
    turn(&mut client, &thread, "two").await;
    story::compact(&mut client, &thread).await;
    turn(&mut client, &thread, "three").await;
    assert!(client.close().await.success());
    for prompt in ["one", "two"] {
        let request = stage.asked(&thread, prompt);
        assert_eq!(replaced(&request).len(), 1, "{prompt}");
        assert_eq!(copies(&request, NEW), 1);
    }
    stage.assert_one_of(&thread, "three", [NEW, OLD]);
}
matrix!(policy_that_changes_before_the_first_turn_is_renewed: http);

fn write_skill(stage: &Stage) {
    fs::create_dir_all(stage.workspace.join("skills/knots")).unwrap();
    let skill = "---\nname: knots\ndescription: Skill-mark-88d2\n---\nTie.\n";
    stage.write("skills/knots/SKILL.md", skill);
}

pub(super) async fn turn_of_kind(client: &mut Client, thread: &str, prompt: &str, kind: &str) {
    let more = json!({"relay": {"kind": kind}});
    let turn = client.turn_with(thread, prompt, more).await;
    assert_eq!(turn["status"], "completed", "{turn}\n{}", client.stderr());
}

async fn lightweight_turn_withdraws_the_section_for_itself(case: Case) {
    const SKILL: &str = "Skill-mark-88d2";
    let stage = Stage::set(case).await;
    persona::write(&stage);
    write_skill(&stage);
    let (mut client, thread) = stage.unrouted_with_policy(OLD).with_thread().await;
    turn(&mut client, &thread, "one").await;
    turn_of_kind(&mut client, &thread, "light", "cron-lightweight").await;
    turn(&mut client, &thread, "two").await;
    turn(&mut client, &thread, "three").await;
    assert!(client.close().await.success());
    assert_eq!(told(&stage.asked(&thread, "one"), SKILL).len(), 1);
    let light = replaced(&stage.asked(&thread, "light"));
    assert_eq!(light.len(), 1);
    assert!(!light[0].contains(SKILL) && !light[0].contains(MARKER));
    assert!(light[0].contains(OLD) && light[0].contains("# Scheduled job"));
    for prompt in ["two", "three"] {
        let said = replaced(&stage.asked(&thread, prompt));
        assert_eq!(said.len(), 2, "{prompt}");
        assert!(said[1].contains(SKILL) && said[1].contains(MARKER));
    }
}
matrix!(lightweight_turn_withdraws_the_section_for_itself: http);

async fn lightweight_turn_leaves_a_routed_thread_as_it_is(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    write_skill(&stage);
    stage.write("AGENTS.md", "Agents-mark-4b1f\n");
    let (mut client, thread) = stage.with_policy(OLD).with_thread().await;
    turn(&mut client, &thread, "one").await;
    turn_of_kind(&mut client, &thread, "light", "cron-lightweight").await;
    turn(&mut client, &thread, "two").await;
    assert!(client.close().await.success());
    for (prompt, count) in [("one", 1), ("light", 0), ("two", 1)] {
        let request = stage.asked(&thread, prompt);
        assert_eq!(replaced(&request), [""; 0], "{prompt}");
        assert_eq!(copies(&request, MARKER), count, "{prompt}");
        assert_eq!(copies(&request, "Agents-mark-4b1f"), 1, "{prompt}");
    }
}
matrix!(lightweight_turn_leaves_a_routed_thread_as_it_is: http);

async fn heartbeat_without_a_route_is_guided_by_the_collaboration_mode(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let mut client = stage.unrouted_relay().start().await;
    let start = json!({"model": case.version.classic_model()});
    let thread = client.thread("thread/start", start).await;
    turn(&mut client, &thread, "one").await;
    turn_of_kind(&mut client, &thread, "beat", "heartbeat").await;
    turn_of_kind(&mut client, &thread, "beats", "heartbeat").await;
    turn(&mut client, &thread, "two").await;
    let own = json!({"mode": "default", "settings": {
        "model": case.version.classic_model(),
        "reasoning_effort": null,
        "developer_instructions": "Of the client's own.",
    }});
    let more = json!({"relay": {"kind": "heartbeat"}, "collaborationMode": own});
    let done = client.turn_with(&thread, "own", more).await;
    assert_eq!(done["status"], "completed", "{done}");
    assert!(client.close().await.success());
    let beats = |prompt| told(&stage.asked(&thread, prompt), "# Heartbeat").len();
    assert_eq!(
        ["one", "beat", "beats", "two", "own"].map(beats),
        [0, 1, 1, 1, 1]
    );
    let two = stage.asked(&thread, "two");
    let modes = told(&two, "<collaboration_mode>");
    assert!(
        !modes.last().unwrap().contains("# Heartbeat"),
        "it is taken back"
    );
    assert_eq!(
        told(&stage.asked(&thread, "own"), "Of the client's own.").len(),
        1
    );
    assert_eq!(replaced(&stage.asked(&thread, "own")), [""; 0]);
}
matrix!(heartbeat_without_a_route_is_guided_by_the_collaboration_mode: http);

async fn collaboration_mode_of_the_client_does_not_displace_the_section(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let mut client = stage.unrouted_relay().start().await;
    for model in [Value::Null, json!(case.version.classic_model())] {
        let start = json!({"model": model});
        let thread = client.thread("thread/start", start).await;
        turn(&mut client, &thread, "one").await;
        let mode = json!({"mode": "plan", "settings": {
            "model": case.version.classic_model(),
            "reasoning_effort": null,
            "developer_instructions": null,
        }});
        let more = json!({"collaborationMode": mode});
        let done = client.turn_with(&thread, "two", more).await;
        assert_eq!(done["status"], "completed", "{done}");
        story::compact(&mut client, &thread).await;
        turn(&mut client, &thread, "three").await;
        for prompt in ["one", "two", "three"] {
            let section = told(&stage.asked(&thread, prompt), "<agent_workspace_section>");
            assert!(section.last().unwrap().contains(MARKER), "{prompt}");
        }
    }
    assert!(client.close().await.success());
}
matrix!(collaboration_mode_of_the_client_does_not_displace_the_section: http);

/// A thread that its client has left, and whose policy has changed since.
pub(super) async fn left_with_another_policy(stage: &Stage) -> (Client, String) {
    let (mut client, thread) = stage.with_policy(OLD).with_thread().await;
    turn(&mut client, &thread, "one").await;
    client
        .ok("thread/unsubscribe", json!({"threadId": thread}))
        .await;
    stage.policy(NEW);
    (client, thread)
}

async fn settings_that_a_renewed_turn_changes_are_told(case: Case) {
    let stage = Stage::set(case).await;
    let mut client = stage.with_policy(OLD).start().await;
    // The newest models of 0.171.0 keep the effort that their thread was loaded with.
    let start = json!({"model": case.version.classic_model()});
    let thread = client.thread("thread/start", start).await;
    client
        .turn_with(&thread, "one", json!({"effort": "high"}))
        .await;
    for (policy, prompt, set, told) in [
        (NEW, "two", json!({"effort": "low"}), vec![json!("low")]),
        (OLD, "three", json!({}), vec![]),
    ] {
        stage.policy(policy);
        let from = client.inbox.len();
        client.turn_with(&thread, prompt, set).await;
        let lines = client.inbox.since(from).into_iter();
        let settings = lines.filter(|it| it.method() == Some("thread/settings/updated"));
        let efforts = settings.map(|it| it.value["params"]["threadSettings"]["effort"].clone());
        assert_eq!(efforts.collect::<Vec<_>>(), told, "{prompt}");
    }
    assert!(client.close().await.success());
    for prompt in ["two", "three"] {
        let effort = &settings(&stage.asked(&thread, prompt))[1]["effort"];
        assert_eq!(effort, "low", "{prompt}");
    }
}
matrix!(settings_that_a_renewed_turn_changes_are_told: http);

async fn thread_that_nobody_watches_is_told_behind_a_compaction(case: Case) {
    let stage = Stage::set(case).await;
    let (mut client, thread) = stage.with_policy(OLD).with_thread().await;
    turn(&mut client, &thread, "one").await;
    story::compact(&mut client, &thread).await;
    let it = json!({"threadId": thread});
    client.ok("thread/unsubscribe", it).await;
    for (policy, prompt) in [(OLD, "two"), (NEW, "three"), (NEW, "four")] {
        stage.policy(policy);
        let from = client.inbox.len();
        client.start_turn(&thread, prompt).await;
        client.rest(from).await;
    }
    assert!(client.close().await.success());
    for prompt in ["three", "four"] {
        let said = replaced(&stage.asked(&thread, prompt));
        assert!(
            said.len() == 1 && said[0].contains(NEW),
            "{prompt}: {said:?}"
        );
    }
}
matrix!(thread_that_nobody_watches_is_told_behind_a_compaction: http);

async fn client_that_has_left_its_thread_stays_away(case: Case) {
    let stage = Stage::set(case).await;
    let (mut client, thread) = left_with_another_policy(&stage).await;
    let from = client.inbox.len();
    let input = json!({"threadId": thread, "input": [{"type": "text", "text": "two"}]});
    client.ok("turn/start", input).await;
    let two = |journal: &Journal| {
        let mut requests = journal.model_requests();
        requests.any(|it| copies(it, NEW) > 0).then_some(())
    };
    stage.endpoint.wait_for(PATIENCE, two).await.unwrap();
    assert_eq!(replaced(&stage.asked(&thread, "two")).len(), 1);
    client.close_stdin();
    assert!(client.exit().await.success());
    let lines = client.inbox.since(from).into_iter();
    let of_thread = lines.filter(|it| it.value["params"]["threadId"] == thread.as_str());
    // A thread's status is told to everybody.
    let told = of_thread.filter(|it| it.method() != Some("thread/status/changed"));
    let of_thread: Vec<_> = told.map(|it| it.raw).collect();
    assert!(of_thread.is_empty(), "{of_thread:?}");
}
matrix!(client_that_has_left_its_thread_stays_away: http);

async fn words_that_a_client_resumes_with_are_shown_where_there_is_a_policy(case: Case) {
    let stage = Stage::set(case).await;
    let mut client = stage.with_policy(OLD).start().await;
    let own = json!({"developerInstructions": "First words."});
    let thread = client.thread("thread/start", own).await;
    turn(&mut client, &thread, "one").await;
    let other = json!({"threadId": thread, "developerInstructions": "Second words."});
    client.thread("thread/resume", other).await;
    turn(&mut client, &thread, "two").await;
    let given = json!({"threadId": thread, "relay": {"policy": NEW}});
    client.thread("thread/resume", given).await;
    turn(&mut client, &thread, "three").await;
    assert!(client.close().await.success());
    let two = replaced(&stage.asked(&thread, "two"));
    assert!(two.len() == 1 && two[0].contains(&format!("\nSecond words.\n\n{OLD}\n")));
    let three = replaced(&stage.asked(&thread, "three"));
    assert!(three.len() == 2 && three[1].contains(&format!("\nSecond words.\n\n{NEW}\n")));
}
matrix!(words_that_a_client_resumes_with_are_shown_where_there_is_a_policy: http);

async fn requests_behind_a_renewal_are_answered_in_order(case: Case) {
    let stage = Stage::set(case).await;
    let (mut client, thread) = stage.with_policy(OLD).with_thread().await;
    turn(&mut client, &thread, "one").await;
    stage.policy(NEW);
    let from = client.inbox.len();
    let input = json!({"threadId": thread, "input": [{"type": "text", "text": "two"}]});
    let start = json!({"id": "a", "method": "turn/start", "params": input});
    client.send(&start).await;
    let read = json!({"threadId": thread});
    let read = json!({"id": "b", "method": "thread/read", "params": read});
    client.send(&read).await;
    client.turn_end(from, &thread).await;
    client
        .inbox
        .wait("b", from, |line| line.value["id"] == "b")
        .await;
    client.close_stdin();
    assert!(client.exit().await.success());
    let lines = client.inbox.since(0);
    let ids = lines.iter().filter_map(|line| line.value["id"].as_str());
    let ids: Vec<_> = ids.collect();
    assert_eq!(ids, ["a", "b"], "and no id of the relay's own");
    let named = lines.iter().find(|line| line.value["id"] == "a").unwrap();
    assert!(named.value["result"]["turn"]["id"].is_string(), "{named:?}");
    assert_eq!(replaced(&stage.asked(&thread, "two")).len(), 1);
}
matrix!(requests_behind_a_renewal_are_answered_in_order: versions);

async fn resume_of_a_thread_that_was_left_keeps_its_config(case: Case) {
    let stage = Stage::set(case).await;
    let mut client = stage.relay().start().await;
    let config = json!({"web_search": "disabled", "model_verbosity": "high"});
    let start = json!({"config": config, "model": case.version.classic_model()});
    let thread = client.thread("thread/start", start).await;
    turn(&mut client, &thread, "one").await;
    let it = json!({"threadId": thread});
    client.ok("thread/unsubscribe", it.clone()).await;
    client.thread("thread/resume", it).await;
    turn(&mut client, &thread, "two").await;
    assert!(client.close().await.success());
    let one = settings(&stage.asked(&thread, "one"));
    assert_eq!(one[3]["verbosity"], "high");
    assert_eq!(settings(&stage.asked(&thread, "two")), one);
}
matrix!(resume_of_a_thread_that_was_left_keeps_its_config: http);

async fn thread_that_goes_back_is_told_again_where_it_must(case: Case) {
    let stage = Stage::set(case).await;
    let (mut client, thread) = stage.with_policy(OLD).with_thread().await;
    turn(&mut client, &thread, "one").await;
    let second = client.turn(&thread, "second").await;
    stage.policy(NEW);
    let two = client.turn(&thread, "two").await;
    let back_to = |turn: &Value| json!({"threadId": thread, "beforeTurnId": turn["id"]});
    // The message stands before the turn; before the turn that was there before it doesn't.
    for (turns, gone) in [(["three", "four"], two), (["five", "six"], second)] {
        client.ok("thread/revert", back_to(&gone)).await;
        for prompt in turns {
            turn(&mut client, &thread, prompt).await;
        }
    }
    story::compact(&mut client, &thread).await;
    turn(&mut client, &thread, "seven").await;
    assert!(client.close().await.success());
    for (prompt, gone) in [
        ("three", "two"),
        ("four", "two"),
        ("five", "second"),
        ("six", "second"),
    ] {
        let request = stage.asked(&thread, prompt);
        let said = replaced(&request);
        assert!(
            said.len() == 1 && said[0].contains(NEW),
            "{prompt}: {said:?}"
        );
        let is_gone = texts(&request).iter().all(|(_, text)| text != gone);
        assert!(is_gone, "it went back");
    }
    stage.assert_one_of(&thread, "seven", [NEW, OLD]);
}
matrix!(thread_that_goes_back_is_told_again_where_it_must: http);

async fn context_of_the_client_goes_into_the_section_too(case: Case) {
    let stage = Stage::set(case).await;
    let mut client = stage.unrouted_relay().start().await;
    let start = json!({"relay": {"context": {"text": "Client-words-1"}}});
    let thread = client.thread("thread/start", start).await;
    turn(&mut client, &thread, "one").await;
    let set = json!({"threadId": thread, "scope": "thread", "text": "Client-words-2"});
    client.ok("relay/context/set", set).await;
    turn(&mut client, &thread, "two").await;
    client
        .ok("relay/context/clear", json!({"threadId": thread}))
        .await;
    turn(&mut client, &thread, "three").await;
    assert!(client.close().await.success());
    let one = stage.asked(&thread, "one");
    assert_eq!(told(&one, "Client-words-1").len(), 1);
    let two = replaced(&stage.asked(&thread, "two"));
    assert!(two.len() == 1 && two[0].contains("Client-words-2"));
    let three = replaced(&stage.asked(&thread, "three"));
    assert!(three.len() == 2 && three[1].contains("withdrawn"));
}
matrix!(context_of_the_client_goes_into_the_section_too: http);

/// A model whose `[heir]` spawns a child with the whole history.
#[derive(Clone, Debug, Default)]
struct Heirs(Model);

impl Script for Heirs {
    fn reply(&self, request: &Recorded) -> Reply {
        let input = request
            .json()
            .and_then(|body| body["input"].as_array().cloned());
        let last = input.and_then(|it| it.last().map(Value::to_string));
        if request.is_child() || !last.unwrap_or_default().contains("[heir]") {
            return self.0.reply(request);
        }
        let arguments = json!({"task_name": "heir", "message": "hello", "fork_turns": "all"});
        let call = format!("heir-{}", request.number);
        let call = events::call_in("collaboration", &call, "spawn_agent", &arguments);
        Reply::events(events::answer(&format!("resp-{}", request.number), [call]))
    }
}

async fn withdrawal_erases_nothing(case: Case) {
    let stage = Stage::with(case, Heirs::default()).await;
    let (mut client, thread) = stage.with_policy(OLD).with_thread().await;
    turn(&mut client, &thread, "one").await;
    stage.policy("");
    turn(&mut client, &thread, "two").await;
    let from = client.inbox.len();
    client.turn(&thread, "[heir]").await;
    let of_child = |params: &Value| params["threadId"] != thread.as_str();
    client.notification(from, "turn/completed", of_child).await;
    let fork = json!({"threadId": thread, "excludeTurns": true});
    let fork = client.thread("thread/fork", fork).await;
    turn(&mut client, &fork, "three").await;
    assert!(client.close().await.success());
    let two = stage.asked(&thread, "two");
    assert_eq!((copies(&two, OLD), replaced(&two).len()), (1, 1));
    let requests = stage.endpoint.model_requests();
    let child = requests.iter().find(|it| it.is_child()).unwrap();
    let three = stage.asked(&fork, "three");
    for heir in [child, &three] {
        assert_eq!(
            (copies(heir, OLD), replaced(heir).len()),
            (1, 1),
            "{heir:?}"
        );
    }
    assert!(holds_old(&stage.codex_home));
}
matrix!(withdrawal_erases_nothing: http);

/// Whether a rollout holds the old policy.
fn holds_old(codex_home: &Path) -> bool {
    let mut folders = vec![codex_home.join("sessions")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if crate::support::stage::holds(&path, OLD) {
                return true;
            }
        }
    }
    false
}
