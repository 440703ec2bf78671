//! Work that codex has begun on a thread without a `turn/start`: a renewal leaves it alone.

use std::fs;

use codex_relay::commands::endpoint::{Reply, Script, Signal};
use codex_relay::commands::witness::Recorded;
use serde_json::{Value, json};

use super::policy::{NEW, OLD};
use super::renewals::left_with_another_policy;
use super::supervision::codex_of;
use crate::support::case::Case;
use crate::support::client::Client;
use crate::support::inbox::Line;
use crate::support::model::Model;
use crate::support::orders::{replaced, told, turn};
use crate::support::persona::copies;
use crate::support::stage::Stage;
use crate::support::story;

/// Holds the answers back that end a compaction, a review or a turn of a goal.
struct Held {
    model: Model,
    may_end: Signal,
}

impl Held {
    fn new(may_end: &Signal) -> Self {
        Self {
            model: Model::default(),
            may_end: may_end.clone(),
        }
    }
}

impl Script for Held {
    fn reply(&self, request: &Recorded) -> Reply {
        let reply = self.model.reply(request);
        let purpose = request.purpose().unwrap_or_default();
        let body = request.json().map(Value::to_string).unwrap_or_default();
        if purpose != "turn" || body.contains("[goal]") {
            return reply.after(&self.may_end);
        }
        reply
    }
}

/// Has something begin, and starts a turn with a new policy behind it at once.
async fn begin(
    (stage, client): (&Stage, &mut Client),
    thread: &str,
    (method, mut params): (&str, Value),
) -> Result<Value, Value> {
    params["threadId"] = thread.into();
    stage.policy(NEW);
    let work = json!({"id": "work", "method": method, "params": params});
    client.send(&work).await;
    let input = json!([{"type": "text", "text": "two"}]);
    let params = json!({"threadId": thread, "input": input});
    let answer = client.call("turn/start", params).await;
    let passed = fs::read_to_string(stage.copy_of_stdin()).unwrap();
    assert!(!passed.contains("thread/unsubscribe"), "{method}: {passed}");
    answer
}

async fn what_has_just_begun_is_not_ended_by_a_renewal(case: Case) {
    let compact = ("thread/compact/start", json!({}));
    let target = json!({"type": "custom", "instructions": "look at it"});
    let review = ("review/start", json!({"target": target}));
    for (work, sign) in [(compact, "contextCompaction"), (review, "exitedReviewMode")] {
        let may_end = Signal::new();
        let stage = Stage::with(case, Held::new(&may_end)).await;
        let (mut client, thread) = stage.with_policy(OLD).spied().with_thread().await;
        turn(&mut client, &thread, "one").await;
        let from = client.inbox.len();
        let error = begin((&stage, &mut client), &thread, work).await;
        // Codex's own words.
        let error = error.unwrap_err().to_string();
        assert!(error.contains("ActiveTurnNotSteerable"), "{error}");
        may_end.give();
        let is_it = |params: &Value| params["item"]["type"] == sign;
        client.notification(from, "item/completed", is_it).await;
        let ended = client.turn_end(from, &thread).await;
        assert_eq!(ended["status"], "completed", "{sign}: {ended}");
        turn(&mut client, &thread, "three").await;
        assert!(client.close().await.success());
        let three = stage.asked(&thread, "three");
        let said = told(&three, "Policy-");
        assert!(said.last().unwrap().contains(NEW), "{sign}: {said:?}");
    }
}
matrix!(what_has_just_begun_is_not_ended_by_a_renewal: http);

async fn command_of_the_user_is_not_ended_by_a_renewal(case: Case) {
    let stage = Stage::set(case).await;
    let (mut client, thread) = stage.with_policy(OLD).spied().with_thread().await;
    turn(&mut client, &thread, "one").await;
    let from = client.inbox.len();
    let may_end = stage.home.join("may-end");
    let command = format!("until [ -e '{}' ]; do sleep 0.02; done", may_end.display());
    let work = ("thread/shellCommand", json!({"command": command}));
    let started = begin((&stage, &mut client), &thread, work).await;
    assert!(started.is_ok(), "{started:?}");
    fs::write(&may_end, "").unwrap();
    let is_it = |params: &Value| params["item"]["type"] == "commandExecution";
    let item = client.notification(from, "item/completed", is_it).await;
    assert_eq!(item["item"]["status"], "completed", "{item}");
    client.turn_end(from, &thread).await;
    turn(&mut client, &thread, "three").await;
    assert!(client.close().await.success());
    let three = stage.asked(&thread, "three");
    assert_eq!(replaced(&three).len(), 1);
    assert_eq!(copies(&three, NEW), 1);
}
matrix!(command_of_the_user_is_not_ended_by_a_renewal: http);

async fn goal_goes_on_under_a_new_policy(case: Case) {
    let may_end = Signal::new();
    let stage = Stage::with(case, Held::new(&may_end)).await;
    let (mut client, thread) = stage.with_policy(OLD).spied().with_thread().await;
    turn(&mut client, &thread, "one").await;
    let from = client.inbox.len();
    let work = ("thread/goal/set", json!({"objective": "[goal]"}));
    let started = begin((&stage, &mut client), &thread, work).await;
    assert!(started.is_ok(), "{started:?}");
    may_end.give();
    let is_reached = |params: &Value| params["goal"]["status"] == "complete";
    client
        .notification(from, "thread/goal/updated", is_reached)
        .await;
    client.turn_end(from, &thread).await;
    let lines = client.inbox.since(from);
    let mut methods = lines.iter().filter_map(|line| line.method());
    assert!(methods.all(|method| method != "thread/goal/cleared"));
    turn(&mut client, &thread, "three").await;
    assert!(client.close().await.success());
    let [two, three] = ["two", "three"].map(|prompt| stage.asked(&thread, prompt));
    for request in [&two, &three] {
        assert_eq!(replaced(request).len(), 1);
        assert_eq!(copies(request, NEW), 1);
    }
    let passed = fs::read_to_string(stage.copy_of_stdin()).unwrap();
    assert!(
        passed.contains("thread/unsubscribe"),
        "the rest follows once the goal is reached"
    );
}
matrix!(goal_goes_on_under_a_new_policy: http);

async fn compaction_before_the_turn_of_a_new_policy_tells_it_once(case: Case) {
    let stage = Stage::set(case).await;
    let (mut client, thread) = stage.with_policy(OLD).with_thread().await;
    turn(&mut client, &thread, "one").await;
    stage.policy(NEW);
    story::compact(&mut client, &thread).await;
    turn(&mut client, &thread, "two").await;
    turn(&mut client, &thread, "three").await;
    assert!(client.close().await.success());
    for prompt in ["two", "three"] {
        let request = stage.asked(&thread, prompt);
        assert_eq!(copies(&request, NEW), 1, "{prompt}");
        let said = told(&request, "Policy-");
        assert!(said.last().unwrap().contains(NEW), "{prompt}: {said:?}");
    }
}
matrix!(compaction_before_the_turn_of_a_new_policy_tells_it_once: http);

async fn return_to_a_loaded_thread_leaves_it_as_it_is(case: Case) {
    let stage = Stage::set(case).await;
    for policy in [None, Some(OLD)] {
        let launch = match policy {
            Some(policy) => stage.with_policy(policy),
            None => stage.relay(),
        };
        let mut client = launch.start().await;
        let own = json!({"developerInstructions": "Client-words-88d0"});
        let thread = client.thread("thread/start", own).await;
        turn(&mut client, &thread, "one").await;
        let it = json!({"threadId": thread});
        client.ok("thread/unsubscribe", it.clone()).await;
        let from = client.inbox.len();
        client.thread("thread/resume", it).await;
        turn(&mut client, &thread, "two").await;
        let is_unloaded = |line: &Line| line.value["params"]["status"]["type"] == "notLoaded";
        assert!(!client.inbox.since(from).iter().any(is_unloaded));
        story::compact(&mut client, &thread).await;
        turn(&mut client, &thread, "three").await;
        assert!(client.close().await.success());
        let three = stage.asked(&thread, "three");
        assert_eq!(copies(&three, "Client-words-88d0"), 1);
        assert_eq!(replaced(&three), [""; 0], "nothing has changed");
    }
}
matrix!(return_to_a_loaded_thread_leaves_it_as_it_is: http);

async fn renewed_turn_of_a_thread_that_was_left_is_seen_to_end(case: Case) {
    let stage = Stage::set(case).await;
    let (mut client, thread) = left_with_another_policy(&stage).await;
    let from = client.inbox.len();
    client.start_turn(&thread, "two").await;
    for status in ["active", "idle"] {
        let is_it = |params: &Value| params["status"]["type"] == status;
        client
            .notification(from, "thread/status/changed", is_it)
            .await;
    }
    assert!(client.close().await.success());
    assert_eq!(replaced(&stage.asked(&thread, "two")).len(), 1);
}
matrix!(renewed_turn_of_a_thread_that_was_left_is_seen_to_end: http);

async fn queued_message_is_answered_under_a_new_policy(case: Case) {
    let stage = Stage::set(case).await;
    for is_routed in [true, false] {
        let launch = if is_routed {
            stage.with_policy(OLD)
        } else {
            stage.unrouted_with_policy(OLD)
        };
        let (mut client, thread) = launch.spied().with_thread().await;
        turn(&mut client, &thread, "one").await;
        stage.policy(NEW);
        for prompt in ["two", "three"] {
            let input = json!([{"type": "text", "text": prompt}]);
            let params = json!({"threadId": thread, "input": input, "clientUserMessageId": prompt});
            let ended = client.turn_of("thread/queue/add", params).await;
            assert_eq!(ended["status"], "completed", "{ended}");
        }
        let passed = || fs::read_to_string(stage.copy_of_stdin()).unwrap();
        let before = passed();
        assert!(!before.contains("thread/unsubscribe"), "{before}");
        turn(&mut client, &thread, "four").await;
        let after = passed();
        assert!(after.contains("thread/unsubscribe"), "the rest follows");
        story::compact(&mut client, &thread).await;
        turn(&mut client, &thread, "five").await;
        assert!(client.close().await.success());
        for prompt in ["two", "three", "four"] {
            let request = stage.asked(&thread, prompt);
            assert_eq!(replaced(&request).len(), 1, "{prompt}, routed: {is_routed}");
            assert_eq!(copies(&request, NEW), 1, "{prompt}, routed: {is_routed}");
        }
        stage.assert_one_of(&thread, "five", [NEW, OLD]);
        fs::remove_file(stage.copy_of_stdin()).unwrap();
    }
}
matrix!(queued_message_is_answered_under_a_new_policy: http);

async fn refused_revert_is_no_end_of_a_thread(case: Case) {
    let stage = Stage::set(case).await;
    let launch = stage.with_policy(OLD);
    let mut client = launch.start().await;
    let start = json!({"sandbox": "workspace-write"});
    let thread = client.thread("thread/start", start).await;
    turn(&mut client, &thread, "one").await;
    // Codex loads the thread anew before it looks for the turn, and subscribes the client.
    let nowhere = "01a23240-0000-7000-8000-000000000000";
    let revert = json!({"threadId": thread, "beforeTurnId": nowhere});
    let it = json!({"threadId": thread});
    client.ok("thread/unsubscribe", it.clone()).await;
    client.call("thread/revert", revert).await.unwrap_err();
    stage.policy(NEW);
    turn(&mut client, &thread, "two").await;
    story::compact(&mut client, &thread).await;
    turn(&mut client, &thread, "three").await;
    let resumed = client.ok("thread/resume", it).await;
    assert_eq!(resumed["sandbox"]["type"], "workspaceWrite", "{resumed}");
    assert!(client.close().await.success());
    assert_eq!(replaced(&stage.asked(&thread, "two")).len(), 1);
    stage.assert_one_of(&thread, "three", [NEW, OLD]);
}
matrix!(refused_revert_is_no_end_of_a_thread: http);

async fn thread_that_was_left_is_renewed_behind_work_that_nobody_saw(case: Case) {
    let stage = Stage::set(case).await;
    let (mut client, thread) = stage.with_policy(OLD).with_thread().await;
    turn(&mut client, &thread, "one").await;
    let it = json!({"threadId": thread});
    client.ok("thread/unsubscribe", it.clone()).await;
    for (policy, prompt) in [
        (OLD, None),
        (NEW, Some("two")),
        (NEW, None),
        (NEW, Some("three")),
    ] {
        stage.policy(policy);
        let from = client.inbox.len();
        match prompt {
            Some(prompt) => drop(client.start_turn(&thread, prompt).await),
            None => drop(client.ok("thread/compact/start", it.clone()).await),
        }
        client.rest(from).await;
    }
    assert!(client.close().await.success());
    let two = stage.asked(&thread, "two");
    let said = told(&two, "Policy-");
    assert!(said.last().unwrap().contains(NEW), "{said:?}");
    assert_eq!(copies(&two, NEW), 1);
    stage.assert_one_of(&thread, "three", [NEW, OLD]);
}
matrix!(thread_that_was_left_is_renewed_behind_work_that_nobody_saw: http);

async fn turn_behind_one_that_is_starting_renews_nothing(case: Case) {
    let may_end = Signal::new();
    let stage = Stage::with(case, Held::new(&may_end)).await;
    let (mut client, thread) = stage.with_policy(OLD).spied().with_thread().await;
    turn(&mut client, &thread, "one").await;
    let from = client.inbox.len();
    client.start_turn(&thread, "[goal] two").await;
    stage.policy(NEW);
    client.start_turn(&thread, "behind").await;
    let passed = fs::read_to_string(stage.copy_of_stdin()).unwrap();
    assert!(!passed.contains("thread/unsubscribe"), "{passed}");
    may_end.give();
    client.turn_end(from, &thread).await;
    client.rest(from).await;
    turn(&mut client, &thread, "three").await;
    assert!(client.close().await.success());
    let said = told(&stage.asked(&thread, "three"), "Policy-");
    assert!(said.last().unwrap().contains(NEW), "{said:?}");
}
matrix!(turn_behind_one_that_is_starting_renews_nothing: http);

async fn turn_that_codex_started_fails_when_codex_dies(case: Case) {
    let stage = Stage::with(case, Held::new(&Signal::new())).await;
    let (mut client, thread) = stage.with_policy(OLD).with_thread().await;
    turn(&mut client, &thread, "one").await;
    let from = client.inbox.len();
    let goal = json!({"threadId": thread, "objective": "[goal]"});
    client.ok("thread/goal/set", goal).await;
    let is_it = |params: &Value| params["threadId"] == thread;
    let started = client.notification(from, "turn/started", is_it).await;
    let codex = codex_of(&stage, &client).await;
    codex.signal(nix::sys::signal::Signal::SIGKILL);
    assert_eq!(client.exit().await.code(), Some(128 + 9));
    let end = client.turn_end(from, &thread).await;
    assert_eq!(end["id"], started["turn"]["id"]);
    assert_eq!(end["status"], "failed", "{end}");
}
matrix!(turn_that_codex_started_fails_when_codex_dies: http);
