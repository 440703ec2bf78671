//! Which threads take the private route, and which are left to their own.

use std::fs;

use codex_relay::commands::endpoint::Endpoint;
use serde_json::json;

use crate::support::case::Case;
use crate::support::client::Client;
use crate::support::model::Model;
use crate::support::persona::{self, MARKER, injected_text};
use crate::support::processes::eventually_one;
use crate::support::stage::Stage;

/// Runs a turn on a thread and asserts that its one request was injected.
async fn assert_routed(stage: &Stage, client: &mut Client, thread: &str) {
    let seen = stage.endpoint.model_requests().len();
    let turn = client.turn(thread, "hello").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let requests = stage.endpoint.model_requests();
    let turns: Vec<_> = requests[seen..]
        .iter()
        .filter(|it| it.turn().is_some())
        .collect();
    assert_eq!(turns.len(), 1);
    assert_eq!(turns[0].thread(), Some(thread));
    injected_text(turns[0], None);
}

async fn standard_endpoints_give_way_to_the_route(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let mut client = stage.relay().start().await;
    for url in [json!(null), json!(""), json!("https://api.openai.com/v1")] {
        let config = json!({"openai_base_url": url, "model_reasoning_effort": "low"});
        let thread = client
            .thread("thread/start", json!({"config": config}))
            .await;
        assert_routed(&stage, &mut client, &thread).await;
    }
    assert!(client.close().await.success());
}
matrix!(standard_endpoints_give_way_to_the_route: versions);

async fn endpoint_of_the_clients_own_is_left_to_it(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let own = Endpoint::start(Model::default()).await.unwrap();
    let mut client = stage.relay().start().await;
    let config = json!({"openai_base_url": own.base_url()});
    let thread = client
        .thread("thread/start", json!({"config": config}))
        .await;
    assert_unrouted(&stage, &mut client, &thread, &own).await;
    // Another thread of the same client isn't concerned.
    let thread = client.thread("thread/start", json!({})).await;
    assert_routed(&stage, &mut client, &thread).await;
    assert!(client.close().await.success());
}
matrix!(endpoint_of_the_clients_own_is_left_to_it: versions);

async fn endpoint_of_the_users_own_is_left_to_them(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let own = Endpoint::start(Model::default()).await.unwrap();
    let config = stage.codex_home.join("config.toml");
    let before = fs::read_to_string(&config).unwrap();
    let line = format!("openai_base_url = \"{}\"\n", own.base_url());
    fs::write(&config, line + &before).unwrap();
    let (mut client, thread) = stage.relay().with_thread().await;
    assert_unrouted(&stage, &mut client, &thread, &own).await;
    assert!(client.close().await.success());
}
matrix!(endpoint_of_the_users_own_is_left_to_them: versions);

/// Runs a turn and asserts that it went to `own` alone, with the persona in the thread's developer instructions.
async fn assert_unrouted(stage: &Stage, client: &mut Client, thread: &str, own: &Endpoint) {
    let turn = client.turn(thread, "hello").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let requests = own.model_requests();
    assert!(requests.iter().any(|it| it.turn().is_some()));
    for request in requests.iter().filter(|it| it.turn().is_some()) {
        assert_eq!(persona::copies(request, MARKER), 1);
        let instructions = request.instructions().unwrap_or_default();
        assert!(!instructions.contains(MARKER), "{instructions}");
    }
    assert_eq!(stage.endpoint.model_requests().len(), 0);
}

async fn threads_of_one_client_are_told_apart(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let mut client = stage.relay().start().await;
    let first = client.thread("thread/start", json!({})).await;
    let second = client
        .thread("thread/start", json!({"ephemeral": true}))
        .await;
    for thread in [&first, &second, &first, &second] {
        assert_routed(&stage, &mut client, thread).await;
    }
    assert!(client.close().await.success());
}
matrix!(threads_of_one_client_are_told_apart: transports);

async fn thread_that_was_put_away_comes_back_to_the_route(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let (mut client, thread) = stage.relay().with_thread().await;
    assert_routed(&stage, &mut client, &thread).await;
    let it = json!({"threadId": thread});
    client.ok("thread/archive", it.clone()).await;
    client.ok("thread/unarchive", it.clone()).await;
    client.thread("thread/resume", it.clone()).await;
    assert_routed(&stage, &mut client, &thread).await;
    client.ok("thread/unsubscribe", it.clone()).await;
    client.thread("thread/resume", it).await;
    assert_routed(&stage, &mut client, &thread).await;
    assert!(client.close().await.success());
}
matrix!(thread_that_was_put_away_comes_back_to_the_route: transports);

async fn proxy_of_the_environment_is_not_asked_for_the_route(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let closed = "http://127.0.0.1:1";
    let launch = stage
        .relay()
        .env("HTTP_PROXY", closed)
        .env("http_proxy", closed);
    let (mut client, thread) = launch.env("NO_PROXY", "example.com").with_thread().await;
    assert_routed(&stage, &mut client, &thread).await;
    assert!(client.close().await.success());
}
matrix!(proxy_of_the_environment_is_not_asked_for_the_route: transports);

async fn options_of_the_relay_are_none_of_codexs(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let launch = stage.relay().env("CODEX_RELAY_LOG", "error");
    let (mut client, thread) = launch
        .env("LD_LIBRARY_PATH", "/nowhere")
        .with_thread()
        .await;
    assert_routed(&stage, &mut client, &thread).await;
    let program = format!("{} ", stage.codex.native.display());
    let codex = eventually_one(&client.mark, |it| it.command.starts_with(&program)).await;
    let environment = fs::read(format!("/proc/{}/environ", codex.pid)).unwrap();
    let environment = String::from_utf8(environment).unwrap();
    let names: Vec<_> = environment
        .split('\0')
        .filter_map(|it| it.split('=').next())
        .collect();
    assert!(names.contains(&"CODEX_HOME"), "{names:?}");
    let is_ours = |it: &&&str| it.starts_with("CODEX_RELAY") || it.starts_with("LD_");
    assert_eq!(names.iter().find(is_ours), None);
    assert!(client.close().await.success());
}
matrix!(options_of_the_relay_are_none_of_codexs: versions);
