//! The developer policy of threads, and what threads without a route are told: read from what arrives at the model.

use std::fs;

use codex_relay::commands::endpoint::{Reply, Script, events};
use codex_relay::commands::witness::Recorded;
use serde_json::{Value, json};

use crate::support::blocks;
use crate::support::case::Case;
use crate::support::client::Client;
use crate::support::model::Model;
use crate::support::orders::{replaced, texts, told, turn};
use crate::support::persona::{self, MARKER, copies};
use crate::support::stage::Stage;
use crate::support::story;

pub(super) const OLD: &str = "Policy-old-71c3";
pub(super) const NEW: &str = "Policy-new-52e8";

async fn policy_stands_behind_the_client_s_own_words_from_the_start(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let mut client = stage.with_policy(OLD).start().await;
    let own = json!({"developerInstructions": "Own words."});
    let first = client.thread("thread/start", own).await;
    let second = client.thread("thread/start", json!({})).await;
    let given = json!({"relay": {"policy": "Given words."}});
    let third = client.thread("thread/start", given).await;
    let none = client
        .thread("thread/start", json!({"relay": {"policy": ""}}))
        .await;
    for thread in [&first, &second, &third, &none] {
        turn(&mut client, thread, "one").await;
        turn(&mut client, thread, "two").await;
    }
    story::spawn_child(&mut client, &first).await;
    assert!(client.close().await.success());
    for prompt in ["one", "two"] {
        let both = told(&stage.asked(&first, prompt), OLD);
        assert_eq!(both, [format!("Own words.\n\n{OLD}")], "{prompt}");
        assert_eq!(told(&stage.asked(&second, prompt), OLD), [OLD], "{prompt}");
        let given = stage.asked(&third, prompt);
        assert_eq!(told(&given, "Given words."), ["Given words."]);
        assert_eq!(copies(&given, OLD), 0);
        assert_eq!(copies(&stage.asked(&none, prompt), OLD), 0);
        assert_eq!(copies(&stage.asked(&first, prompt), MARKER), 1);
    }
    let requests = stage.endpoint.model_requests();
    let child = requests.iter().find(|it| it.is_child()).unwrap();
    assert_eq!(
        told(child, OLD).len(),
        1,
        "a fresh child inherits the policy"
    );
    assert_eq!(copies(child, MARKER), 0);
}
matrix!(policy_stands_behind_the_client_s_own_words_from_the_start: http);

async fn words_of_the_user_s_configuration_are_kept(case: Case) {
    let stage = Stage::set(case).await;
    let path = stage.codex_home.join("config.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(
        &path,
        format!("developer_instructions = \"Configured.\"\n{text}"),
    )
    .unwrap();
    let (mut client, thread) = stage.with_policy(OLD).with_thread().await;
    let over = json!({"config": {"developer_instructions": "Of the client."}});
    let other = client.thread("thread/start", over).await;
    turn(&mut client, &thread, "one").await;
    turn(&mut client, &other, "one").await;
    assert!(client.close().await.success());
    let both = told(&stage.asked(&thread, "one"), OLD);
    assert_eq!(both, [format!("Configured.\n\n{OLD}")]);
    let both = told(&stage.asked(&other, "one"), OLD);
    assert_eq!(both, [format!("Of the client.\n\n{OLD}")]);
}
matrix!(words_of_the_user_s_configuration_are_kept: http);

/// Notifications about a thread that a client which has done nothing but turns must not see.
fn strays(client: &Client, thread: &str, from: usize) -> Vec<String> {
    let lines = client.inbox.since(from).into_iter();
    let of_thread = lines.filter(|it| it.value["params"]["threadId"] == thread);
    let methods = of_thread.map(|it| {
        let status = it.value["params"]["status"]["type"].as_str();
        let method = it.method().unwrap_or_default().to_owned();
        [Some(&*method), status]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" ")
    });
    methods.collect()
}

async fn changed_policy_is_renewed_and_survives_a_compaction(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let mut client = stage.with_policy(OLD).start().await;
    let own = json!({"developerInstructions": "Own words."});
    let thread = client.thread("thread/start", own).await;
    turn(&mut client, &thread, "one").await;
    let from = client.inbox.len();
    turn(&mut client, &thread, "two").await;
    let usual = strays(&client, &thread, from);
    stage.policy(NEW);
    let from = client.inbox.len();
    turn(&mut client, &thread, "three").await;
    assert_eq!(strays(&client, &thread, from), usual);
    turn(&mut client, &thread, "four").await;
    story::compact(&mut client, &thread).await;
    turn(&mut client, &thread, "five").await;
    story::spawn_child(&mut client, &thread).await;
    stage.policy("");
    turn(&mut client, &thread, "six").await;
    story::compact(&mut client, &thread).await;
    turn(&mut client, &thread, "seven").await;
    assert!(client.close().await.success());
    for prompt in ["three", "four"] {
        let request = stage.asked(&thread, prompt);
        let said = replaced(&request);
        assert_eq!(said.len(), 1, "{prompt}: {said:?}");
        assert!(
            said[0].contains(&format!("\nOwn words.\n\n{NEW}\n")),
            "{said:?}"
        );
        assert_eq!(copies(&request, NEW), 1);
        assert_eq!(copies(&request, MARKER), 1, "the route is kept");
    }
    let five = stage.asked(&thread, "five");
    assert_eq!((copies(&five, NEW), copies(&five, OLD)), (1, 0));
    assert_eq!(told(&five, NEW), [format!("Own words.\n\n{NEW}")]);
    let requests = stage.endpoint.model_requests();
    let child = requests.iter().find(|it| it.is_child()).unwrap();
    assert_eq!((copies(child, NEW), copies(child, OLD)), (1, 0));
    assert_eq!(copies(child, MARKER), 0);
    let six = replaced(&stage.asked(&thread, "six"));
    assert_eq!(six.len(), 1, "{six:?}");
    assert!(
        !six[0].contains(NEW) && six[0].contains("\nOwn words.\n"),
        "{six:?}"
    );
    let seven = stage.asked(&thread, "seven");
    assert_eq!((copies(&seven, NEW), copies(&seven, OLD)), (0, 0));
    assert_eq!(told(&seven, "Own words."), ["Own words."]);
    let rollout = blocks::rollouts_with(&stage, "# Developer instructions replaced");
    assert_eq!(rollout.len(), 1, "{rollout:?}");
}
matrix!(changed_policy_is_renewed_and_survives_a_compaction: http);

async fn changed_policy_is_renewed_over_a_web_socket(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let (mut client, thread) = stage.with_policy(OLD).with_thread().await;
    turn(&mut client, &thread, "one").await;
    stage.policy(NEW);
    turn(&mut client, &thread, "two").await;
    story::compact(&mut client, &thread).await;
    let compacted = stage.endpoint.model_requests().len();
    turn(&mut client, &thread, "three").await;
    assert!(client.close().await.success());
    // The thread was loaded anew: its first message is whole.
    let two = stage.asked(&thread, "two");
    assert_eq!((replaced(&two).len(), copies(&two, MARKER)), (1, 1));
    // Behind a compaction a prewarm may have all but the prompt.
    let requests = stage.endpoint.model_requests();
    let after = &requests[compacted..];
    assert!(after.iter().any(|it| told(it, NEW) == [NEW]));
    assert!(after.iter().all(|it| copies(it, OLD) == 0));
}
matrix!(changed_policy_is_renewed_over_a_web_socket: versions);

async fn changed_policy_is_told_behind_a_failed_turn(case: Case) {
    let stage = Stage::set(case).await;
    let (mut client, thread) = stage.with_policy(OLD).with_thread().await;
    turn(&mut client, &thread, "one").await;
    let done = client.turn(&thread, "[fail]").await;
    assert_eq!(done["status"], "failed", "{done}");
    // Codex unloads no such thread: the text is told now, and loaded behind the next turn.
    stage.policy(NEW);
    turn(&mut client, &thread, "two").await;
    turn(&mut client, &thread, "three").await;
    story::compact(&mut client, &thread).await;
    turn(&mut client, &thread, "four").await;
    assert!(client.close().await.success());
    for prompt in ["two", "three"] {
        let said = replaced(&stage.asked(&thread, prompt));
        assert!(
            said.len() == 1 && said[0].contains(NEW),
            "{prompt}: {said:?}"
        );
    }
    stage.assert_one_of(&thread, "four", [NEW, OLD]);
}
matrix!(changed_policy_is_told_behind_a_failed_turn: http);

async fn commands_in_the_background_are_not_ended_by_a_policy(case: Case) {
    let stage = Stage::with(case, Background::default()).await;
    let (mut client, thread) = stage.with_policy(OLD).with_thread().await;
    turn(&mut client, &thread, "[background]").await;
    let it = json!({"threadId": thread});
    let list = "thread/backgroundTerminals/list";
    let running = client.ok(list, it.clone()).await["data"].clone();
    assert_eq!(running.as_array().unwrap().len(), 1, "{running}");
    stage.policy(NEW);
    turn(&mut client, &thread, "two").await;
    turn(&mut client, &thread, "three").await;
    assert_eq!(client.ok(list, it.clone()).await["data"], running);
    client.ok("thread/backgroundTerminals/clean", it).await;
    turn(&mut client, &thread, "four").await;
    story::compact(&mut client, &thread).await;
    turn(&mut client, &thread, "five").await;
    assert!(client.close().await.success());
    for prompt in ["two", "three", "four"] {
        let said = replaced(&stage.asked(&thread, prompt));
        assert!(
            said.len() == 1 && said[0].contains(NEW),
            "{prompt}: {said:?}"
        );
    }
    stage.assert_one_of(&thread, "five", [NEW, OLD]);
}
matrix!(commands_in_the_background_are_not_ended_by_a_policy: http);

/// A model whose `[background]` starts a command that outlasts the turn.
#[derive(Clone, Debug, Default)]
struct Background(Model);

impl Script for Background {
    fn reply(&self, request: &Recorded) -> Reply {
        let input = request.json().and_then(|body| body["input"].as_array());
        let last = input.and_then(|it| it.last()).map(Value::to_string);
        if !last.unwrap_or_default().contains("[background]") {
            return self.0.reply(request);
        }
        let arguments = json!({"cmd": "exec sleep 86400", "yield_time_ms": 250});
        let call = events::call("background-1", "exec_command", &arguments);
        Reply::events(events::answer("resp-background", [call]))
    }
}

async fn cold_resume_tells_the_text_again(case: Case) {
    let stage = Stage::set(case).await;
    let (mut client, thread) = stage.with_policy(OLD).with_thread().await;
    turn(&mut client, &thread, "one").await;
    let resume = json!({"threadId": thread});
    // What this process has seen is proof.
    client.ok("thread/unsubscribe", resume.clone()).await;
    client.thread("thread/resume", resume.clone()).await;
    turn(&mut client, &thread, "two").await;
    assert!(client.close().await.success());
    let mut client = stage.with_policy(OLD).start().await;
    client.thread("thread/resume", resume.clone()).await;
    turn(&mut client, &thread, "three").await;
    turn(&mut client, &thread, "four").await;
    assert!(client.close().await.success());
    let mut client = stage.with_policy(NEW).start().await;
    client.thread("thread/resume", resume).await;
    turn(&mut client, &thread, "five").await;
    story::compact(&mut client, &thread).await;
    turn(&mut client, &thread, "six").await;
    assert!(client.close().await.success());
    let counts =
        ["one", "two", "three", "four", "five"].map(|it| replaced(&stage.asked(&thread, it)).len());
    assert_eq!(counts, [0, 0, 1, 1, 2]);
    let five = replaced(&stage.asked(&thread, "five"));
    assert!(five[0].contains(OLD) && five[1].contains(NEW), "{five:?}");
    stage.assert_one_of(&thread, "six", [NEW, OLD]);
}
matrix!(cold_resume_tells_the_text_again: http);

async fn fork_is_told_what_holds_now(case: Case) {
    let stage = Stage::set(case).await;
    let (mut client, thread) = stage.with_policy(OLD).with_thread().await;
    turn(&mut client, &thread, "one").await;
    let fork = json!({"threadId": thread, "excludeTurns": true});
    let same = client.thread("thread/fork", fork.clone()).await;
    turn(&mut client, &same, "two").await;
    stage.policy(NEW);
    let other = client.thread("thread/fork", fork).await;
    turn(&mut client, &other, "two").await;
    story::compact(&mut client, &other).await;
    turn(&mut client, &other, "three").await;
    assert!(client.close().await.success());
    assert_eq!(replaced(&stage.asked(&same, "two")), [""; 0]);
    let two = stage.asked(&other, "two");
    assert_eq!(replaced(&two).len(), 1);
    assert_eq!(copies(&two, OLD), 1, "nothing is erased");
    stage.assert_one_of(&other, "three", [NEW, OLD]);
}
matrix!(fork_is_told_what_holds_now: http);

async fn thread_without_a_route_is_told_its_context(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    fs::create_dir_all(stage.workspace.join("users/ada")).unwrap();
    stage.write("users/ada/USER.md", "Overlay-of-ada");
    let launch = stage.unrouted_with_policy(OLD).option("--profile", "ada");
    let mut client = launch.start().await;
    let own = json!({"developerInstructions": "Own words."});
    let thread = client.thread("thread/start", own).await;
    turn(&mut client, &thread, "one").await;
    assert_status_of_a_fallback(&mut client, &thread).await;
    stage.write("SOUL.md", "You keep the other lighthouse.\n");
    turn(&mut client, &thread, "two").await;
    turn(&mut client, &thread, "three").await;
    story::compact(&mut client, &thread).await;
    turn(&mut client, &thread, "four").await;
    persona::remove(&stage);
    turn(&mut client, &thread, "five").await;
    let stderr = client.stderr();
    assert!(client.close().await.success());
    let one = told(&stage.asked(&thread, "one"), MARKER);
    assert_eq!(one.len(), 1);
    assert!(one[0].starts_with(&format!(
        "Own words.\n\n{OLD}\n\n<agent_workspace_section>\n"
    )));
    for prompt in ["two", "three"] {
        let said = replaced(&stage.asked(&thread, prompt));
        assert_eq!(said.len(), 1, "{prompt}");
        assert!(said[0].contains("other lighthouse") && !said[0].contains(MARKER));
    }
    let four = stage.asked(&thread, "four");
    assert_eq!(
        (copies(&four, "other lighthouse"), copies(&four, MARKER)),
        (1, 0)
    );
    let five = replaced(&stage.asked(&thread, "five"));
    assert_eq!(five.len(), 1);
    assert!(
        five[0].contains(OLD) && !five[0].contains("agent_workspace_section"),
        "{five:?}"
    );
    for request in stage.endpoint.model_requests() {
        assert_eq!(copies(&request, "Overlay-of-ada"), 0);
    }
    assert_eq!(stderr.matches("users/ada/USER.md").count(), 1, "{stderr}");
    assert_eq!(stderr.matches("own_endpoint").count(), 1, "{stderr}");
}
matrix!(thread_without_a_route_is_told_its_context: http);

async fn assert_status_of_a_fallback(client: &mut Client, thread: &str) {
    let status = client.ok("relay/status", json!({"threadId": thread})).await;
    let status = &status["threads"][0];
    let route = json!({
        "status": "fallback",
        "reason": "own_endpoint",
        "isParentOnly": false,
        "upstreamHost": null,
    });
    assert_eq!(status["route"], route);
    let sources = status["context"]["sources"].as_array().unwrap();
    let of = |name: &str| sources.iter().find(|it| it["name"] == name).unwrap();
    assert_eq!(of("users/ada/USER.md")["bytes"], 0);
    assert_eq!(of("SOUL.md")["carrier"], "developer_instructions");
}

async fn ephemeral_thread_keeps_its_policy_and_takes_another_section(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let mut client = stage.unrouted_with_policy(OLD).start().await;
    let thread = client
        .thread("thread/start", json!({"ephemeral": true}))
        .await;
    turn(&mut client, &thread, "one").await;
    for text in [NEW, ""] {
        stage.policy(text);
        let input = json!({"threadId": thread, "input": [{"type": "text", "text": "refused"}]});
        let error = client.call("turn/start", input).await.unwrap_err();
        assert_eq!(error["data"]["reason"], "policy_change_unsupported");
    }
    stage.policy(OLD);
    stage.write("SOUL.md", "You keep the other lighthouse.\n");
    turn(&mut client, &thread, "two").await;
    turn(&mut client, &thread, "three").await;
    story::compact(&mut client, &thread).await;
    turn(&mut client, &thread, "four").await;
    turn(&mut client, &thread, "[commands 3 full]").await;
    turn(&mut client, &thread, "five").await;
    turn(&mut client, &thread, "six").await;
    persona::remove(&stage);
    turn(&mut client, &thread, "seven").await;
    assert!(client.close().await.success());
    let said = |prompt| replaced(&stage.asked(&thread, prompt));
    assert_eq!(said("one"), [""; 0]);
    for prompt in ["two", "three", "four"] {
        let said = said(prompt);
        assert_eq!(said.len(), 1, "{prompt}");
        assert!(said[0].contains("other lighthouse") && said[0].contains(OLD));
    }
    assert_restored_within_the_turn(&stage, "[commands 3 full]");
    assert!(!said("six").is_empty());
    let six = said("seven");
    let last = six.last().unwrap();
    assert!(
        !last.contains("lighthouse") && last.contains(OLD),
        "{six:?}"
    );
    let requests = stage.endpoint.model_requests();
    assert!(requests.iter().all(|it| copies(it, "refused") == 0));
}
matrix!(ephemeral_thread_keeps_its_policy_and_takes_another_section: http);

/// In the middle of a turn the section is back with the request after the first one behind a compaction.
fn assert_restored_within_the_turn(stage: &Stage, prompt: &str) {
    let requests = stage.endpoint.model_requests();
    let of_turn: Vec<_> = requests
        .iter()
        .filter(|it| texts(it).iter().any(|(_, text)| text == prompt))
        .filter(|it| it.purpose().as_deref() == Some("turn"))
        .map(|it| replaced(it).len())
        .collect();
    // Every step fills the context window: codex may compact before it has taken the message of the step before.
    assert!(
        of_turn.len() > 3 && of_turn.iter().all(|it| *it <= 2),
        "{of_turn:?}"
    );
    assert!(of_turn[2..].iter().all(|it| *it > 0), "{of_turn:?}");
}

async fn persona_of_a_routed_ephemeral_thread_changes_freely(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let mut client = stage.with_policy(OLD).start().await;
    let thread = client
        .thread("thread/start", json!({"ephemeral": true}))
        .await;
    turn(&mut client, &thread, "one").await;
    stage.write("SOUL.md", "You keep the other lighthouse.\n");
    turn(&mut client, &thread, "two").await;
    assert!(client.close().await.success());
    let two = stage.asked(&thread, "two");
    assert_eq!(replaced(&two), [""; 0]);
    assert_eq!(
        (copies(&two, "other lighthouse"), copies(&two, MARKER)),
        (1, 0)
    );
}
matrix!(persona_of_a_routed_ephemeral_thread_changes_freely: http);

async fn turn_is_refused_where_the_renewal_is_not_proven(case: Case) {
    // Codex isn't told that the client leaves: it keeps the thread loaded, as for another subscriber.
    let kept = "s#thread/unsubscribe#thread/loaded/list#";
    let no_message = "s#thread/inject_items#thread/inject_nothing#";
    let lost_message = "\\#thread/inject_items#d";
    let no_return = "/\"excludeTurns\":true,\"developer/s#thread/resume#thread/return#";
    for (edit, words) in [
        (kept, "did not unload"),
        (no_message, "refused a step"),
        (lost_message, "did not answer"),
        (no_return, "refused a step"),
    ] {
        let stage = Stage::set(case).await;
        let (mut client, thread) = stage.with_policy(OLD).edited(edit).with_thread().await;
        turn(&mut client, &thread, "one").await;
        stage.policy(NEW);
        for _ in 0..2 {
            let input = json!({"threadId": thread, "input": [{"type": "text", "text": "two"}]});
            let error = client.call("turn/start", input).await.unwrap_err();
            assert_eq!(error["data"]["reason"], "policy_change_unsupported");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(words), "{error}");
            let is_refused = words.contains("refused");
            assert_eq!(message.contains("codex said"), is_refused, "{error}");
        }
        stage.policy(OLD);
        let read = client.ok("thread/read", json!({"threadId": thread})).await;
        assert_eq!(
            read["thread"]["status"]["type"], "idle",
            "the thread is kept"
        );
        if [kept, no_return].contains(&edit) {
            // Its end is told to those who are subscribed.
            turn(&mut client, &thread, "between").await;
        }
        assert!(client.close().await.success());
        let requests = stage.endpoint.model_requests();
        assert!(requests.iter().all(|it| copies(it, "\"two\"") == 0));
        let mut client = stage.with_policy(NEW).start().await;
        client
            .thread("thread/resume", json!({"threadId": thread}))
            .await;
        turn(&mut client, &thread, "three").await;
        assert!(client.close().await.success());
        assert_eq!(replaced(&stage.asked(&thread, "three")).len(), 1, "{words}");
    }
}
matrix!(turn_is_refused_where_the_renewal_is_not_proven: http);

async fn policy_that_can_not_be_used_is_named_with_its_fault(case: Case) {
    let stage = Stage::set(case).await;
    let (mut client, thread) = stage.with_policy(OLD).with_thread().await;
    turn(&mut client, &thread, "one").await;
    let path = stage.policy(&"x".repeat(262_145)).display().to_string();
    let input = json!({"threadId": thread, "input": [{"type": "text", "text": "two"}]});
    for (method, params) in [("turn/start", input), ("thread/start", json!({}))] {
        let error = client.call(method, params).await.unwrap_err();
        assert_eq!(error["data"]["reason"], "context_unavailable");
        let words = error["message"].as_str().unwrap();
        assert!(words.contains(&path) && words.contains("262144"), "{words}");
    }
    stage.policy(OLD);
    turn(&mut client, &thread, "three").await;
    assert!(client.close().await.success());
    stage.assert_one_of(&thread, "three", [OLD, NEW]);
}
matrix!(policy_that_can_not_be_used_is_named_with_its_fault: http);
