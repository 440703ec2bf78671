//! What an interrupted turn has asked the model for ends at the upstream at once.

use codex_relay::commands::endpoint::Journal;
use serde_json::{Value, json};

use crate::support::PATIENCE;
use crate::support::case::Case;
use crate::support::client::Client;
use crate::support::model::Model;
use crate::support::persona::{self, MARKER};
use crate::support::stage::Stage;

/// Starts a turn whose answer is held back, and waits until the model is asked.
async fn held_turn(stage: &Stage, client: &mut Client, thread: &str) -> (String, usize) {
    let turn = client.start_turn(thread, "[hold]").await;
    let turn = turn["id"].as_str().unwrap().to_owned();
    let asked = |journal: &Journal| {
        let mut requests = journal.model_requests();
        let asked = requests.find(|it| it.turn() == Some(&turn))?;
        Some(asked.connection)
    };
    let connection = stage.endpoint.wait_for(PATIENCE, asked).await.unwrap();
    (turn, connection)
}

async fn interrupt(client: &mut Client, thread: &str, turn: &str) -> Value {
    let params = json!({"threadId": thread, "turnId": turn});
    let from = client.inbox.len();
    client.ok("turn/interrupt", params).await;
    client.turn_end(from, thread).await
}

async fn interrupted_turn_ends_its_request_and_the_next_one_goes_on(case: Case) {
    let model = Model::default();
    let stage = Stage::with(case, model.clone()).await;
    persona::write(&stage);
    let (mut client, thread) = stage.relay().with_thread().await;
    let other = client.thread("thread/start", json!({})).await;
    let (_, kept) = held_turn(&stage, &mut client, &other).await;
    let (turn, connection) = held_turn(&stage, &mut client, &thread).await;
    let ended = interrupt(&mut client, &thread, &turn).await;
    assert_eq!(ended["status"], "interrupted", "{ended}");
    let is_over = |journal: &Journal| {
        let mut ended = journal.ended.iter();
        ended.any(|it| it.connection == connection).then_some(())
    };
    stage.endpoint.wait_for(PATIENCE, is_over).await.unwrap();
    let journal = stage.endpoint.journal();
    assert!(journal.ended.iter().all(|it| it.connection != kept));
    let turn = client.turn(&thread, "again").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let from = client.inbox.len();
    model.held_may_end.give();
    let turn = client.turn_end(from, &other).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    assert!(client.close().await.success());
    let requests = stage.endpoint.model_requests();
    let turns = requests.iter().filter(|it| it.turn().is_some());
    let copies: Vec<_> = turns.map(|it| persona::copies(it, MARKER)).collect();
    assert_eq!(copies, [1; 3], "nothing was asked twice");
}
matrix!(interrupted_turn_ends_its_request_and_the_next_one_goes_on: all);
