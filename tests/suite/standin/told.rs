//! What the client is told when codex ends while it is needed.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::standin::{ANSWERS, StandIn};

/// Answers what a turn needs, and does as told when it is asked for the list of threads.
fn session(then: &str) -> String {
    format!(
        "while read -r line; do {ANSWERS}
    *turn/start*) printf '{{\"id\":%s,\"result\":{{\"turn\":{{\"id\":\"u1\"}}}}}}\\n' \"$id\";;
    *thread/list*) echo '{{\"method\":\"got\"}}'; {then};;
  esac
done"
    )
}

async fn in_a_turn(place: &StandIn, then: &str) -> Client {
    let mut client = place.start(&session(then));
    let about = json!({"clientInfo": {"name": "suite", "version": "1"}});
    client.ok("initialize", about).await;
    client.send(&json!({"method": "initialized"})).await;
    client.ok("thread/start", json!({})).await;
    let turn = json!({"threadId": "t1", "input": []});
    client.ok("turn/start", turn).await;
    client
        .send(&json!({"id": "open", "method": "thread/list"}))
        .await;
    client.notification(0, "got", |_| true).await;
    client
}

/// Everything that was open is ended: a request with an error, the turn as failed.
fn assert_ended(client: &Client, how: &str) {
    let lines = client.inbox.since(0);
    let values: Vec<&Value> = lines.iter().map(|it| &it.value).collect();
    let answer = values.iter().find(|it| it["id"] == "open").unwrap();
    assert_eq!(answer["error"]["code"], -32603);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains(how), "{message}");
    let ends: Vec<_> = values
        .iter()
        .filter(|it| it["method"] == "turn/completed")
        .collect();
    assert_eq!(ends.len(), 1);
    assert_eq!(ends[0]["params"]["threadId"], "t1");
    assert_eq!(ends[0]["params"]["turn"]["id"], "u1");
    assert_eq!(ends[0]["params"]["turn"]["status"], "failed");
}

#[tokio::test]
async fn whatever_is_open_is_ended_when_codex_dies() {
    for (then, how, code) in [
        ("exit 3", "exit code 3", 3),
        ("kill -9 $$", "signal 9", 128 + 9),
        // Its streams end before it does.
        ("exec <&- >&- 2>&-; exit 4", "exit code 4", 4),
        ("exec >&-; sleep 0.3; exit 4", "exit code 4", 4),
        ("exec <&-; sleep 0.3; exit 4", "exit code 4", 4),
    ] {
        let place = StandIn::new();
        let mut client = in_a_turn(&place, then).await;
        assert_eq!(client.exit().await.code(), Some(code), "{then}");
        assert_ended(&client, how);
    }
}

#[tokio::test]
async fn whatever_is_open_is_ended_when_the_relay_is_stopped() {
    let place = StandIn::new();
    let mut client = in_a_turn(&place, "cat >/dev/null").await;
    client.signal(Signal::SIGTERM);
    assert_eq!(client.exit().await.code(), Some(0));
    assert_ended(&client, "exit code 0");
}

#[tokio::test]
async fn nothing_is_told_to_a_client_that_left() {
    let place = StandIn::new();
    let mut client = in_a_turn(&place, "cat >/dev/null").await;
    let before = client.inbox.len();
    client.close_stdin();
    assert_eq!(client.exit().await.code(), Some(0));
    assert!(client.inbox.since(before).is_empty());
}
