//! Developer instructions: written for the stage, and found in what arrives at the model.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use codex_relay::commands::witness::Recorded;

use super::client::Client;
use super::launch::Launch;
use super::persona::copies;
use super::stage::Stage;

impl Stage {
    /// The file of the policy, with this text.
    pub(crate) fn policy(&self, text: &str) -> PathBuf {
        let path = self.home.with_file_name("policy.md");
        fs::write(&path, text).unwrap();
        path
    }

    /// The relay with such a file.
    pub(crate) fn with_policy(&self, text: &str) -> Launch<'_> {
        let path = self.policy(text);
        self.relay().option("--policy-file", path.to_str().unwrap())
    }

    /// The relay in front of a codex that keeps its own way to the model.
    pub(crate) fn unrouted_relay(&self) -> Launch<'_> {
        let path = self.codex_home.join("config.toml");
        let text = fs::read_to_string(&path).unwrap();
        if !text.contains("openai_base_url") {
            let url = self.endpoint.base_url();
            fs::write(path, format!("openai_base_url = \"{url}\"\n{text}")).unwrap();
        }
        self.relay()
    }

    /// The same with a policy.
    pub(crate) fn unrouted_with_policy(&self, text: &str) -> Launch<'_> {
        let path = self.policy(text);
        let launch = self.unrouted_relay();
        launch.option("--policy-file", path.to_str().unwrap())
    }

    /// Asserts that of two texts the request that asks a prompt has one, once.
    pub(crate) fn assert_one_of(&self, thread: &str, prompt: &str, [there, gone]: [&str; 2]) {
        let request = self.asked(thread, prompt);
        let counts = [there, gone].map(|word| copies(&request, word));
        assert_eq!(counts, [1, 0], "{prompt}: {there} and not {gone}");
    }

    /// The request that asks a prompt first.
    pub(crate) fn asked(&self, thread: &str, prompt: &str) -> Arc<Recorded> {
        let requests = self.endpoint.model_requests();
        let of_thread = requests
            .into_iter()
            .filter(|it| it.thread() == Some(thread) && it.turn().is_some());
        let ends = |it: &Arc<Recorded>| texts(it).iter().any(|(_, text)| text == prompt);
        of_thread
            .into_iter()
            .find(ends)
            .unwrap_or_else(|| panic!("nobody asked {prompt:?}"))
    }
}

/// The messages of a request: role and text of each.
pub(crate) fn texts(request: &Recorded) -> Vec<(String, String)> {
    let input = request
        .json()
        .unwrap()
        .get("input")
        .cloned()
        .unwrap_or_default();
    let messages = input.as_array().cloned().unwrap_or_default();
    let texts = messages.iter().flat_map(|message| {
        let role = message["role"].as_str().unwrap_or_default().to_owned();
        let parts = message["content"].as_array().cloned().unwrap_or_default();
        parts
            .into_iter()
            .filter_map(move |part| Some((role.clone(), part["text"].as_str()?.to_owned())))
    });
    texts.collect()
}

/// The developer messages of a request that hold a word.
pub(crate) fn told(request: &Recorded, word: &str) -> Vec<String> {
    let texts = texts(request).into_iter();
    let told = texts.filter(|(role, text)| role == "developer" && text.contains(word));
    told.map(|(_, text)| text).collect()
}

/// The text that replaces all older ones, in a request.
pub(crate) fn replaced(request: &Recorded) -> Vec<String> {
    told(request, "# Developer instructions ")
}

/// Runs a turn that must succeed.
pub(crate) async fn turn(client: &mut Client, thread: &str, prompt: &str) {
    let turn = client.turn(thread, prompt).await;
    assert_eq!(turn["status"], "completed", "{turn}\n{}", client.stderr());
}
