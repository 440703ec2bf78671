//! The whole context on the wire: what `render` says is what the model gets.

use std::fs;
use std::os::unix::fs::symlink;

use codex_relay::commands::endpoint::{Reply, Script, events};
use codex_relay::commands::witness::Recorded;
use serde_json::{Value, json};

use crate::support::blocks::{self, files_before, rendered};
use crate::support::case::Case;
use crate::support::client::Client;
use crate::support::model::Model;
use crate::support::persona::{self, MARKER};
use crate::support::stage::{Stage, holds};
use crate::support::story;

fn write(stage: &Stage) {
    persona::write(stage);
    stage.write("BOOTSTRAP.md", "Greet Ada.\n");
    stage.write("MEMORY.md", "It rained on Monday.\n");
    for name in ["knit", "<bake>"] {
        let folder = stage.workspace.join("skills").join(name);
        fs::create_dir_all(&folder).unwrap();
        let text = format!(
            "---\nname: {name}\ndescription: Use when: asked to {name} & more.\n---\nbody\n"
        );
        fs::write(folder.join("SKILL.md"), text).unwrap();
    }
    let folder = stage.workspace.join("users/ada");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("USER.md"), "Ada likes caf\u{e9}\u{301}s.\r\n").unwrap();
}

/// The instructions of each request of a thread's turn, from the prompt on.
fn instructions(stage: &Stage, thread: &str, prompt: &str) -> Vec<String> {
    let requests = stage.endpoint.model_requests();
    let of_thread = requests
        .iter()
        .filter(|it| it.thread() == Some(thread) && it.turn().is_some());
    let last_text = |it: &Recorded| {
        let input = it.json().unwrap()["input"].as_array().cloned().unwrap();
        let asked = input.iter().rfind(|item| item["role"] == "user").cloned();
        asked.unwrap_or_default()["content"][0]["text"].clone()
    };
    let asked = of_thread.filter(|it| last_text(it) == prompt);
    asked
        .map(|it| it.instructions().unwrap_or_default().to_owned())
        .collect()
}

async fn turn(client: &mut Client, thread: &str, prompt: &str, relay: Value) {
    let turn = client
        .turn_with(thread, prompt, json!({"relay": relay}))
        .await;
    assert_eq!(turn["status"], "completed", "{turn}\n{}", client.stderr());
}

async fn model_gets_what_render_prints(case: Case) {
    let stage = Stage::set(case).await;
    write(&stage);
    let mut client = stage.relay().option("--profile", "ada").start().await;
    let thread = client.thread("thread/start", json!({})).await;
    turn(&mut client, &thread, "one", json!({})).await;
    let tools = json!([
        {"type": "function", "name": "memory_search", "description": "d", "inputSchema": {"type": "object"}},
        {"type": "namespace", "name": "memory", "description": "d", "tools": [
            {"type": "function", "name": "memory_get", "description": "d", "deferLoading": true,
             "inputSchema": {"type": "object"}},
        ]},
    ]);
    let served = client
        .thread("thread/start", json!({"dynamicTools": tools}))
        .await;
    turn(&mut client, &served, "two", json!({})).await;
    turn(
        &mut client,
        &served,
        "three",
        json!({"toolsDisabled": true}),
    )
    .await;
    client
        .thread("thread/resume", json!({"threadId": served}))
        .await;
    turn(&mut client, &served, "four", json!({})).await;
    assert!(client.close().await.success());

    let plain = rendered(&stage, &["--profile", "ada", "render"]).await;
    let stderr = String::from_utf8_lossy(&plain.stderr).into_owned();
    assert!(plain.status.success(), "{stderr}");
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert!(plain.contains("Ada likes"), "{plain}");
    let pointer = [
        "--profile",
        "ada",
        "render",
        "--thread-tools",
        "memory_search,memory_get",
    ];
    let pointer = String::from_utf8(rendered(&stage, &pointer).await.stdout).unwrap();
    assert!(pointer.contains("MEMORY.md and beside it"), "{pointer}");
    assert_eq!(instructions(&stage, &thread, "one"), [plain.clone()]);
    assert_eq!(instructions(&stage, &served, "two"), [pointer.clone()]);
    assert_eq!(instructions(&stage, &served, "three"), [plain]);
    assert_eq!(instructions(&stage, &served, "four"), [pointer]);
    assert_eq!(
        files_before(&stage, &thread, "one"),
        [["BOOTSTRAP.md", "MEMORY.md"]]
    );
    assert_eq!(files_before(&stage, &served, "two"), [["BOOTSTRAP.md"]]);
    assert_eq!(files_before(&stage, &served, "three"), [["MEMORY.md"]]);
    assert!(files_before(&stage, &served, "four").is_empty());
    let json = rendered(&stage, &["--profile", "ada", "render", "--json"])
        .await
        .stdout;
    let json: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(
        json["context"]["text"],
        instructions(&stage, &thread, "one")[0]
    );
    let block = &blocks::before(&stage, &thread, "one")[0];
    assert_eq!(json["references"]["text"], *block);
    let users: Vec<_> = stage
        .files_of_codex()
        .into_iter()
        .filter(|it| holds(it, "Ada likes"))
        .collect();
    assert!(users.is_empty(), "{users:?}");
}
matrix!(model_gets_what_render_prints: versions);

async fn every_kind_of_turn_gets_its_context(case: Case) {
    let stage = Stage::set(case).await;
    write(&stage);
    let mut client = stage.relay().start().await;
    let start = json!({"relay": {"profile": "ada", "memoryTools": true}});
    let thread = client.thread("thread/start", start).await;
    turn(
        &mut client,
        &thread,
        "cron-lightweight",
        json!({"kind": "cron-lightweight"}),
    )
    .await;
    assert!(files_before(&stage, &thread, "cron-lightweight").is_empty());
    let scratch = "look \"after\" the cat\n";
    let heartbeat = json!({"kind": "heartbeat", "scratch": scratch});
    turn(&mut client, &thread, "heartbeat", heartbeat).await;
    assert!(files_before(&stage, &thread, "heartbeat").is_empty());
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
    assert_eq!(files_before(&stage, &thread, "user"), [["BOOTSTRAP.md"]]);
    assert!(files_before(&stage, &thread, "cron").is_empty());
    assert_eq!(
        files_before(&stage, &thread, "tools-disabled"),
        [["MEMORY.md"]]
    );
    assert!(files_before(&stage, &thread, "ring-zero").is_empty());
    let mut texts = Vec::new();
    for kind in [
        "user",
        "heartbeat",
        "cron",
        "cron-lightweight",
        "message-only",
        "tools-disabled",
        "ring-zero",
    ] {
        let arguments = [
            "--profile",
            "ada",
            "render",
            "--kind",
            kind,
            "--thread-tools",
            "memory_search,memory_get",
        ];
        let text = String::from_utf8(rendered(&stage, &arguments).await.stdout).unwrap();
        assert_eq!(
            instructions(&stage, &thread, kind),
            [text.clone()],
            "{kind}"
        );
        texts.push(text);
    }
    let [
        user,
        heartbeat,
        cron,
        light,
        message_only,
        tools_disabled,
        ring_zero,
    ] = &texts[..]
    else {
        panic!("{texts:?}")
    };
    assert!(heartbeat.starts_with(&format!("{user}\n\n# Heartbeat\n\n")));
    assert_eq!(*cron, format!("{light}\n\n{user}"));
    assert!(light.starts_with("# Scheduled job\n\n") && !light.contains(MARKER));
    assert_eq!(message_only, user);
    assert_eq!(tools_disabled, ring_zero);
    assert!(!tools_disabled.contains("memory_search") && user.contains("memory_search"));
    assert_scratch_ends_the_input(&stage, &thread, scratch);
}
matrix!(every_kind_of_turn_gets_its_context: transports);

fn assert_scratch_ends_the_input(stage: &Stage, thread: &str, scratch: &str) {
    let requests = stage.endpoint.model_requests();
    let asked = requests.iter().find_map(|it| {
        let input = it.json()?["input"].as_array()?;
        let last = input.iter().rfind(|item| item["role"] == "user")?;
        (it.thread() == Some(thread) && last["content"][0]["text"] == "heartbeat")
            .then(|| last["content"].clone())
    });
    assert_eq!(asked.unwrap()[1]["text"], scratch);
    let with_scratch = |it: &&std::sync::Arc<Recorded>| {
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
            json!({"context": {"text": "x"}}),
            "relay.context: is no member",
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
        .call("thread/start", json!({"relay": {"policy": ""}}))
        .await;
    assert!(
        error.unwrap_err()["message"]
            .as_str()
            .unwrap()
            .contains("relay.policy")
    );
    turn(&mut client, &thread, "hello", Value::Null).await;
    assert!(client.close().await.success());
    let instructions = instructions(&stage, &thread, "hello");
    assert!(
        instructions[0].starts_with("# Scheduled job\n\n"),
        "the thread's own kind"
    );
    assert!(!holds(&stage.copy_of_stdin(), "\"relay\""));
    assert!(!holds(&stage.copy_of_stdin(), "weekly"));
}
matrix!(relay_member_is_strict_and_never_reaches_codex: versions);

/// Answers that the context window is exceeded where the prompt says so.
struct Overflows(Model);

impl Script for Overflows {
    fn reply(&self, request: &Recorded) -> Reply {
        let input = request.json().and_then(|body| body["input"].as_array());
        let asked = input.and_then(|input| input.last()).map(Value::to_string);
        if asked.is_some_and(|asked| asked.contains("[overflow]")) {
            let failed = events::failed("resp", "context_length_exceeded", "no room left");
            return Reply::events([events::created("resp"), failed]);
        }
        self.0.reply(request)
    }
}

async fn thread_with_a_full_context_compacts_and_goes_on(case: Case) {
    let stage = Stage::with(case, Overflows(Model::default())).await;
    persona::write(&stage);
    let config = stage.home.with_file_name("relay.toml");
    fs::write(
        &config,
        "[budgets]\nfile_chars = 300000\ntotal_chars = 300000\n",
    )
    .unwrap();
    stage.write("IDENTITY.md", &format!("begin {} end", "x".repeat(261_000)));
    let config = config.display().to_string();
    let mut client = stage.relay().option("--config", &config).start().await;
    let thread = client.thread("thread/start", json!({})).await;
    turn(&mut client, &thread, "[full]", json!({})).await;
    turn(&mut client, &thread, "two", json!({})).await;
    let overflow = client.turn(&thread, "[overflow]").await;
    assert_eq!(overflow["status"], "failed", "{overflow}");
    assert_eq!(
        overflow["error"]["codexErrorInfo"], "contextWindowExceeded",
        "{overflow}"
    );
    story::compact(&mut client, &thread).await;
    turn(&mut client, &thread, "four", json!({})).await;
    assert!(client.close().await.success());
    let requests = stage.endpoint.model_requests();
    let of = |purpose: &str| -> Vec<usize> {
        let of_purpose = requests
            .iter()
            .filter(|it| it.purpose().as_deref() == Some(purpose));
        of_purpose.map(|it| persona::copies(it, MARKER)).collect()
    };
    assert_eq!(
        of("compaction"),
        [0, 0],
        "codex compacted by itself, then when asked"
    );
    assert_eq!(of("turn"), [1; 4]);
    let text = &instructions(&stage, &thread, "four")[0];
    assert!(text.len() > 260_000 && text.contains(" end"));
}
matrix!(thread_with_a_full_context_compacts_and_goes_on: transports);

async fn files_that_go_while_turns_run_cost_no_turn(case: Case) {
    let stage = Stage::set(case).await;
    write(&stage);
    let mut client = stage.relay().start().await;
    let thread = client.thread("thread/start", json!({})).await;
    turn(&mut client, &thread, "one", json!({})).await;
    fs::remove_file(stage.workspace.join("USER.md")).unwrap();
    symlink("/etc/passwd", stage.workspace.join("USER.md")).unwrap();
    fs::remove_dir_all(stage.workspace.join("skills")).unwrap();
    fs::write(stage.workspace.join("skills"), "a file").unwrap();
    fs::write(stage.workspace.join("IDENTITY.md"), b"broken \xff bytes\0").unwrap();
    turn(&mut client, &thread, "two", json!({})).await;
    let text = &instructions(&stage, &thread, "two")[0];
    assert!(text.contains("broken \u{fffd} bytes\0"), "{text}");
    assert!(!text.contains("root:") && !text.contains("# Skills"));
    assert!(
        client
            .stderr()
            .contains("USER.md left out: it is reached by a symbolic link")
    );
    fs::remove_dir_all(&stage.workspace).unwrap();
    let params = json!({"threadId": thread, "input": [{"type": "text", "text": "three"}]});
    let error = client.call("turn/start", params).await.unwrap_err();
    assert_eq!(error["data"]["reason"], "context_unavailable", "{error}");
    fs::create_dir(&stage.workspace).unwrap();
    stage.write("SOUL.md", MARKER);
    turn(&mut client, &thread, "four", json!({})).await;
    assert!(client.close().await.success());
    assert!(instructions(&stage, &thread, "four")[0].contains(MARKER));
}
matrix!(files_that_go_while_turns_run_cost_no_turn: versions);
