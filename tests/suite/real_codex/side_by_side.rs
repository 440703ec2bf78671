//! Threads beside one whose renewal takes its time: they go on, and each keeps the order of its own lines.

use std::fs;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::policy::{NEW, OLD};
use super::supervision::codex_of;
use crate::support::case::Case;
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::inbox::Line;
use crate::support::launch::Launch;
use crate::support::orders::{replaced, turn};
use crate::support::persona::copies;
use crate::support::stage::Stage;

/// A codex that gets the first resume of a renewal late.
struct Slow {
    program: PathBuf,
    /// There once that resume has come.
    has_come: PathBuf,
    /// To be made for it to go on.
    may_go: PathBuf,
}

impl Slow {
    fn new(stage: &Stage) -> Self {
        let [has_come, may_go, edited] =
            ["has-come", "may-go", "edited"].map(|it| stage.home.with_file_name(it));
        let (codex, come, go, edited) = (
            stage.codex.native.display(),
            has_come.display(),
            may_go.display(),
            edited.display(),
        );
        let script = format!(
            r#"case "$*" in *app-server*) ;; *) exec '{codex}' "$@" ;; esac
mkfifo '{edited}'; exec 3<&0
while IFS= read -r line; do
    case $line in
    *'"excludeTurns":true,"developer'*)
        if ! [ -e '{come}' ]; then
            : >'{come}'
            (until [ -e '{go}' ]; do sleep 0.02; done; printf '%s\n' "$line") &
            continue
        fi ;;
    esac
    printf '%s\n' "$line"
done <&3 >'{edited}' &
exec '{codex}' "$@" <'{edited}' 3<&-"#
        );
        let program = stage.program("slow", &script);
        Self {
            program,
            has_come,
            may_go,
        }
    }
}

async fn send(client: &Client, id: &str, method: &str, params: Value) {
    let line = json!({"id": id, "method": method, "params": params});
    client.send(&line).await;
}

fn prompt(thread: &str, text: &str) -> Value {
    json!({"threadId": thread, "input": [{"type": "text", "text": text}]})
}

/// The ids of the answers so far, of those that are texts.
fn answered(client: &Client) -> Vec<String> {
    let lines = client.inbox.since(0);
    let answers = lines.iter().filter(|it| it.method().is_none());
    let ids = answers.filter_map(|it| it.value["id"].as_str().map(str::to_owned));
    ids.collect()
}

async fn wait_for(client: &Client, id: &str) -> Value {
    let is_it = |line: &Line| line.method().is_none() && line.value["id"] == id;
    client.inbox.wait(id, 0, is_it).await.value
}

/// A client with two threads whose policy has changed, and a turn on its way on the first of them.
async fn begin(stage: &Stage, launch: Launch<'_>, slow: &Slow) -> (Client, [String; 2]) {
    begin_with(stage, launch.codex(&slow.program).spied(), slow).await
}

async fn begin_with(stage: &Stage, launch: Launch<'_>, slow: &Slow) -> (Client, [String; 2]) {
    let mut client = launch.start().await;
    let first = client.thread("thread/start", json!({})).await;
    let second = client.thread("thread/start", json!({})).await;
    for thread in [&first, &second] {
        turn(&mut client, thread, "one").await;
    }
    stage.policy(NEW);
    send(&client, "a1", "turn/start", prompt(&first, "two")).await;
    eventually("the thread is being renewed", || {
        slow.has_come.exists().then_some(())
    })
    .await;
    (client, [first, second])
}

async fn other_threads_go_on_while_one_is_renewed(case: Case) {
    let stage = Stage::set(case).await;
    let slow = Slow::new(&stage);
    let (mut client, [first, second]) = begin(&stage, stage.with_policy(OLD), &slow).await;
    let set = json!({"threadId": first, "scope": "turn", "text": "Text-for-three-7d01"});
    send(&client, "a2", "thread/read", json!({"threadId": first})).await;
    send(&client, "a3", "thread/list", json!({})).await;
    // Codex asks the client, who answers, while the first thread waits.
    for text in ["two", "[approval]"] {
        let more = json!({"approvalPolicy": "on-request"});
        let done = client.turn_with(&second, text, more).await;
        assert_eq!(done["status"], "completed", "{done}");
    }
    let third = client.thread("thread/start", json!({})).await;
    turn(&mut client, &third, "three").await;
    client.ok("model/list", json!({})).await;
    assert_eq!(
        answered(&client),
        [""; 0],
        "what is about the first thread waits"
    );
    let from = client.inbox.len();
    fs::write(&slow.may_go, "").unwrap();
    client.turn_end(from, &first).await;
    wait_for(&client, "a3").await;
    let read = wait_for(&client, "a2").await;
    assert_eq!(read["result"]["thread"]["id"], first.as_str());
    let listed = wait_for(&client, "a3").await;
    assert!(listed["result"]["data"].to_string().contains(&first));
    // In their order still; codex itself answers them side by side.
    let passed = fs::read_to_string(stage.copy_of_stdin()).unwrap();
    let at = |id: &str| passed.find(&format!("\"id\":\"{id}\""));
    assert!(
        at("a1").is_some() && at("a1") < at("a2") && at("a2") < at("a3"),
        "{passed}"
    );
    // And what is set comes in front of its turn.
    send(&client, "a4", "relay/context/set", set).await;
    let from = client.inbox.len();
    send(&client, "a5", "turn/start", prompt(&first, "three")).await;
    client.turn_end(from, &first).await;
    assert!(client.close().await.success());
    for (thread, text) in [(&first, "two"), (&second, "two")] {
        let said = replaced(&stage.asked(thread, text));
        assert!(said.len() == 1 && said[0].contains(NEW), "{said:?}");
    }
    let three = stage.asked(&first, "three");
    assert_eq!(copies(&three, "Text-for-three-7d01"), 1);
    assert_eq!(copies(&stage.asked(&third, "three"), NEW), 1);
}
matrix!(other_threads_go_on_while_one_is_renewed: versions);

async fn lines_of_a_thread_keep_their_order_behind_its_renewal(case: Case) {
    let stage = Stage::set(case).await;
    let slow = Slow::new(&stage);
    let launch = stage.with_policy(OLD).option("--context", "client");
    let (mut client, [first, second]) = begin(&stage, launch, &slow).await;
    let from = client.inbox.len();
    // What is set for all threads is in force for what comes behind it alone, on every thread.
    let all = |text: &str| json!({"scope": "thread", "text": text});
    send(
        &client,
        "1",
        "turn/steer",
        json!({"threadId": first, "expectedTurnId": "x", "input": []}),
    )
    .await;
    send(&client, "2", "relay/context/set", all("Text-for-all-90f3")).await;
    send(&client, "3", "turn/start", prompt(&second, "two")).await;
    assert_eq!(answered(&client), [""; 0]);
    fs::write(&slow.may_go, "").unwrap();
    for thread in [&first, &second] {
        client.turn_end(from, thread).await;
    }
    wait_for(&client, "2").await;
    wait_for(&client, "3").await;
    turn(&mut client, &first, "three").await;
    assert!(client.close().await.success());
    let count = |thread: &str, text| copies(&stage.asked(thread, text), "Text-for-all-90f3");
    assert_eq!(count(&first, "two"), 0, "admitted before");
    assert_eq!((count(&second, "two"), count(&first, "three")), (1, 1));
}
matrix!(lines_of_a_thread_keep_their_order_behind_its_renewal: versions);

async fn client_that_ends_leaves_no_line_behind(case: Case) {
    let stage = Stage::set(case).await;
    let slow = Slow::new(&stage);
    let (mut client, [first, second]) = begin(&stage, stage.with_policy(OLD), &slow).await;
    send(&client, "a2", "thread/read", json!({"threadId": first})).await;
    send(&client, "b1", "thread/read", json!({"threadId": second})).await;
    wait_for(&client, "b1").await;
    client.close_stdin();
    fs::write(&slow.may_go, "").unwrap();
    assert!(client.exit().await.success());
    // Codex answers for them or not, as it does for what it gets with the end of its stdin.
    let passed = fs::read_to_string(stage.copy_of_stdin()).unwrap();
    let at = |id: &str| passed.find(&format!("\"id\":\"{id}\""));
    assert!(at("b1") < at("a1") && at("a1") < at("a2"), "{passed}");
    assert!(at("b1").is_some());
}
matrix!(client_that_ends_leaves_no_line_behind: versions);

async fn what_stays_behind_a_renewal_is_answered_where_codex_dies(case: Case) {
    let stage = Stage::set(case).await;
    let slow = Slow::new(&stage);
    // Nothing in front of codex lives on when it dies.
    let launch = stage.with_policy(OLD).codex(&slow.program);
    let (mut client, [first, _]) = begin_with(&stage, launch, &slow).await;
    send(&client, "a2", "thread/read", json!({"threadId": first})).await;
    send(
        &client,
        "a3",
        "relay/context/clear",
        json!({"threadId": first}),
    )
    .await;
    // Whatever the client sent before this has been read.
    client.ok("model/list", json!({})).await;
    assert_eq!(answered(&client), [""; 0]);
    codex_of(&stage, &client).await.signal(Signal::SIGKILL);
    fs::write(&slow.may_go, "").unwrap();
    for id in ["a1", "a2", "a3"] {
        wait_for(&client, id).await;
    }
    client.exit().await;
    assert_eq!(answered(&client).len(), 3, "each once");
}
matrix!(what_stays_behind_a_renewal_is_answered_where_codex_dies: versions);
