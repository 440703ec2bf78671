//! However it ends, nothing is left running and the exit code says how codex ended.

use std::os::unix::process::ExitStatusExt;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::case::Case;
use crate::support::client::Client;
use crate::support::inbox::Line;
use crate::support::processes::{Process, eventually_one, marked, none_marked};
use crate::support::stage::Stage;
use crate::support::story;

/// A session in the middle of a turn, and its codex.
async fn amid_a_turn(stage: &Stage) -> (Client, Process) {
    let (mut client, thread) = stage.relay().with_thread().await;
    client.start_turn(&thread, "[hold]").await;
    story::seen(stage, "turn").await;
    let codex = codex_of(stage, &client).await;
    (client, codex)
}

/// The codex behind a relay: not the relay, whose command line names it, and not codex's own helpers.
pub(super) async fn codex_of(stage: &Stage, client: &Client) -> Process {
    let program = format!("{} ", stage.codex.native.display());
    eventually_one(&client.mark, |it| it.command.starts_with(&program)).await
}

async fn end_of_stdin_ends_all_with_the_code_of_codex(case: Case) {
    let stage = Stage::set(case).await;
    let (mut client, _) = amid_a_turn(&stage).await;
    client.close_stdin();
    assert_eq!(client.exit().await.code(), Some(0));
    none_marked(&client.mark).await;
}
matrix!(end_of_stdin_ends_all_with_the_code_of_codex: versions);

async fn stop_signal_ends_all_with_the_code_of_codex(case: Case) {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let stage = Stage::set(case).await;
        let (mut client, _) = amid_a_turn(&stage).await;
        client.signal(signal);
        // The first stop request acts as the end of stdin, on which codex ends well.
        assert_eq!(client.exit().await.code(), Some(0), "{signal}");
        none_marked(&client.mark).await;
    }
}
matrix!(stop_signal_ends_all_with_the_code_of_codex: versions);

async fn death_of_codex_is_told_and_its_signal_is_the_exit_code(case: Case) {
    let stage = Stage::set(case).await;
    let (mut client, codex) = amid_a_turn(&stage).await;
    codex.signal(Signal::SIGKILL);
    assert_eq!(client.exit().await.code(), Some(128 + 9));
    none_marked(&client.mark).await;
    let is_end = |it: &Line| it.method() == Some("turn/completed");
    let ends: Vec<_> = client.inbox.since(0).into_iter().filter(is_end).collect();
    let statuses: Vec<_> = ends
        .iter()
        .map(|it| &it.value["params"]["turn"]["status"])
        .collect();
    assert_eq!(statuses, [&json!("failed")], "{ends:?}");
}
matrix!(death_of_codex_is_told_and_its_signal_is_the_exit_code: versions);

async fn kill_of_the_relay_ends_codex_and_its_commands(case: Case) {
    let stage = Stage::set(case).await;
    let (mut client, thread) = stage.relay().with_thread().await;
    let from = client.inbox.len();
    client.start_turn(&thread, "[wait]").await;
    let is_command = |params: &Value| params["item"]["type"] == "commandExecution";
    client.notification(from, "item/started", is_command).await;
    let command = eventually_one(&client.mark, |it| it.command.starts_with("sleep ")).await;
    let codex = codex_of(&stage, &client).await;
    client.signal(Signal::SIGKILL);
    assert_eq!(client.exit().await.signal(), Some(9));
    codex.is_gone().await;
    command.is_gone().await;
    none_marked(&client.mark).await;
}
matrix!(kill_of_the_relay_ends_codex_and_its_commands: versions);

async fn stubborn_command_goes_with_codex_however_that_ends(case: Case) {
    for signal in [None, Some(Signal::SIGTERM), Some(Signal::SIGKILL)] {
        let (_stage, mut client, _) = amid_a_stubborn_command(case).await;
        match signal {
            Some(signal) => client.signal(signal),
            None => client.close_stdin(),
        }
        client.exit().await;
        none_marked(&client.mark).await;
    }
    let (_stage, mut client, codex) = amid_a_stubborn_command(case).await;
    codex.signal(Signal::SIGKILL);
    assert_eq!(client.exit().await.code(), Some(128 + 9));
    none_marked(&client.mark).await;
}
matrix!(stubborn_command_goes_with_codex_however_that_ends: versions);

async fn amid_a_stubborn_command(case: Case) -> (Stage, Client, Process) {
    let stage = Stage::set(case).await;
    let (mut client, thread) = stage.relay().with_thread().await;
    let input = json!([{"type": "text", "text": "[stubborn]"}]);
    let params = json!({"threadId": thread, "input": input});
    client.ok("turn/start", params).await;
    for command in ["sleep 86400", "sleep 86401"] {
        eventually_one(&client.mark, |it| it.command.starts_with(command)).await;
    }
    let codex = codex_of(&stage, &client).await;
    (stage, client, codex)
}

async fn codex_runs_in_a_process_group_of_its_own(case: Case) {
    let stage = Stage::set(case).await;
    let (client, codex) = amid_a_turn(&stage).await;
    assert_eq!(codex.group(), codex.pid);
    assert_ne!(u32::try_from(codex.group()).unwrap(), client.pid());
    // Neither the route's secret nor the persona is in anybody's arguments or environment.
    for process in marked(&client.mark) {
        assert!(!process.command.contains("openai_base_url"), "{process:?}");
    }
}
matrix!(codex_runs_in_a_process_group_of_its_own: versions);
