//! Turns of every kind, and the member that asks for them.

use std::sync::Arc;

use codex_relay::commands::witness::Recorded;
use serde_json::{Value, json};

use super::context::{instructions_of, printed, turn, write};
use crate::support::blocks::files_before;
use crate::support::case::Case;
use crate::support::persona::MARKER;
use crate::support::stage::{Stage, holds};

/// Every kind but `user`.
const KINDS: [&str; 6] = [
    "heartbeat",
    "cron",
    "cron-lightweight",
    "message-only",
    "tools-disabled",
    "ring-zero",
];

async fn every_kind_of_turn_gets_its_context(case: Case) {
    let stage = Stage::set(case).await;
    write(&stage);
    let mut client = stage.relay().start().await;
    let start = json!({"relay": {"profile": "ada", "memoryTools": true}});
    let thread = client.thread("thread/start", start).await;
    let lightweight = json!({"kind": "cron-lightweight"});
    turn(&mut client, &thread, "cron-lightweight", lightweight).await;
    let scratch = "look \"after\" the cat\n";
    let heartbeat = json!({"kind": "heartbeat", "scratch": scratch});
    turn(&mut client, &thread, "heartbeat", heartbeat).await;
    for kind in [
        "user",
        "cron",
        "message-only",
        "tools-disabled",
        "ring-zero",
    ] {
        turn(&mut client, &thread, kind, json!({"kind": kind})).await;
    }
    assert!(client.close().await.success());
    // A lightweight turn and a heartbeat introduce nothing, and leave it due.
    for (kind, files) in [
        ("cron-lightweight", None),
        ("heartbeat", None),
        ("user", Some("BOOTSTRAP.md")),
        ("cron", None),
        ("message-only", None),
        ("tools-disabled", Some("MEMORY.md")),
        ("ring-zero", None),
    ] {
        let expected: Vec<Vec<&str>> = files.map(|it| vec![it]).into_iter().collect();
        assert_eq!(files_before(&stage, &thread, kind), expected, "{kind}");
        let text = printed(&stage, &["--kind", kind], true).await;
        assert_eq!(instructions_of(&stage, &thread, kind), text, "{kind}");
    }
    assert_texts_differ_as_they_should(&stage, &thread);
    assert_scratch_ends_the_input(&stage, &thread, scratch);
}
matrix!(every_kind_of_turn_gets_its_context: transports);

fn assert_texts_differ_as_they_should(stage: &Stage, thread: &str) {
    let user = instructions_of(stage, thread, "user");
    let texts = KINDS.map(|kind| instructions_of(stage, thread, kind));
    let [
        heartbeat,
        cron,
        light,
        message_only,
        tools_disabled,
        ring_zero,
    ] = texts;
    assert!(heartbeat.starts_with(&format!("{user}\n\n# Heartbeat\n\n")));
    assert_eq!(cron, format!("{light}\n\n{user}"));
    assert!(light.starts_with("# Scheduled job\n\n") && !light.contains(MARKER));
    assert_eq!(message_only, user);
    assert_eq!(tools_disabled, ring_zero);
    assert!(!tools_disabled.contains("memory_search") && user.contains("memory_search"));
}

fn assert_scratch_ends_the_input(stage: &Stage, thread: &str, scratch: &str) {
    let requests = stage.endpoint.model_requests();
    let asked = requests.iter().find_map(|it| {
        let input = it.json()?["input"].as_array()?;
        let last = input.iter().rfind(|item| item["role"] == "user")?;
        (it.thread() == Some(thread) && last["content"][0]["text"] == "heartbeat")
            .then(|| last["content"].clone())
    });
    assert_eq!(asked.unwrap()[1]["text"], scratch);
    let with_scratch = |it: &&Arc<Recorded>| {
        it.instructions()
            .is_some_and(|text| text.contains("the cat"))
    };
    assert_eq!(requests.iter().filter(with_scratch).count(), 0);
}

async fn relay_member_is_strict_and_never_reaches_codex(case: Case) {
    let stage = Stage::set(case).await;
    write(&stage);
    let mut client = stage.relay().spied().start().await;
    let start = json!({"relay": {"kind": "cron"}});
    let thread = client.thread("thread/start", start).await;
    let input = json!([{"type": "text", "text": "hello"}]);
    for (relay, words) in [
        (
            json!({"kind": "weekly"}),
            "relay.kind: expected one of user, heartbeat, cron",
        ),
        (
            json!({"kind": "user", "mood": 1}),
            "relay.mood: is no member that this relay knows",
        ),
        (
            json!({"context": {"text": "x", "sections": []}}),
            "relay.context: expected either text or sections, not both",
        ),
        (
            json!({"profile": "../ada"}),
            "relay.profile: expected an id",
        ),
        (
            json!({"scratch": "x"}),
            "relay.scratch: goes with kind heartbeat alone",
        ),
        (json!([]), "relay: expected an object"),
    ] {
        let params = json!({"threadId": thread, "input": input, "relay": relay});
        let error = client.call("turn/start", params).await.unwrap_err();
        assert_eq!(error["code"], -32602, "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(words), "{message}");
    }
    let error = client
        .call("thread/start", json!({"relay": {"policy": 7}}))
        .await;
    assert!(
        error.unwrap_err()["message"]
            .as_str()
            .unwrap()
            .contains("relay.policy")
    );
    turn(&mut client, &thread, "hello", Value::Null).await;
    assert!(client.close().await.success());
    let text = instructions_of(&stage, &thread, "hello");
    assert!(
        text.starts_with("# Scheduled job\n\n"),
        "the thread's own kind"
    );
    assert!(!holds(&stage.copy_of_stdin(), "\"relay\""));
    assert!(!holds(&stage.copy_of_stdin(), "weekly"));
}
matrix!(relay_member_is_strict_and_never_reaches_codex: versions);
