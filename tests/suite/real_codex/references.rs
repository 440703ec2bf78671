//! Reference blocks: in the thread once, and again whenever the thread may have lost them.

use std::fs;

use serde_json::{Value, json};

use crate::support::blocks::{self, files_before};
use crate::support::case::Case;
use crate::support::client::Client;
use crate::support::model::Model;
use crate::support::persona::{self, MARKER};
use crate::support::stage::{Stage, holds};
use crate::support::story;

const BOTH: [&str; 2] = ["BOOTSTRAP.md", "MEMORY.md"];
const NONE: [[&str; 2]; 0] = [];

fn write(stage: &Stage) {
    persona::write(stage);
    stage.write("BOOTSTRAP.md", "Greet \"Ada\" \u{2014} first.\n");
    stage.write("MEMORY.md", "It rained on \u{1f9ed} Monday.\n");
}

async fn turn(client: &mut Client, thread: &str, prompt: &str) {
    let turn = client.turn(thread, prompt).await;
    assert_eq!(turn["status"], "completed", "{turn}\n{}", client.stderr());
}

async fn block_is_introduced_once_and_again_when_it_is_due(case: Case) {
    let stage = Stage::set(case).await;
    write(&stage);
    let (mut client, thread) = stage.relay().with_thread().await;
    turn(&mut client, &thread, "one").await;
    assert_eq!(files_before(&stage, &thread, "one"), [BOTH]);
    turn(&mut client, &thread, "two").await;
    assert_eq!(files_before(&stage, &thread, "two"), NONE);
    story::compact(&mut client, &thread).await;
    turn(&mut client, &thread, "three").await;
    assert_eq!(files_before(&stage, &thread, "three"), [BOTH]);
    turn(&mut client, &thread, "four").await;
    assert_eq!(files_before(&stage, &thread, "four"), NONE);
    stage.write("BOOTSTRAP.md", "Greet \"Ada\" \u{2014} First.\n");
    turn(&mut client, &thread, "five").await;
    assert_eq!(files_before(&stage, &thread, "five"), [["BOOTSTRAP.md"]]);
    fs::remove_file(stage.workspace.join("MEMORY.md")).unwrap();
    turn(&mut client, &thread, "six").await;
    assert_eq!(files_before(&stage, &thread, "six"), NONE);

    let text = &blocks::before(&stage, &thread, "one")[0];
    let path = stage.workspace.join("MEMORY.md");
    let part = format!(
        "<workspace_file path=\"{}\">\nIt rained on \u{1f9ed} Monday.\n</workspace_file>",
        path.display()
    );
    assert!(text.ends_with(&part), "{text}");
    let listed = client.ok("thread/list", json!({})).await;
    assert_eq!(listed["data"][0]["preview"], "one", "{listed}");
    let own = client.inbox.since(0).into_iter().filter(|line| {
        let id = line.value["id"].as_str().unwrap_or_default();
        id.starts_with("codex-relay-")
    });
    assert_eq!(
        own.count(),
        0,
        "answers to the relay's own requests are its own"
    );
    assert!(client.close().await.success());
    assert_in_rollout_as_user_input(&stage, text);
}
matrix!(block_is_introduced_once_and_again_when_it_is_due: transports);

fn assert_in_rollout_as_user_input(stage: &Stage, block: &str) {
    let rollouts = blocks::rollouts_with(stage, "# Workspace context");
    assert_eq!(rollouts.len(), 1, "{rollouts:?}");
    let rollout = fs::read_to_string(&rollouts[0]).unwrap();
    let lines = rollout
        .lines()
        .map(|it| serde_json::from_str::<Value>(it).unwrap());
    let messages =
        lines.filter(|it| it["type"] == "response_item" && it["payload"]["role"] == "user");
    let texts = messages.map(|it| {
        it["payload"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .to_owned()
    });
    assert_eq!(texts.filter(|it| it == block).count(), 2);
    let holders: Vec<_> = stage
        .files_of_codex()
        .into_iter()
        .filter(|it| holds(it, MARKER))
        .collect();
    assert!(holders.is_empty(), "{holders:?}");
}

async fn compaction_that_codex_starts_makes_it_due(case: Case) {
    let stage = Stage::set(case).await;
    write(&stage);
    let (mut client, thread) = stage.relay().with_thread().await;
    turn(&mut client, &thread, "[full]").await;
    turn(&mut client, &thread, "two").await;
    turn(&mut client, &thread, "three").await;
    turn(&mut client, &thread, "[commands 2 full]").await;
    turn(&mut client, &thread, "five").await;
    turn(&mut client, &thread, "six").await;
    assert!(client.close().await.success());
    let purposes = stage.endpoint.model_requests();
    let compactions = purposes
        .iter()
        .filter(|it| it.purpose().as_deref() == Some("compaction"));
    assert!(compactions.count() >= 2);
    assert_eq!(files_before(&stage, &thread, "[full]"), [BOTH]);
    assert_eq!(files_before(&stage, &thread, "six"), NONE);
    // Codex compacts before the turn that finds no room: it is due at the next.
    assert_eq!(files_before(&stage, &thread, "three"), [BOTH]);
    assert_eq!(files_before(&stage, &thread, "five"), [BOTH]);
}
matrix!(compaction_that_codex_starts_makes_it_due: transports);

async fn thread_that_was_loaded_anew_is_told_again(case: Case) {
    let stage = Stage::set(case).await;
    write(&stage);
    let (mut client, thread) = stage.relay().with_thread().await;
    let resume = json!({"threadId": thread});
    turn(&mut client, &thread, "one").await;
    client.thread("thread/resume", resume.clone()).await;
    turn(&mut client, &thread, "two").await;
    client.ok("thread/unsubscribe", resume.clone()).await;
    client.thread("thread/resume", resume.clone()).await;
    turn(&mut client, &thread, "three").await;
    client.ok("thread/archive", resume.clone()).await;
    client.ok("thread/unarchive", resume.clone()).await;
    client.thread("thread/resume", resume.clone()).await;
    turn(&mut client, &thread, "four").await;
    let reverted = client.turn(&thread, "five").await;
    let revert = json!({"threadId": thread, "beforeTurnId": reverted["id"]});
    client.ok("thread/revert", revert).await;
    turn(&mut client, &thread, "six").await;
    assert!(client.close().await.success());
    let mut client = stage.relay().start().await;
    client.thread("thread/resume", resume).await;
    turn(&mut client, &thread, "seven").await;
    turn(&mut client, &thread, "eight").await;
    assert!(client.close().await.success());
    for (prompt, is_told) in [
        ("one", true),
        ("two", false),
        ("three", true),
        ("four", true),
        ("five", false),
        ("six", true),
        ("seven", true),
        ("eight", false),
    ] {
        let told = if is_told { vec![BOTH] } else { Vec::new() };
        assert_eq!(files_before(&stage, &thread, prompt), told, "{prompt}");
    }
}
matrix!(thread_that_was_loaded_anew_is_told_again: transports);

async fn threads_and_forks_are_told_each(case: Case) {
    let stage = Stage::set(case).await;
    write(&stage);
    let mut client = stage.relay().start().await;
    let first = client.thread("thread/start", json!({})).await;
    let second = client
        .thread("thread/start", json!({"ephemeral": true}))
        .await;
    turn(&mut client, &first, "one").await;
    turn(&mut client, &second, "one").await;
    turn(&mut client, &first, "two").await;
    story::compact(&mut client, &second).await;
    turn(&mut client, &first, "three").await;
    turn(&mut client, &second, "three").await;
    let fork = json!({"threadId": first, "excludeTurns": true});
    let fork = client.thread("thread/fork", fork).await;
    turn(&mut client, &fork, "four").await;
    turn(&mut client, &fork, "five").await;
    turn(&mut client, &first, "four").await;
    assert!(client.close().await.success());
    for (thread, prompt, is_told) in [
        (&first, "one", true),
        (&second, "one", true),
        (&first, "two", false),
        (&first, "three", false),
        (&second, "three", true),
        (&fork, "four", true),
        (&fork, "five", false),
        (&first, "four", false),
    ] {
        let told = if is_told { vec![BOTH] } else { Vec::new() };
        assert_eq!(
            files_before(&stage, thread, prompt),
            told,
            "{thread} {prompt}"
        );
    }
}
matrix!(threads_and_forks_are_told_each: transports);

async fn turn_that_fails_to_start_leaves_the_block_delivered(case: Case) {
    let stage = Stage::set(case).await;
    write(&stage);
    let (mut client, thread) = stage.relay().with_thread().await;
    let long = json!({
        "threadId": thread,
        "input": [{"type": "text", "text": "x".repeat(1_048_577)}],
    });
    let error = client.call("turn/start", long).await.unwrap_err();
    assert_eq!(error["code"], -32602, "{error}");
    turn(&mut client, &thread, "one").await;
    turn(&mut client, &thread, "two").await;
    assert!(client.close().await.success());
    assert_eq!(files_before(&stage, &thread, "one"), [BOTH]);
    assert_eq!(files_before(&stage, &thread, "two"), NONE);
}
matrix!(turn_that_fails_to_start_leaves_the_block_delivered: versions);

async fn nothing_is_put_into_a_running_turn(case: Case) {
    let model = Model::default();
    let stage = Stage::with(case, model.clone()).await;
    write(&stage);
    let (mut client, thread) = stage.relay().with_thread().await;
    let input = |text: &str| json!({"threadId": thread, "input": [{"type": "text", "text": text}]});
    let from = client.inbox.len();
    client.ok("turn/start", input("[hold]")).await;
    story::seen(&stage, "turn").await;
    stage.write("BOOTSTRAP.md", "Greet nobody.");
    client.ok("turn/start", input("steer")).await;
    model.held_may_end.give();
    let of_thread = |params: &Value| params["threadId"] == thread.as_str();
    client.notification(from, "turn/completed", of_thread).await;
    turn(&mut client, &thread, "next").await;
    assert!(client.close().await.success());
    assert_eq!(files_before(&stage, &thread, "[hold]"), [BOTH]);
    assert_eq!(files_before(&stage, &thread, "next"), [["BOOTSTRAP.md"]]);
    let texts = blocks::before(&stage, &thread, "next");
    assert!(texts[0].contains("Greet nobody."));
    let rollouts = blocks::rollouts_with(&stage, "# Workspace context");
    let rollout = fs::read_to_string(&rollouts[0]).unwrap();
    let nobody = rollout
        .lines()
        .filter(|it| it.contains("response_item") && it.contains("Greet nobody."));
    assert_eq!(nobody.count(), 1, "the steer brought none");
}
matrix!(nothing_is_put_into_a_running_turn: versions);

async fn client_that_opts_out_of_everything_is_served_all_the_same(case: Case) {
    let stage = Stage::set(case).await;
    write(&stage);
    let mut client = stage.relay().spawn();
    let unwanted = [
        "item/completed",
        "thread/compacted",
        "thread/status/changed",
        "thread/reverted",
        "turn/started",
    ];
    let introduction = json!({
        "clientInfo": {"name": "codex-relay-suite", "version": "1"},
        "capabilities": {"optOutNotificationMethods": unwanted},
    });
    client.ok("initialize", introduction).await;
    let thread = client.thread("thread/start", json!({})).await;
    turn(&mut client, &thread, "one").await;
    story::compact(&mut client, &thread).await;
    turn(&mut client, &thread, "two").await;
    let seen = client.inbox.since(0).into_iter();
    let unasked = seen.filter(|line| line.method().is_some_and(|it| unwanted.contains(&it)));
    assert_eq!(unasked.count(), 0);
    assert!(client.close().await.success());
    assert_eq!(files_before(&stage, &thread, "one"), [BOTH]);
    assert_eq!(files_before(&stage, &thread, "two"), [BOTH]);
}
matrix!(client_that_opts_out_of_everything_is_served_all_the_same: versions);

async fn turn_goes_on_when_the_block_is_refused_or_lost(case: Case) {
    for (edit, why) in [
        (
            "s#thread/inject_items#thread/inject_nothing#",
            "answered with an error",
        ),
        ("\\#thread/inject_items#d", "answer in time"),
    ] {
        let stage = Stage::set(case).await;
        write(&stage);
        let (mut client, thread) = stage.relay().edited(edit).with_thread().await;
        turn(&mut client, &thread, "one").await;
        let stderr = client.stderr();
        assert!(
            stderr.contains("not shown to the thread") && stderr.contains(why),
            "{stderr}"
        );
        assert!(client.close().await.success());
        assert_eq!(files_before(&stage, &thread, "one"), NONE);
        let mut client = stage.relay().start().await;
        client
            .thread("thread/resume", json!({"threadId": thread}))
            .await;
        turn(&mut client, &thread, "two").await;
        assert!(client.close().await.success());
        assert_eq!(files_before(&stage, &thread, "two"), [BOTH]);
    }
}
matrix!(turn_goes_on_when_the_block_is_refused_or_lost: versions);

async fn codex_that_ends_over_the_block_leaves_no_request_open(case: Case) {
    let stage = Stage::set(case).await;
    write(&stage);
    let end = "\\#thread/inject_items#Q";
    let (mut client, thread) = stage.relay().edited(end).with_thread().await;
    let input = json!({"threadId": thread, "input": [{"type": "text", "text": "one"}]});
    let error = client.call("turn/start", input).await.unwrap_err();
    assert_eq!(error["code"], -32603, "{error}");
    client.exit().await;
}
matrix!(codex_that_ends_over_the_block_leaves_no_request_open: versions);
