//! What is none of the relay's business passes: requests to other paths, headers, questions to the client.

use codex_relay::commands::tap;
use codex_relay::commands::witness::{Kind, Recorded, pair};
use serde_json::json;

use crate::support::case::{Case, Login};
use crate::support::codex::Version;
use crate::support::inbox::Line;
use crate::support::persona;
use crate::support::stage::Stage;

async fn heads_arrive_as_codex_sent_them(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let mut client = stage.relay().tapped().start().await;
    let thread = client.thread("thread/start", json!({})).await;
    client.turn(&thread, "hello").await;
    assert!(client.close().await.success());
    let sent = tap::sent(&stage.tapes()).await.unwrap();
    let arrived = stage.endpoint.journal().requests;
    let is_no_model_request = |it: &Recorded| !it.is_model_request();
    let pairing = pair(&sent, &arrived, is_no_model_request);
    assert!(
        pairing.lost.is_empty() && pairing.foreign.is_empty(),
        "{pairing:?}"
    );
    for pair in &pairing.pairs {
        assert_eq!(pair.sent.head.method, pair.arrived.head.method);
        assert!(pair.sent.head.target.ends_with(&pair.arrived.head.target));
        assert_eq!(pair.changed_headers(), [""; 0], "{pair:?}");
    }
    let upgrades = arrived.iter().filter(|it| it.kind == Kind::Upgrade);
    assert!(upgrades.count() > 0);
    let models = arrived.iter().filter(|it| it.path() == "/v1/models");
    let asks = case.login == Login::ChatGpt && case.version == Version::V171;
    assert_eq!(models.count() > 0, asks);
    let account = arrived
        .iter()
        .all(|it| it.head.header("chatgpt-account-id").is_some());
    assert_eq!(account, case.login == Login::ChatGpt);
}
matrix!(heads_arrive_as_codex_sent_them: all);

async fn question_of_codex_and_its_answer_pass(case: Case) {
    let stage = Stage::set(case).await;
    let mut client = stage.relay().start().await;
    let thread = client.thread("thread/start", json!({})).await;
    let more = json!({"approvalPolicy": "on-request"});
    let turn = client.turn_with(&thread, "[approval]", more).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let asked = client.inbox.since(0).into_iter().filter(Line::is_request);
    let asked: Vec<_> = asked.map(|it| it.method().unwrap().to_owned()).collect();
    assert_eq!(asked, ["item/commandExecution/requestApproval"]);
    assert!(
        stage.project.path().join("approved").exists(),
        "the answer arrived"
    );
    assert!(client.close().await.success());
}
matrix!(question_of_codex_and_its_answer_pass: versions);

async fn workspace_without_a_persona_leaves_requests_alone(case: Case) {
    let stage = Stage::set(case).await;
    let mut client = stage.relay().tapped().start().await;
    let thread = client.thread("thread/start", json!({})).await;
    client.turn(&thread, "[commands 1]").await;
    assert!(client.close().await.success());
    let traffic = stage.traffic().await;
    assert!(
        traffic.lost.is_empty() && traffic.foreign.is_empty(),
        "{traffic:?}"
    );
    assert!(
        traffic
            .pairs
            .iter()
            .filter(|it| it.sent.turn().is_some())
            .count()
            == 2
    );
    for pair in &traffic.pairs {
        persona::assert_untouched(pair);
    }
}
matrix!(workspace_without_a_persona_leaves_requests_alone: transports);
