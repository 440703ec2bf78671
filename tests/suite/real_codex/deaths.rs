//! The real codex and its upstream die at random moments of its turns: nothing is left, and no
//! request carries a text that isn't its turn's.

use std::collections::BTreeMap;
use std::time::Duration;

use codex_relay::commands::witness::Recorded;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::supervision::codex_of;
use crate::support::cable::Cable;
use crate::support::case::Case;
use crate::support::dice::{Dice, turns};
use crate::support::processes::none_marked;
use crate::support::stage::Stage;

#[expect(clippy::print_stderr, reason = "the figures of a run")]
async fn deaths_in_mid_turn_mix_nothing_and_leave_nothing(case: Case) {
    let stage = Stage::set(case).await;
    let cable = Cable::to(stage.endpoint.address()).await;
    let url = format!("http://{}/v1", cable.address);
    let launch = || stage.relay().upstream(&url);
    let mut dice = Dice::new();
    let (mut client, mut thread) = launch().with_thread().await;
    let mut numbers = BTreeMap::new();
    let (mut kills, mut cuts, mut failed) = (0, 0, 0);
    for turn in 0..turns(12) {
        stage.write("SOUL.md", &format!("You are persona number {turn}.\n"));
        let from = client.inbox.len();
        let started = client.start_turn(&thread, "[commands 2]").await;
        numbers.insert(started["id"].as_str().unwrap().to_owned(), turn);
        let moment = Duration::from_millis(dice.roll(400));
        match dice.roll(3) {
            0 => {
                let codex = codex_of(&stage, &client).await;
                tokio::time::sleep(moment).await;
                codex.signal(Signal::SIGKILL);
                assert_eq!(client.exit().await.code(), Some(128 + 9));
                assert_nothing_torn(&client.inbox.since(0));
                none_marked(&client.mark).await;
                kills += 1;
                client = launch().start().await;
                let resumed = client.call("thread/resume", json!({"threadId": thread}));
                // Killed before it wrote anything, codex knows no such thread.
                if resumed.await.is_err() {
                    thread = client.thread("thread/start", json!({})).await;
                }
                continue;
            }
            1 => {
                tokio::time::sleep(moment).await;
                cable.cut();
                cuts += 1;
            }
            _ => {}
        }
        let end = client.turn_end(from, &thread).await;
        failed += u32::from(end["status"] != "completed");
    }
    assert_nothing_torn(&client.inbox.since(0));
    let mark = client.mark.clone();
    assert!(client.close().await.success());
    none_marked(&mark).await;
    let mut checked = 0;
    for request in stage.endpoint.model_requests() {
        let is_step = request.purpose().as_deref() == Some("turn") && !request.is_child();
        if is_step {
            assert_right_text(&request, numbers[request.turn().unwrap()]);
            checked += 1;
        }
    }
    eprintln!("{checked} requests, {kills} kills, {cuts} cuts, {failed} turns failed");
    assert!(checked > 0 && kills > 0 && cuts > 0);
}
matrix!(deaths_in_mid_turn_mix_nothing_and_leave_nothing: transports);

fn assert_nothing_torn(lines: &[crate::support::inbox::Line]) {
    for line in lines {
        assert!(line.value != Value::Null, "torn: {}", line.raw);
    }
}

/// Asserts that a step carries the persona of its turn once, and no other.
fn assert_right_text(request: &Recorded, turn: u64) {
    let body = String::from_utf8(request.plain().unwrap().to_vec()).unwrap();
    assert_eq!(body.matches("You are persona number ").count(), 1, "{body}");
    let text = request.instructions().unwrap();
    let wanted = format!("You are persona number {turn}.");
    assert!(text.contains(&wanted), "turn {turn}: {text}");
}
