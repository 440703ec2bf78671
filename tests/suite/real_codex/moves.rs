//! Threads that move between a route and none: another configuration, another login, another word of the client.

use std::fs;

use serde_json::{Value, json};

use super::policy::{NEW, OLD};
use crate::support::case::Case;
use crate::support::client::Client;
use crate::support::launch::log_in;
use crate::support::orders::{replaced, told, turn};
use crate::support::persona::{self, MARKER, copies};
use crate::support::stage::Stage;
use crate::support::story;

/// Gives codex's configuration an endpoint of the user's own, or takes it away.
fn own_endpoint(stage: &Stage, is_own: bool) {
    let path = stage.codex_home.join("config.toml");
    let text = fs::read_to_string(&path).unwrap();
    let rest: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("openai_base_url"))
        .collect();
    let line = format!("openai_base_url = \"{}\"\n", stage.endpoint.base_url());
    let line = if is_own { &*line } else { "" };
    fs::write(path, format!("{line}{}\n", rest.join("\n"))).unwrap();
}

async fn thread_moves_between_a_route_and_none(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    own_endpoint(&stage, true);
    let (mut client, thread) = stage.relay().with_thread().await;
    turn(&mut client, &thread, "one").await;
    assert!(client.close().await.success());
    own_endpoint(&stage, false);
    let resume = json!({"threadId": thread});
    for (prompt, next) in [("two", "three"), ("four", "five")] {
        let mut client = stage.relay().start().await;
        client.thread("thread/resume", resume.clone()).await;
        turn(&mut client, &thread, prompt).await;
        turn(&mut client, &thread, next).await;
        if prompt == "two" {
            story::spawn_child(&mut client, &thread).await;
        }
        assert!(client.close().await.success());
    }
    let requests = stage.endpoint.model_requests();
    for child in requests.iter().filter(|it| it.is_child()) {
        assert_eq!(copies(child, MARKER), 0);
    }
    own_endpoint(&stage, true);
    let mut client = stage.relay().start().await;
    client.thread("thread/resume", resume).await;
    turn(&mut client, &thread, "six").await;
    story::compact(&mut client, &thread).await;
    turn(&mut client, &thread, "seven").await;
    assert!(client.close().await.success());
    let one = stage.asked(&thread, "one");
    assert_eq!(told(&one, MARKER).len(), 1);
    assert!(!one.instructions().unwrap_or_default().contains(MARKER));
    for prompt in ["two", "three", "four", "five"] {
        let request = stage.asked(&thread, prompt);
        let said = replaced(&request);
        assert_eq!(said.len(), 1, "{prompt}: the section is withdrawn once");
        assert!(said[0].starts_with("# Developer instructions withdrawn"));
        assert!(request.instructions().unwrap().contains(MARKER));
    }
    let six = stage.asked(&thread, "six");
    assert_eq!(replaced(&six).len(), 2);
    assert!(replaced(&six)[1].contains(MARKER));
    let seven = stage.asked(&thread, "seven");
    assert_eq!(copies(&seven, MARKER), 1);
    assert!(!seven.instructions().unwrap_or_default().contains(MARKER));
}
matrix!(thread_moves_between_a_route_and_none: http);

async fn resume_of_a_loaded_thread_moves_it(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let (mut client, thread) = stage.relay().with_thread().await;
    turn(&mut client, &thread, "one").await;
    let own = json!({"openai_base_url": stage.endpoint.base_url()});
    let resume = json!({"threadId": thread, "config": own});
    client.thread("thread/resume", resume).await;
    turn(&mut client, &thread, "two").await;
    turn(&mut client, &thread, "three").await;
    let back = json!({"threadId": thread, "config": {}});
    client.thread("thread/resume", back).await;
    turn(&mut client, &thread, "four").await;
    assert!(client.close().await.success());
    let has = |prompt: &str| {
        let request = stage.asked(&thread, prompt);
        let instructions = request.instructions().unwrap_or_default().to_owned();
        (instructions.contains(MARKER), replaced(&request).len())
    };
    assert_eq!(has("one"), (true, 0));
    assert_eq!(has("two"), (false, 1));
    assert_eq!(has("three"), (false, 1));
    assert_eq!(has("four"), (true, 2));
}
matrix!(resume_of_a_loaded_thread_moves_it: http);

/// Logs in with a key for another provider, whose models codex takes from then on.
async fn log_in_elsewhere(client: &mut Client) {
    let from = client.inbox.len();
    let bedrock = json!({"type": "amazonBedrock", "apiKey": "bk-test", "region": "us-east-1"});
    client.ok("account/login/start", bedrock).await;
    let is_told = |params: &Value| params["authMode"] == "bedrockApiKey";
    client.notification(from, "account/updated", is_told).await;
}

/// Logs in as before.
async fn log_in_again(client: &mut Client, case: Case) {
    let from = client.inbox.len();
    log_in(client, case.login).await;
    let is_told = |params: &Value| params["authMode"] == "apikey";
    client.notification(from, "account/updated", is_told).await;
    let provider = json!({"keyPath": "model_provider", "value": null, "mergeStrategy": "replace"});
    client.ok("config/value/write", provider).await;
}

async fn login_elsewhere_takes_the_route_and_a_login_back_gives_it(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let (mut client, thread) = stage.with_policy(OLD).with_thread().await;
    let resume = json!({"threadId": thread});
    turn(&mut client, &thread, "one").await;
    log_in_elsewhere(&mut client).await;
    let input = json!({"threadId": thread, "input": [{"type": "text", "text": "closed"}]});
    for _ in 0..2 {
        let refused = client.call("turn/start", input.clone()).await.unwrap_err();
        assert_eq!(refused["data"]["reason"], "route_closed", "{refused}");
    }
    client.thread("thread/resume", resume.clone()).await;
    assert_eq!(route(&mut client, &thread).await["status"], "fallback");
    // The thread's own provider has no credential now: what codex would have asked is in its history.
    let done = client.turn(&thread, "elsewhere").await;
    assert_eq!(done["status"], "failed", "{done}");
    log_in_again(&mut client, case).await;
    client.thread("thread/resume", resume.clone()).await;
    // Codex keeps a thread as it is whose last turn has failed.
    assert_eq!(route(&mut client, &thread).await["status"], "fallback");
    assert!(client.close().await.success());
    let mut client = stage.with_policy(NEW).start().await;
    client.thread("thread/resume", resume).await;
    assert_eq!(route(&mut client, &thread).await["status"], "active");
    turn(&mut client, &thread, "back").await;
    turn(&mut client, &thread, "still back").await;
    story::spawn_child(&mut client, &thread).await;
    story::compact(&mut client, &thread).await;
    turn(&mut client, &thread, "compacted").await;
    assert!(client.close().await.success());
    let requests = stage.endpoint.model_requests();
    assert!(requests.iter().all(|it| copies(it, "\"closed\"") == 0));
    for prompt in ["back", "still back"] {
        let request = stage.asked(&thread, prompt);
        assert!(request.instructions().unwrap().contains(MARKER));
        let said = replaced(&request);
        let has = |at: usize| [OLD, NEW, MARKER].map(|word| said[at].contains(word));
        assert_eq!(said.len(), 2, "{prompt}: {said:?}");
        assert_eq!(has(0), [true, false, true], "its section");
        assert_eq!(has(1), [false, true, false], "the section is withdrawn");
    }
    let child = requests.iter().find(|it| it.is_child()).unwrap();
    assert_eq!((copies(child, MARKER), copies(child, NEW)), (0, 1));
    let compacted = stage.asked(&thread, "compacted");
    assert_eq!(
        (copies(&compacted, MARKER), copies(&compacted, OLD)),
        (1, 0)
    );
}
matrix!(login_elsewhere_takes_the_route_and_a_login_back_gives_it: http);

/// What the relay says of a thread's route.
async fn route(client: &mut Client, thread: &str) -> Value {
    let status = client.ok("relay/status", json!({"threadId": thread})).await;
    status["threads"][0]["route"].clone()
}

async fn thread_moves_behind_the_turn_after_a_failed_one(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let (mut client, thread) = stage.relay().with_thread().await;
    turn(&mut client, &thread, "one").await;
    let own = json!({"openai_base_url": stage.endpoint.base_url()});
    let there = json!({"threadId": thread, "config": own});
    let back = json!({"threadId": thread, "config": {}});
    for (way, prompts, now) in [
        (there, ["two", "three"], "active"),
        (back, ["four", "five"], "fallback"),
    ] {
        let done = client.turn(&thread, "[fail]").await;
        assert_eq!(done["status"], "failed", "{done}");
        client.thread("thread/resume", way).await;
        assert_eq!(route(&mut client, &thread).await["status"], now);
        for prompt in prompts {
            turn(&mut client, &thread, prompt).await;
        }
        assert_ne!(route(&mut client, &thread).await["status"], now);
    }
    assert!(client.close().await.success());
    let has = |prompt: &str| {
        let request = stage.asked(&thread, prompt);
        let instructions = request.instructions().unwrap_or_default().to_owned();
        (instructions.contains(MARKER), replaced(&request).len())
    };
    assert_eq!(has("two"), (true, 0), "on its old way");
    assert_eq!(has("three"), (false, 1));
    assert_eq!(has("four"), (false, 1), "on its old way");
    assert_eq!(has("five"), (true, 2));
}
matrix!(thread_moves_behind_the_turn_after_a_failed_one: http);
