//! The examples of README, run as they stand.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Output;

use codex_relay::commands::endpoint::{Reply, Script, events};
use codex_relay::commands::witness::Recorded;
use serde_json::json;
use tokio::process::Command;

use super::far::Far;
use crate::support::PATIENCE;
use crate::support::case::Case;
use crate::support::model::Model;
use crate::support::needs_superuser;
use crate::support::persona;
use crate::support::stage::Stage;

/// What the agent of the examples is.
const PERSONA: &str = "You keep the lighthouse.";

/// The shell of a section of README.
fn example(heading: &str) -> String {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = fs::read_to_string(readme).unwrap();
    let (_, section) = readme.split_once(&format!("{heading}\n")).unwrap();
    let (_, block) = section.split_once("```sh\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    block.to_owned()
}

/// Runs the client of README and an example with it.
async fn run(stage: &Stage, heading: &str, variables: &[(&str, &str)]) -> Output {
    let folder = stage.home.with_file_name("bin");
    fs::create_dir_all(&folder).unwrap();
    for (name, program) in [
        ("codex-relay", Path::new(env!("CARGO_BIN_EXE_codex-relay"))),
        ("codex", &stage.codex.native),
    ] {
        symlink(program, folder.join(name)).unwrap();
    }
    let script = example("## Three shapes") + &example(heading);
    let mut shell = Command::new("sh");
    shell.args(["-euc", &script]).env_clear();
    shell.env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
    shell
        .env("HOME", &stage.home)
        .env("CODEX_HOME", &stage.codex_home);
    shell.env("HTTPS_PROXY", "http://127.0.0.1:1");
    shell
        .envs(variables.iter().copied())
        .current_dir(stage.project.path());
    let output = shell.kill_on_drop(true).output();
    let output = tokio::time::timeout(PATIENCE, output).await;
    let output = output.expect("an end of the example").unwrap();
    let (said, complained) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{said}\n{complained}");
    assert!(
        said.contains("\"status\":\"completed\""),
        "{said}\n{complained}"
    );
    output
}

/// Logs codex in, as a user has done before.
async fn log_in(stage: &Stage) {
    let key = stage.program("key", "echo sk-test");
    let line = format!(
        "'{}' | '{}' login --with-api-key",
        key.display(),
        stage.codex.native.display()
    );
    let mut login = Command::new("sh");
    login
        .args(["-c", &line])
        .env("CODEX_HOME", &stage.codex_home);
    let output = login.output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Asserts that the turn's requests have the persona, and came with this credential.
fn assert_asked(stage: &Stage, credential: &str) {
    let requests = stage.endpoint.model_requests();
    let of_turns = requests.iter().filter(|it| it.turn().is_some());
    let count = of_turns
        .inspect(|it| {
            assert_eq!(persona::copies(it, PERSONA), 1, "{it:?}");
            let authorization = it.head.header("authorization").unwrap();
            assert_eq!(String::from_utf8_lossy(authorization), credential);
        })
        .count();
    assert!(count > 0);
}

async fn local_example_runs_as_written(case: Case) {
    let stage = Stage::set(case).await;
    log_in(&stage).await;
    let upstream = stage.endpoint.base_url();
    let variables = [("CODEX_RELAY_UPSTREAM", &*upstream)];
    run(
        &stage,
        "### Local: an agent workspace, and codex's own login",
        &variables,
    )
    .await;
    assert_asked(&stage, "Bearer sk-test");
}
matrix!(local_example_runs_as_written: versions);

async fn gateway_example_runs_as_written(case: Case) {
    let stage = Stage::set(case).await;
    let upstream = stage.endpoint.base_url();
    let variables = [("GATEWAY_URL", &*upstream), ("GATEWAY_KEY", "gw-key")];
    run(
        &stage,
        "### Gateway: its own inference, its own context",
        &variables,
    )
    .await;
    assert_asked(&stage, "Bearer gw-key");
}
matrix!(gateway_example_runs_as_written: versions);

/// Runs a command when it is asked to run the tests.
struct Tester;

impl Script for Tester {
    fn reply(&self, request: &Recorded) -> Reply {
        let input = request.json().and_then(|it| it["input"].as_array()?.last());
        let is_asked = input.is_some_and(|it| it.to_string().contains("Run the tests."));
        if is_asked && request.purpose().as_deref() == Some("turn") {
            let call = events::call("tests", "exec_command", &json!({"cmd": "pwd > tested"}));
            return Reply::events(events::answer("resp-tests", [call]));
        }
        Model::default().reply(request)
    }
}

async fn remote_example_runs_as_written(case: Case) {
    needs_superuser();
    let stage = Stage::with(case, Tester).await;
    log_in(&stage).await;
    fs::create_dir(stage.home.join("my-agent")).unwrap();
    fs::write(stage.home.join("my-agent/SOUL.md"), PERSONA).unwrap();
    let far = Far::new(&stage.codex, stage.home.with_file_name("far"));
    let folder = stage.home.with_file_name("bin");
    fs::create_dir(&folder).unwrap();
    // The way to the machine: what ssh would run there is run in the sandbox.
    let ssh = folder.join("ssh");
    let enter = far.script(&["exec-server", "--listen", "stdio"]);
    let wanted = "-T build-host codex exec-server --listen stdio";
    fs::write(
        &ssh,
        format!("#!/bin/sh\n[ \"$*\" = '{wanted}' ] || exit 64\nexec {enter}\n"),
    )
    .unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let upstream = stage.endpoint.base_url();
    let variables = [("CODEX_RELAY_UPSTREAM", &*upstream)];
    run(
        &stage,
        "### Remote execution: commands there, the model link here",
        &variables,
    )
    .await;
    let tested = fs::read_to_string(far.work().join("tested"));
    assert_eq!(tested.unwrap(), "/work\n");
    assert_asked(&stage, "Bearer sk-test");
}
matrix!(remote_example_runs_as_written: versions);
