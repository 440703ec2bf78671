//! A context over its limit is refused before codex sees the turn.

use serde_json::json;

use crate::support::case::Case;
use crate::support::persona::{self, injected_text};
use crate::support::stage::Stage;

async fn context_over_its_limit_refuses_the_turn_and_not_the_thread(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let launch = stage.relay().option("--max-context-bytes", "2000");
    let (mut client, thread) = launch.with_thread().await;
    stage.write("USER.md", &"very long ".repeat(300));
    let from = client.inbox.len();
    let input = json!([{"type": "text", "text": "hello"}]);
    let refused = client
        .call("turn/start", json!({"threadId": thread, "input": input}))
        .await;
    let error = refused.unwrap_err();
    assert_eq!(error["code"], -32602, "{error}");
    let data = &error["data"];
    let bytes = data["bytes"].as_u64().unwrap();
    assert!(bytes > 3000, "{error}");
    let words = format!(
        "prepared context is {bytes} bytes, the limit is 2000; reduce the bootstrap or skills budgets, or the attached context"
    );
    assert_eq!(error["message"], words);
    assert_eq!(data["reason"], "context_too_large");
    assert_eq!(data["limit"], 2000);
    let sections = data["sections"].as_array().unwrap();
    let names: Vec<_> = sections
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["SOUL.md", "IDENTITY.md", "USER.md"]);
    let sizes: Vec<_> = sections
        .iter()
        .map(|it| it["bytes"].as_u64().unwrap())
        .collect();
    assert!(
        sizes[2] >= 3000 && sizes.iter().sum::<u64>() <= bytes,
        "{error}"
    );
    stage.write("USER.md", "You work for Ada.");
    let turn = client.turn(&thread, "hello once more").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let started = client.inbox.since(from);
    let started = started
        .iter()
        .filter(|it| it.method() == Some("turn/started"));
    assert_eq!(started.count(), 1);
    assert!(client.close().await.success());
    let requests = stage.endpoint.model_requests();
    let turns: Vec<_> = requests.iter().filter(|it| it.turn().is_some()).collect();
    assert_eq!(turns.len(), 1, "{turns:?}");
    injected_text(turns[0], None);
    assert_eq!(
        persona::copies(turns[0], "hello\""),
        0,
        "the refused input is gone"
    );
}
matrix!(context_over_its_limit_refuses_the_turn_and_not_the_thread: transports);
