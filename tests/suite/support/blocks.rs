//! Where a reference block stands in what codex asks the model.

use std::path::PathBuf;
use std::process::Output;

use codex_relay::commands::witness::Recorded;
use serde_json::Value;
use tokio::process::Command;

use super::stage::{Stage, holds};

/// What every block begins with.
pub(crate) const HEAD: &str = "# Workspace context\n\n";

/// The blocks between the message before and the user's `prompt`, in the request that asks it first.
pub(crate) fn before(stage: &Stage, thread: &str, prompt: &str) -> Vec<String> {
    let requests = stage.endpoint.model_requests();
    let of_thread = requests
        .iter()
        .filter(|it| it.thread() == Some(thread) && it.turn().is_some());
    let mut found = of_thread.filter_map(|request| {
        let input = input(request);
        let at = input
            .iter()
            .rposition(|item| texts(item).first().is_some_and(|text| text == prompt))?;
        Some((input, at))
    });
    let (input, at) = found
        .next()
        .unwrap_or_else(|| panic!("nobody asked {prompt:?}"));
    let is_earlier = |item: &&Value| {
        item["role"] == "assistant" || item["type"].as_str().unwrap().contains("compaction")
    };
    let own = input[..at].iter().rev().take_while(|it| !is_earlier(it));
    let texts = own.flat_map(texts).collect::<Vec<_>>();
    let mut blocks: Vec<String> = texts
        .into_iter()
        .filter(|it| it.starts_with(HEAD))
        .collect();
    blocks.reverse();
    blocks
}

/// The files of each block before a prompt.
pub(crate) fn files_before(stage: &Stage, thread: &str, prompt: &str) -> Vec<Vec<String>> {
    let files = |block: &String| {
        let parts = block.split("<workspace_file path=\"").skip(1);
        let paths = parts.map(|part| part.split('"').next().unwrap().to_owned());
        let names = paths.map(|path| path.rsplit('/').next().unwrap().to_owned());
        names.collect()
    };
    before(stage, thread, prompt).iter().map(files).collect()
}

fn input(request: &Recorded) -> Vec<Value> {
    let input = request.json().unwrap().get("input");
    input.and_then(Value::as_array).cloned().unwrap_or_default()
}

fn texts(item: &Value) -> Vec<String> {
    let parts = item["content"].as_array().into_iter().flatten();
    let texts = parts.filter_map(|part| part["text"].as_str());
    texts.map(str::to_owned).collect()
}

/// The rollout files that hold a text.
pub(crate) fn rollouts_with(stage: &Stage, text: &str) -> Vec<PathBuf> {
    let files = stage.files_of_codex().into_iter();
    let rollouts = files.filter(|it| it.extension().is_some_and(|it| it == "jsonl"));
    rollouts.filter(|it| holds(it, text)).collect()
}

/// Has the relay render the stage's context.
pub(crate) async fn rendered(stage: &Stage, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_codex-relay"));
    command.arg("--workspace").arg(&stage.workspace);
    command.env_clear().env("HOME", &stage.home);
    command.args(arguments).output().await.unwrap()
}
