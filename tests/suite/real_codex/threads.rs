//! Threads that come back, and what stays behind of a session: nothing of the relay's.

use std::collections::BTreeSet;
use std::fs;

use codex_relay::commands::endpoint::{Endpoint, OverHttp};
use serde_json::{Value, json};

use crate::support::case::{Case, Transport};
use crate::support::client::Client;
use crate::support::codex::Version;
use crate::support::model::Model;
use crate::support::persona::{self, MARKER, injected_text};
use crate::support::stage::{Stage, holds};
use crate::support::story;

async fn fork_stays_on_the_route(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let (mut client, thread) = stage.relay().with_thread().await;
    client.turn(&thread, "hello").await;
    let fork = json!({"threadId": thread, "excludeTurns": true});
    let fork = client.thread("thread/fork", fork).await;
    assert_ne!(fork, thread);
    let turn = client.turn(&fork, "[commands 1]").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    client.turn(&thread, "hello again").await;
    assert!(client.close().await.success());
    assert_eq!(injected_turns(&stage, &fork), 2);
    assert_eq!(injected_turns(&stage, &thread), 2);
}
matrix!(fork_stays_on_the_route: all);

async fn thread_that_another_relay_resumes_stays_on_the_route(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let (mut client, thread) = stage.relay().with_thread().await;
    client.turn(&thread, "hello").await;
    assert!(client.close().await.success());
    let mut client = stage.relay().start().await;
    client
        .thread("thread/resume", json!({"threadId": thread}))
        .await;
    let turn = client.turn(&thread, "[commands 1]").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    assert!(client.close().await.success());
    assert_eq!(injected_turns(&stage, &thread), 3);
}
matrix!(thread_that_another_relay_resumes_stays_on_the_route: all);

/// Counts the requests of a thread's turns that arrived; each must have been injected.
fn injected_turns(stage: &Stage, thread: &str) -> usize {
    let requests = stage.endpoint.model_requests();
    let of_thread = requests
        .iter()
        .filter(|it| it.thread() == Some(thread) && it.turn().is_some());
    let texts: Vec<_> = of_thread.map(|it| injected_text(it, None)).collect();
    texts.len()
}

/// Everything that makes codex write something down.
async fn whole_story(client: &mut Client, version: Version) -> String {
    let thread = client.thread("thread/start", json!({})).await;
    client.turn(&thread, "[commands 1]").await;
    story::spawn_child(client, &thread).await;
    story::review(client, &thread).await;
    story::guarded_turn(client, &thread).await;
    story::compact(client, &thread).await;
    let turn = client.turn(&thread, "hello").await;
    if version == Version::V171 {
        story::sample(client, &thread, &turn).await;
    }
    let fork = json!({"threadId": thread, "excludeTurns": true});
    let fork = client.thread("thread/fork", fork).await;
    client.turn(&fork, "hello").await;
    thread
}

async fn codex_stores_no_byte_of_the_persona(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let mut client = stage.relay().start().await;
    whole_story(&mut client, case.version).await;
    assert!(client.close().await.success());
    let files = stage.files_of_codex();
    let holders: Vec<_> = files.iter().filter(|it| holds(it, MARKER)).collect();
    assert!(holders.is_empty(), "{holders:?}");
    // The search would have found it: the prompts are there.
    let of_prompt: Vec<_> = files
        .iter()
        .filter(|it| holds(it, "[commands 1]"))
        .collect();
    let in_rollout = |it: &&std::path::PathBuf| it.extension().is_some_and(|it| it == "jsonl");
    assert!(of_prompt.iter().any(in_rollout), "{of_prompt:?}");
}
matrix!(codex_stores_no_byte_of_the_persona: all);

async fn relay_leaves_the_files_that_a_plain_codex_leaves(case: Case) {
    let plain = Stage::set(case).await;
    let mut client = plain.plain().start().await;
    whole_story(&mut client, case.version).await;
    assert!(client.close().await.success());
    let relayed = Stage::set(case).await;
    persona::write(&relayed);
    let config = fs::read(relayed.codex_home.join("config.toml")).unwrap();
    let mut client = relayed.relay().start().await;
    whole_story(&mut client, case.version).await;
    assert!(client.close().await.success());
    assert_eq!(
        fs::read(relayed.codex_home.join("config.toml")).unwrap(),
        config
    );
    assert_eq!(names(&relayed), names(&plain));
    let entries = |stage: &Stage| fs::read_dir(&stage.home).unwrap().count();
    assert_eq!(
        (entries(&relayed), entries(&plain)),
        (0, 0),
        "the home folder stays empty"
    );
}
matrix!(relay_leaves_the_files_that_a_plain_codex_leaves: versions);

/// What is in `CODEX_HOME`: the names in the folder itself, and the kinds of file in each folder of it.
///
/// Names further down hold ids and dates, some files come and go with a command or a database.
fn names(stage: &Stage) -> BTreeSet<String> {
    let files = stage.files_of_codex().into_iter();
    let names = files.map(|it| {
        let path = it.strip_prefix(&stage.codex_home).unwrap();
        let top = path.iter().next().unwrap().display().to_string();
        let top = top.trim_end_matches("-shm").trim_end_matches("-wal");
        let kind = it.extension().unwrap_or_default().display();
        if path.iter().count() == 1 {
            top.to_owned()
        } else {
            format!("{top}/*.{kind}")
        }
    });
    names
        .filter(|it| !it.starts_with("shell_snapshots/"))
        .collect()
}

async fn plain_codex_goes_on_afterwards_where_its_own_config_says(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let (mut client, thread) = stage.relay().with_thread().await;
    client.turn(&thread, "hello").await;
    assert!(client.close().await.success());
    let seen = stage.endpoint.journal().requests.len();

    let mut client = stage.plain().unrouted().start().await;
    let config = client.ok("config/read", json!({})).await["config"].clone();
    assert_eq!(
        config.get("openai_base_url").unwrap_or(&Value::Null),
        &Value::Null
    );
    assert!(!config.to_string().contains("127.0.0.1:") || !config.to_string().contains("/v1"));
    assert!(client.close().await.success());

    let own = match case.transport {
        Transport::Http => Endpoint::start(OverHttp(Model::default())).await,
        Transport::WebSocket => Endpoint::start(Model::default()).await,
    };
    let own = own.unwrap();
    let config = stage.codex_home.join("config.toml");
    let line = format!("openai_base_url = {:?}\n", own.base_url());
    let before = fs::read_to_string(&config).unwrap();
    fs::write(&config, line + &before).unwrap();
    let mut client = stage.plain().unrouted().start().await;
    let listed = client.ok("thread/list", json!({})).await;
    let listed = listed["data"].as_array().unwrap();
    assert!(
        listed.iter().any(|it| it["id"] == thread.as_str()),
        "{listed:?}"
    );
    client
        .thread("thread/resume", json!({"threadId": thread}))
        .await;
    let turn = client.turn(&thread, "hello again").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    assert!(client.close().await.success());
    assert_eq!(stage.endpoint.journal().requests.len(), seen);
    let requests = own.model_requests();
    assert!(requests.iter().any(|it| it.turn().is_some()));
    let copies = requests.iter().map(|it| persona::copies(it, MARKER));
    assert_eq!(copies.sum::<usize>(), 0);
}
matrix!(plain_codex_goes_on_afterwards_where_its_own_config_says: all);
