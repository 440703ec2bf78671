//! Whatever starts codex can be given as `--codex`.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::case::Case;
use crate::support::persona::{self, injected_text};
use crate::support::processes::{marked, none_marked};
use crate::support::stage::Stage;

async fn npm_shim_serves_as_codex(case: Case) {
    let stage = Stage::set(case).await;
    let shim = stage.codex.shim.clone();
    assert!(shim.is_symlink());
    let mut client = run_one_turn(&stage, stage.relay().codex(shim)).await;
    let node = marked(&client.mark)
        .into_iter()
        .find(|it| it.command.contains("codex.js"));
    assert!(
        node.is_none(),
        "the native program behind the shim is what runs: {node:?}"
    );
    let mark = client.mark.clone();
    client.close_stdin();
    assert!(client.exit().await.success());
    none_marked(&mark).await;
}
matrix!(npm_shim_serves_as_codex: versions);

async fn path_with_spaces_serves_as_codex(case: Case) {
    let stage = Stage::set(case).await;
    let folder = stage.project.path().join("a folder with 'spaces'");
    fs::create_dir(&folder).unwrap();
    let program = folder.join("my codex");
    symlink(&stage.codex.native, &program).unwrap();
    let client = run_one_turn(&stage, stage.relay().codex(program)).await;
    assert!(client.close().await.success());
}
matrix!(path_with_spaces_serves_as_codex: versions);

async fn script_serves_as_codex(case: Case) {
    let stage = Stage::set(case).await;
    let script = format!("exec '{}' \"$@\"", stage.codex.native.display());
    let program = stage.program("codex of my own", &script);
    let client = run_one_turn(&stage, stage.relay().codex(program)).await;
    assert!(client.close().await.success());
}
matrix!(script_serves_as_codex: versions);

async fn run_one_turn(
    stage: &Stage,
    launch: crate::support::launch::Launch<'_>,
) -> crate::support::client::Client {
    persona::write(stage);
    let (mut client, thread) = launch.with_thread().await;
    let turn = client.turn(&thread, "hello").await;
    assert_eq!(turn["status"], "completed", "{turn}\n{}", client.stderr());
    let requests = stage.endpoint.model_requests();
    let turns: Vec<_> = requests.iter().filter(|it| it.turn().is_some()).collect();
    assert_eq!(turns.len(), 1);
    injected_text(turns[0], None);
    client
}
