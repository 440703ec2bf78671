//! The real codex, its model behind a proxy and a private authority.

use std::path::PathBuf;

use codex_relay::commands::witness::Kind;

use crate::support::case::{Case, Transport};
use crate::support::front::{Authority, Behind, Front};
use crate::support::launch::Launch;
use crate::support::persona::{self, injected_text};
use crate::support::proxy::{ForwardProxy, PASSWORD, UPSTREAM, hosts_file};
use crate::support::stage::Stage;

/// The stage's endpoint behind TLS, and the file of its authority.
async fn front(stage: &Stage) -> (Front, PathBuf) {
    let authority = Authority::new("Authority of the test");
    let behind = Behind::Endpoint(stage.endpoint.address());
    let front = Front::start(&authority, UPSTREAM, behind).await;
    (front, authority.file(&stage.home))
}

fn url(front: &Front) -> String {
    format!("https://{UPSTREAM}:{}/v1", front.address.port())
}

async fn turns_go_through_the_proxy_alone(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let (front, roots) = front(&stage).await;
    let proxy = ForwardProxy::with_login().await;
    // Nobody listens on port 1: what went to that proxy would be lost. Codex must reach us without it.
    let launch = stage
        .relay()
        .upstream(&url(&front))
        .option("--ca-file", roots.to_str().unwrap())
        .env("https_proxy", proxy.url("http"))
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .env("http_proxy", "http://127.0.0.1:1")
        .env("ALL_PROXY", "http://127.0.0.1:1");
    let (mut client, thread) = launch.with_thread().await;
    let turn = client.turn(&thread, "hello").await;
    assert_eq!(turn["status"], "completed", "{turn}\n{}", client.stderr());
    let requests = stage.endpoint.model_requests();
    let turns: Vec<_> = requests.iter().filter(|it| it.turn().is_some()).collect();
    assert_eq!(turns.len(), 1);
    injected_text(turns[0], None);
    assert_eq!(
        turns[0].kind == Kind::Message,
        case.transport == Transport::WebSocket
    );
    assert!(proxy.tunnels() > 0);
    assert!(!client.stderr().contains(PASSWORD));
    assert!(client.close().await.success());
}
matrix!(turns_go_through_the_proxy_alone: new);

/// Runs a turn that fails, and gives the words that its client sees.
async fn failing_turn(launch: Launch<'_>) -> String {
    let (mut client, thread) = launch.with_thread().await;
    let turn = client.turn(&thread, "hello").await;
    assert_eq!(turn["status"], "failed", "{turn}");
    assert!(!client.stderr().contains(PASSWORD), "{}", client.stderr());
    assert!(client.close().await.success());
    turn["error"]["message"].as_str().unwrap().to_owned()
}

async fn faults_that_last_end_the_turn_in_words(case: Case) {
    let stage = Stage::set(case).await;
    let (front, _) = front(&stage).await;
    let proxy = ForwardProxy::with_login().await;
    let open = ForwardProxy::tinyproxy("").await;
    let relay = || stage.relay().upstream(&url(&front));
    let port = front.address.port();
    let wrong = format!("http://me:{PASSWORD}x@{}", proxy.address);
    let refused = failing_turn(relay().option("--proxy", &wrong)).await;
    let words = format!(
        "cannot reach {UPSTREAM}:{port}: proxy {} answered 40",
        proxy.address
    );
    assert!(refused.contains(&words), "{refused}");
    assert!(refused.contains("(upstream_proxy_failed)"), "{refused}");
    let open = format!("http://{}", open.address);
    let unknown = failing_turn(relay().option("--proxy", &open)).await;
    let words = "tls: unknown issuer CN=Authority of the test (upstream_tls_failed)";
    assert!(unknown.contains(words), "{unknown}");
    assert_eq!(stage.endpoint.model_requests().len(), 0);
}
matrix!(faults_that_last_end_the_turn_in_words: versions);

async fn service_at_a_private_address_is_refused(case: Case) {
    let stage = Stage::set(case).await;
    let hosts = hosts_file(&stage.home, "10.0.0.7 api.openai.com\n");
    let mut launch = stage.relay().by_account().env("HTTPS_PROXY", "");
    for (name, value) in hosts {
        launch = launch.env(name, value);
    }
    let refused = failing_turn(launch).await;
    let words = "dns: api.openai.com is 10.0.0.7 here, a private address";
    assert!(refused.contains(words), "{refused}");
}
matrix!(service_at_a_private_address_is_refused: versions);
