//! Over ssh, without a terminal: the relay works as it does here, and a connection that is cut leaves nothing.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::model::{FarModel, poured};
use super::ssh::{Account, Ending};
use crate::support::blocks::files_before;
use crate::support::case::Case;
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::inbox::Line;
use crate::support::launch;
use crate::support::needs_superuser;
use crate::support::persona;
use crate::support::processes::none_marked;
use crate::support::stage::Stage;

/// A relay there, logged in.
async fn relay_there(stage: &Stage, account: &Account) -> Client {
    let line = format!(
        "CODEX_HOME=/srv/home/codex HTTPS_PROXY=http://127.0.0.1:1 exec /srv/codex-relay \
         --codex /srv/codex/bin/codex --workspace /srv/home/workspace --upstream {} app-server",
        stage.endpoint.base_url(),
    );
    let mut client = Client::spawn(account.ssh(&line));
    let introduction = json!({
        "clientInfo": {"name": "codex-relay-suite", "version": "1"},
        "capabilities": {"experimentalApi": true},
    });
    client.ok("initialize", introduction).await;
    client.send(&json!({"method": "initialized"})).await;
    launch::log_in(&mut client, stage.case.login).await;
    client
}

/// What is cut, and how: those that cost no time more often.
fn cuts() -> Vec<(&'static str, Cut)> {
    let amid = |cut: Cut| [("[pour]", cut), ("[wait]", cut)];
    let quick = [amid(Cut::Client), amid(Cut::Connection(Ending::Reset))];
    let mut cuts = quick.concat().repeat(4);
    cuts.extend(amid(Cut::Connection(Ending::Silence)));
    cuts
}

#[derive(Clone, Copy, Debug)]
enum Cut {
    /// The client is killed.
    Client,
    Connection(Ending),
}

async fn connection_that_is_cut_leaves_nothing_and_loses_nothing(case: Case) {
    needs_superuser();
    let stage = Stage::with(case, FarModel::default()).await;
    let account = Account::open(&stage).await;
    persona::write(&stage);
    stage.write("BOOTSTRAP.md", "Greet the keeper first.\n");
    fs::rename(&stage.workspace, account.home().join("workspace")).unwrap();
    let mut client = relay_there(&stage, &account).await;
    let thread = client.thread("thread/start", json!({})).await;
    let mut slowest = Duration::ZERO;
    for (number, (prompt, cut)) in cuts().into_iter().enumerate() {
        let before = format!("[commands 2] {number}");
        let turn = client.turn(&thread, &before).await;
        assert_eq!(turn["status"], "completed", "{turn}\n{}", client.stderr());
        let told = files_before(&stage, &thread, &before);
        assert_eq!(told, [["BOOTSTRAP.md"]], "each process tells it once");
        let from = client.inbox.len();
        let prompt = format!("{prompt} {number}");
        let cut_turn = client.start_turn(&thread, &prompt).await;
        amid(&account, &client, from, &prompt).await;

        let begun = Instant::now();
        match cut {
            Cut::Client => client.signal(Signal::SIGKILL),
            Cut::Connection(ending) => account.cut(ending),
        }
        account.is_empty().await;
        slowest = slowest.max(begun.elapsed());
        assert_gapless(&client.inbox.since(from), &prompt);
        none_left_of(client).await;

        account.mend();
        client = relay_there(&stage, &account).await;
        let resume = json!({"threadId": thread});
        let resumed = client.ok("thread/resume", resume).await;
        assert_kept(&resumed["thread"], &before, &cut_turn);
    }
    assert!(client.close().await.success());
    account.is_empty().await;
    for request in stage.endpoint.model_requests() {
        let is_turn = request.purpose().as_deref() == Some("turn");
        assert!(
            !is_turn || persona::copies(&request, persona::MARKER) == 1,
            "{request:?}"
        );
    }
    let count = cuts().len();
    report(&format!(
        "0 processes left after {count} of {count} cuts, the slowest gone after {slowest:?}"
    ));
}
matrix!(connection_that_is_cut_leaves_nothing_and_loses_nothing: versions);

#[expect(clippy::print_stderr, reason = "the figures of the cuts")]
fn report(text: &str) {
    eprintln!("{text}");
}

/// Waits until a turn is in its midst.
async fn amid(account: &Account, client: &Client, from: usize, prompt: &str) {
    if prompt.starts_with("[pour]") {
        let pieces = || poured_so_far(&client.inbox.since(from)).len();
        eventually("text pours", || (pieces() > 1000).then_some(())).await;
    } else {
        let runs = || {
            account
                .processes()
                .iter()
                .any(|it| it.starts_with("sleep 86400"))
        };
        eventually("a command runs", || runs().then_some(())).await;
    }
}

/// The text that has come in pieces.
fn poured_so_far(lines: &[Line]) -> String {
    let pieces = lines
        .iter()
        .filter(|it| it.method() == Some("item/agentMessage/delta"));
    pieces
        .map(|it| it.value["params"]["delta"].as_str().unwrap())
        .collect()
}

/// Asserts that what had come before the cut came whole and in order, up to some point.
fn assert_gapless(lines: &[Line], prompt: &str) {
    let torn = lines.iter().position(|it| it.value.is_null());
    assert!(
        torn.is_none_or(|at| at + 1 == lines.len()),
        "only the last line may be torn"
    );
    let text = poured_so_far(lines);
    let mut whole = String::new();
    for number in 0.. {
        if whole.len() >= text.len() {
            break;
        }
        whole.push_str(&poured(number));
    }
    assert!(whole.starts_with(&text), "a gap in {text}");
    assert!(!prompt.starts_with("[pour]") || text.len() > 1000);
}

/// Ends the client's side, which may not know yet that the other one is gone.
async fn none_left_of(client: Client) {
    let mark = client.mark.clone();
    drop(client);
    none_marked(&mark).await;
}

/// Asserts that a thread has all that was done before the cut.
fn assert_kept(thread: &Value, before: &str, cut: &Value) {
    let turns = thread["turns"].as_array().unwrap();
    let [.., whole, last] = &turns[..] else {
        panic!("{turns:?}")
    };
    let items = whole["items"].to_string();
    assert!(items.contains(before), "{items}");
    assert_eq!(items.matches("\"commandExecution\"").count(), 2, "{items}");
    assert_eq!(whole["status"], "completed");
    assert_eq!(last["id"], cut["id"], "{last}");
    assert_eq!(last["status"], "interrupted", "{last}");
}
