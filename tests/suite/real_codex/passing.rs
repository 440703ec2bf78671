//! What is none of the relay's business passes: requests to other paths, headers, questions to the client.

use codex_relay::commands::endpoint::{Journal, OverHttp, Reply, Script, Signal, Step, events};
use codex_relay::commands::tap;
use codex_relay::commands::witness::{Kind, Recorded, pair};
use serde_json::{Value, json};

use crate::support::PATIENCE;
use crate::support::case::{Case, Login};
use crate::support::codex::Version;
use crate::support::inbox::Line;
use crate::support::model::Model;
use crate::support::persona;
use crate::support::stage::Stage;
use crate::support::story;

async fn heads_arrive_as_codex_sent_them(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let (mut client, thread) = stage.relay().tapped().with_thread().await;
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
    let (mut client, thread) = stage.relay().with_thread().await;
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
    let (mut client, thread) = stage.relay().tapped().with_thread().await;
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

async fn client_is_not_told_what_it_opted_out_of(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let unwanted = [
        "turn/completed",
        "item/started",
        "thread/tokenUsage/updated",
    ];
    let (mut client, thread) = stage.relay().opting_out(&unwanted).with_thread().await;
    // The relay itself needs to know when a turn is over: a turn after it has another text. The client can't see which
    // turn that is, so it tries more than one.
    let mut goes_on = false;
    for number in 0..20 {
        stage.write("USER.md", &format!("They just said {number}."));
        let from = client.inbox.len();
        client.start_turn(&thread, "hello").await;
        let is_idle = |params: &Value| params["status"]["type"] == "idle";
        client
            .notification(from, "thread/status/changed", is_idle)
            .await;
        let requests = stage.endpoint.model_requests();
        let injected = persona::injected_text(requests.last().unwrap(), None);
        goes_on = !injected.contains("They just said 0.");
        if goes_on {
            break;
        }
    }
    assert!(goes_on, "every turn has the text of the first");
    let inbox = client.inbox.clone();
    assert!(client.close().await.success());
    let told = inbox.since(0);
    let told: Vec<_> = told.iter().filter_map(Line::method).collect();
    assert!(!told.iter().any(|it| unwanted.contains(it)), "{told:?}");
    assert!(told.contains(&"item/completed"), "{told:?}");
}
matrix!(client_is_not_told_what_it_opted_out_of: versions);

async fn interrupted_turn_ends_its_request_and_the_thread_goes_on(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let (mut client, thread) = stage.relay().with_thread().await;
    let from = client.inbox.len();
    let turn = client.start_turn(&thread, "[hold]").await["id"].clone();
    story::seen(&stage, "turn").await;
    let requests = stage.endpoint.model_requests();
    let held = requests
        .iter()
        .find(|it| it.turn().is_some())
        .unwrap()
        .connection;
    client
        .ok(
            "turn/interrupt",
            json!({"threadId": thread, "turnId": turn}),
        )
        .await;
    let ended = client.turn_end(from, &thread).await;
    assert_eq!(ended["status"], "interrupted", "{ended}");
    let is_over = |journal: &Journal| {
        let mut ended = journal.ended.iter();
        ended.any(|it| it.connection == held).then_some(())
    };
    stage.endpoint.wait_for(PATIENCE, is_over).await.unwrap();
    let turn = client.turn(&thread, "hello").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    assert!(client.close().await.success());
    let requests = stage.endpoint.model_requests();
    persona::injected_text(requests.last().unwrap(), None);
}
matrix!(interrupted_turn_ends_its_request_and_the_thread_goes_on: transports);

/// Says half a word, waits, and says the rest.
struct Halting(Signal);

impl Script for Halting {
    fn reply(&self, request: &Recorded) -> Reply {
        let id = format!("resp-{}", request.number);
        if request.turn().is_none() {
            return Reply::events(events::answer(&id, []));
        }
        let item = events::message("msg-1", "half and half");
        let empty = events::message("msg-1", "");
        let delta = json!({
            "type": "response.output_text.delta",
            "item_id": "msg-1",
            "output_index": 0,
            "content_index": 0,
            "delta": "half",
        });
        let added = json!({"type": "response.output_item.added", "output_index": 0, "item": empty});
        let rest = [events::item_done(&item), events::completed(&id)];
        Reply::events([events::created(&id), added, delta])
            .then([Step::Await(self.0.clone())])
            .then(rest.map(Step::Event))
    }
}

async fn answer_streams_as_it_comes(case: Case) {
    let goes_on = Signal::new();
    let script = Halting(goes_on.clone());
    let stage = Stage::with(case, script).await;
    persona::write(&stage);
    let (mut client, thread) = stage.relay().with_thread().await;
    let from = client.inbox.len();
    client.start_turn(&thread, "hello").await;
    let is_half = |params: &Value| params["delta"] == "half";
    client
        .notification(from, "item/agentMessage/delta", is_half)
        .await;
    goes_on.give();
    let ended = client.turn_end(from, &thread).await;
    assert_eq!(ended["status"], "completed", "{ended}");
    assert!(client.close().await.success());
}
matrix!(answer_streams_as_it_comes: transports);

/// Gives each answer a header that codex has to send back within the turn.
struct Stateful(Model);

impl Script for Stateful {
    fn reply(&self, request: &Recorded) -> Reply {
        self.0.reply(request).header("x-codex-turn-state", "sticky")
    }
}

async fn header_of_an_answer_reaches_codex(case: Case) {
    let stage = Stage::with(case, OverHttp(Stateful(Model::default()))).await;
    let (mut client, thread) = stage.relay().with_thread().await;
    client.turn(&thread, "[commands 1]").await;
    assert!(client.close().await.success());
    let requests = stage.endpoint.model_requests();
    let states = requests
        .iter()
        .map(|it| it.head.header("x-codex-turn-state"));
    assert_eq!(states.collect::<Vec<_>>(), [None, Some(&b"sticky"[..])]);
}
matrix!(header_of_an_answer_reaches_codex: http);
