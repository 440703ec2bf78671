//! The persona reaches every request of the parent's turn, once, and changes nothing else.

use std::sync::Mutex;

use codex_relay::commands::endpoint::{Reply, Script, Signal, Upgrade};
use codex_relay::commands::witness::{Pair, Pairing, Recorded};
use serde_json::json;

use crate::support::case::{Case, Transport};
use crate::support::codex::Version;
use crate::support::model::Model;
use crate::support::persona::{self, MARKER, assert_injected, injected_text};
use crate::support::stage::Stage;
use crate::support::story;

/// The pairs of a traffic without losses that are for this purpose.
fn pairs_for<'a>(traffic: &'a Pairing, purpose: &str) -> Vec<&'a Pair> {
    assert!(
        traffic.lost.is_empty() && traffic.foreign.is_empty(),
        "{traffic:?}"
    );
    let is_it = |it: &&Pair| it.sent.purpose().as_deref() == Some(purpose);
    traffic.pairs.iter().filter(is_it).collect()
}

async fn parent_is_injected_in_every_step(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let relay = stage.relay().tapped().env("CODEX_RELAY_LOG", "debug");
    let (mut client, thread) = relay.with_thread().await;
    let turn = client.turn(&thread, "[commands 2]").await;
    assert_eq!(turn["status"], "completed", "{turn}\n{}", client.stderr());
    client.turn(&thread, "one more").await;
    if case.is_zstd() {
        // Codex's compressed bodies are the common case, which is edited part by part.
        let log = client.stderr();
        let edited = log.matches("compressed model request injected").count();
        assert_eq!(edited, 4, "{log}");
    }
    assert!(client.close().await.success());
    let traffic = stage.traffic().await;
    let steps = pairs_for(&traffic, "turn");
    assert_eq!(steps.len(), 4);
    let texts: Vec<_> = steps.iter().map(|it| assert_injected(it)).collect();
    assert!(texts.iter().all(|it| *it == texts[0]), "{texts:?}");
    for step in steps {
        assert_eq!(step.sent.transport(), case.transport);
        assert_eq!(
            step.sent.head.header("content-encoding").is_some(),
            case.is_zstd()
        );
        let is_incremental =
            |it: &Recorded| it.json().unwrap().get("previous_response_id").is_some();
        assert_eq!(
            is_incremental(&step.arrived),
            case.transport == Transport::WebSocket
        );
    }
}
matrix!(parent_is_injected_in_every_step: all);

/// Lets a WebSocket be opened once the signal has been given.
struct OpensLate(Model, Signal);

impl Script for OpensLate {
    fn reply(&self, request: &Recorded) -> Reply {
        self.0.reply(request)
    }

    fn upgrade(&self, _request: &Recorded) -> Upgrade {
        Upgrade::AcceptAfter(self.1.clone())
    }
}

async fn prewarm_of_a_known_thread_is_injected(case: Case) {
    let opens = Signal::new();
    let stage = Stage::with(case, OpensLate(Model::default(), opens.clone())).await;
    persona::write(&stage);
    let mut client = stage.relay().tapped().start().await;
    // Codex opens the connection while it answers: unless it is held up, the prewarm may be faster.
    let thread = client.thread("thread/start", json!({})).await;
    opens.give();
    story::seen(&stage, "prewarm").await;
    client.turn(&thread, "hello").await;
    assert!(client.close().await.success());
    let traffic = stage.traffic().await;
    let prewarms = pairs_for(&traffic, "prewarm");
    assert_eq!(prewarms.len(), 1);
    let turns = pairs_for(&traffic, "turn");
    assert_eq!(assert_injected(prewarms[0]), assert_injected(turns[0]));
}
matrix!(prewarm_of_a_known_thread_is_injected: versions);

async fn persona_comes_behind_instructions_of_the_models_own(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let mut client = stage.relay().tapped().start().await;
    let model = case.version.classic_model();
    let thread = client.thread("thread/start", json!({"model": model})).await;
    client.turn(&thread, "[commands 1]").await;
    assert!(client.close().await.success());
    let traffic = stage.traffic().await;
    let steps = pairs_for(&traffic, "turn");
    assert_eq!(steps.len(), 2);
    for step in steps {
        assert_eq!(
            step.sent.instructions().is_some(),
            case.version == Version::V155
        );
        assert_injected(step);
    }
}
matrix!(persona_comes_behind_instructions_of_the_models_own: all);

async fn client_without_the_experimental_api_gets_the_persona_too(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let (mut client, thread) = stage.relay().stable_api().tapped().with_thread().await;
    let turn = client.turn(&thread, "[commands 1]").await;
    assert_eq!(turn["status"], "completed", "{turn}\n{}", client.stderr());
    assert!(client.close().await.success());
    let traffic = stage.traffic().await;
    let steps = pairs_for(&traffic, "turn");
    assert_eq!(steps.len(), 2);
    for step in steps {
        assert_injected(step);
        let metadata = step.arrived.metadata().unwrap();
        assert_eq!(metadata.get("codex_relay_generation"), None);
    }
}
matrix!(client_without_the_experimental_api_gets_the_persona_too: transports);

async fn edit_of_the_workspace_shows_in_the_next_turn(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let (mut client, thread) = stage.relay().with_thread().await;
    client.turn(&thread, "hello").await;
    stage.write("SOUL.md", &format!("{MARKER} has burnt down."));
    client.turn(&thread, "hello again").await;
    std::fs::remove_file(stage.workspace.join("IDENTITY.md")).unwrap();
    client.turn(&thread, "and again").await;
    assert!(client.close().await.success());
    let requests = stage.endpoint.model_requests();
    let turns = requests.iter().filter(|it| it.turn().is_some());
    let texts: Vec<_> = turns.map(|it| injected_text(it, None)).collect();
    let burnt: Vec<_> = texts.iter().map(|it| it.contains("burnt down")).collect();
    assert_eq!(burnt, [false, true, true]);
    let named: Vec<_> = texts.iter().map(|it| it.contains("Marlowe")).collect();
    assert_eq!(named, [true, true, false]);
}
matrix!(edit_of_the_workspace_shows_in_the_next_turn: transports);

async fn goal_that_codex_pursues_itself_gets_the_persona(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let (mut client, thread) = stage.relay().tapped().with_thread().await;
    client.turn(&thread, "hello").await;
    let turn = story::pursue_goal(&mut client, &thread).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    assert!(client.close().await.success());
    let traffic = stage.traffic().await;
    let steps = pairs_for(&traffic, "turn");
    assert_eq!(steps.len(), 3);
    for step in steps {
        assert_injected(step);
    }
}
matrix!(goal_that_codex_pursues_itself_gets_the_persona: transports);

async fn turn_that_is_started_into_a_running_one_keeps_its_persona(case: Case) {
    let model = Model::default();
    let stage = Stage::with(case, model.clone()).await;
    persona::write(&stage);
    let (mut client, thread) = stage.relay().tapped().with_thread().await;
    let from = client.inbox.len();
    let first = client.start_turn(&thread, "[hold]").await;
    story::seen(&stage, "turn").await;
    stage.write("SOUL.md", &format!("{MARKER} has burnt down."));
    let second = client.start_turn(&thread, "steer").await;
    assert_eq!(first["id"], second["id"]);
    model.held_may_end.give();
    let ended = client.turn_end(from, &thread).await;
    assert_eq!(ended["status"], "completed", "{ended}");
    assert!(client.close().await.success());
    let requests = stage.endpoint.model_requests();
    let steps: Vec<_> = requests.iter().filter(|it| it.turn().is_some()).collect();
    assert!(steps.len() >= 2, "{steps:?}");
    for step in steps {
        assert!(!injected_text(step, None).contains("burnt down"));
    }
}
matrix!(turn_that_is_started_into_a_running_one_keeps_its_persona: versions);

async fn steered_turn_keeps_its_generation_beside_the_metadata_of_the_client(case: Case) {
    let model = Model::default();
    let stage = Stage::with(case, model.clone()).await;
    persona::write(&stage);
    let (mut client, thread) = stage.relay().tapped().with_thread().await;
    let from = client.inbox.len();
    let params = |text: &str, mine: &str| {
        json!({
            "threadId": thread,
            "input": [{"type": "text", "text": text}],
            "responsesapiClientMetadata": {"mine": mine},
        })
    };
    let started = client.ok("turn/start", params("[hold]", "first")).await;
    story::seen(&stage, "turn").await;
    let mut steer = params("and this", "second");
    steer["expectedTurnId"] = started["turn"]["id"].clone();
    client.ok("turn/steer", steer).await;
    model.held_may_end.give();
    let ended = client.turn_end(from, &thread).await;
    assert_eq!(ended["status"], "completed", "{ended}");
    assert!(client.close().await.success());
    let requests = stage.endpoint.model_requests();
    let steps: Vec<_> = requests.iter().filter(|it| it.turn().is_some()).collect();
    let said = |name: &str| {
        let values = steps.iter().map(|it| it.metadata().unwrap()[name].clone());
        values.collect::<Vec<_>>()
    };
    let mine = said("mine");
    assert_eq!(
        (&mine[0], &mine[mine.len() - 1]),
        (&json!("first"), &json!("second"))
    );
    let generations = said("codex_relay_generation");
    assert!(generations[0].is_string(), "{generations:?}");
    assert!(
        generations.iter().all(|it| *it == generations[0]),
        "{generations:?}"
    );
    for step in steps {
        injected_text(step, None);
    }
}
matrix!(steered_turn_keeps_its_generation_beside_the_metadata_of_the_client: versions);

/// Drops the connection of the first request of a turn, then plays along.
struct DropsFirst(Model, Mutex<bool>);

impl Script for DropsFirst {
    fn reply(&self, request: &Recorded) -> Reply {
        let mut dropped = self.1.lock().unwrap();
        if request.turn().is_some() && !std::mem::replace(&mut *dropped, true) {
            return Reply::drop_connection();
        }
        self.0.reply(request)
    }

    fn upgrade(&self, request: &Recorded) -> Upgrade {
        self.0.upgrade(request)
    }
}

async fn request_that_codex_repeats_is_injected_again(case: Case) {
    let script = DropsFirst(Model::default(), Mutex::new(false));
    let stage = Stage::with(case, script).await;
    persona::write(&stage);
    let (mut client, thread) = stage.relay().tapped().with_thread().await;
    let turn = client.turn(&thread, "hello").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    assert!(client.close().await.success());
    let traffic = stage.traffic().await;
    let steps = pairs_for(&traffic, "turn");
    assert!(steps.len() >= 2);
    for step in steps {
        assert_injected(step);
    }
}
matrix!(request_that_codex_repeats_is_injected_again: transports);
