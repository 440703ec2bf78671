//! The other machine goes away, comes back, is slow; codex is restarted. The model link stays as it is.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::bridge::Bridge;
use super::far::Far;
use super::model::FarModel;
use super::placement::{there, thread_there};
use crate::support::blocks::files_before;
use crate::support::case::Case;
use crate::support::client::Client;
use crate::support::inbox::Line;
use crate::support::launch::Launch;
use crate::support::needs_superuser;
use crate::support::persona;
use crate::support::processes::{eventually_one, none_marked};
use crate::support::stage::Stage;
use crate::support::{PATIENCE, eventually};

/// A stage, the other machine, and the way there.
struct Place {
    stage: Stage,
    far: Far,
    bridge: Bridge,
}

impl Place {
    async fn new(case: Case) -> Self {
        let stage = Stage::with(case, FarModel::default()).await;
        persona::write(&stage);
        stage.write("BOOTSTRAP.md", "Greet the keeper first.\n");
        let mut far = Far::new(&stage.codex, stage.home.with_file_name("far"));
        far.start().await;
        let bridge = Bridge::start().await;
        bridge.lead(Some(far.door()));
        Self { stage, far, bridge }
    }

    /// Starts a turn, and waits until its command runs there.
    async fn amid_a_command(&self, client: &mut Client, thread: &str, prompt: &str) {
        for name in ["looking", "go", "said", "edited"] {
            // Gone already, or left by the turn before.
            let _ = fs::remove_file(self.far.work().join(name));
        }
        // A thread that was resumed has forgotten its machine.
        let params = json!({
            "threadId": thread,
            "input": [{"type": "text", "text": prompt}],
            "environments": there()["environments"],
        });
        client.ok("turn/start", params).await;
        let looking = self.far.work().join("looking");
        eventually("a command runs there", || looking.exists().then_some(())).await;
    }

    fn let_the_command_end(&self) {
        fs::write(self.far.work().join("go"), "").unwrap();
    }

    /// Runs a turn that works there, and succeeds.
    async fn work(&self, client: &mut Client, thread: &str, prompt: &str) {
        let from = client.inbox.len();
        self.amid_a_command(client, thread, prompt).await;
        self.let_the_command_end();
        self.assert_worked(client, thread, from).await;
    }

    async fn assert_worked(&self, client: &Client, thread: &str, from: usize) {
        let turn = client.turn_end(from, thread).await;
        assert_eq!(turn["status"], "completed", "{turn}\n{}", client.stderr());
        let mut lines = client.inbox.since(from).into_iter();
        assert!(lines.any(|line| line.raw.contains("seen by a command")));
        let edited = fs::read_to_string(self.far.work().join("edited")).unwrap();
        assert_eq!(edited, "by apply_patch\n");
    }

    /// Asserts that every request of a turn has the context once, and gives their count.
    fn routed(&self) -> usize {
        let requests = self.stage.endpoint.model_requests();
        let of_turns = requests
            .iter()
            .filter(|it| it.purpose().as_deref() == Some("turn"));
        of_turns
            .inspect(|it| assert_eq!(persona::copies(it, persona::MARKER), 1, "{it:?}"))
            .count()
    }

    /// What the model was told of its calls, without what differs from run to run.
    fn told(&self) -> Vec<String> {
        let requests = self.stage.endpoint.model_requests();
        let of_turns = requests
            .iter()
            .filter(|it| it.purpose().as_deref() == Some("turn"));
        let last = of_turns.filter_map(|it| it.json()?["input"].as_array()?.last().cloned());
        last.filter_map(|item| Some(steady(item["output"].as_str()?)))
            .collect()
    }
}

/// A text without its numbers.
fn steady(text: &str) -> String {
    let is_chance = |line: &&str| line.starts_with("Chunk ID: ");
    let lines = text.lines().filter(|it| !is_chance(it));
    let plain = |line: &str| line.replace(|it: char| it.is_ascii_digit() || it == '.', "");
    lines.map(plain).collect::<Vec<_>>().join("\n")
}

async fn link_that_breaks_amid_a_command_is_taken_up_again(case: Case) {
    needs_superuser();
    let place = Place::new(case).await;
    let mut client = place.stage.relay().start().await;
    let thread = thread_there(&mut client, &place.bridge).await;
    for (prompt, told) in [
        ("[far] one", vec![["BOOTSTRAP.md"]]),
        ("[far] two", Vec::new()),
    ] {
        let from = client.inbox.len();
        place.amid_a_command(&mut client, &thread, prompt).await;
        place.bridge.cut();
        place.let_the_command_end();
        place.assert_worked(&client, &thread, from).await;
        assert_eq!(files_before(&place.stage, &thread, prompt), told);
    }
    assert!(client.close().await.success());
    assert_eq!(place.routed(), 6);
}
matrix!(link_that_breaks_amid_a_command_is_taken_up_again: versions);

async fn machine_that_dies_fails_the_command_in_the_words_of_codex(case: Case) {
    needs_superuser();
    let with_relay = Place::new(case).await;
    let without = Place::new(case).await;
    // At once: codex gives the machine its time to come back.
    let (relayed, plain) = tokio::join!(
        dies_and_comes_back(with_relay, Stage::relay),
        dies_and_comes_back(without, Stage::plain),
    );
    let (place, turns, thread) = relayed;
    assert_eq!(turns, plain.1, "the turns end as they do without the relay");
    // The first command may be told of as running or as lost: the machine dies about when the model asks.
    let (told, of_plain) = (place.told(), plain.0.told());
    assert_eq!(
        told.get(1..),
        of_plain.get(1..),
        "the model is told the same"
    );
    assert_eq!(place.routed(), 9);
    assert_eq!(
        files_before(&place.stage, &thread, "[far] brief"),
        [["BOOTSTRAP.md"]]
    );
    for prompt in ["[far] two", "[far] three"] {
        assert!(files_before(&place.stage, &thread, prompt).is_empty());
    }
}
matrix!(machine_that_dies_fails_the_command_in_the_words_of_codex: versions);

/// A turn in which the machine dies, one without it, and one after it has come back: how they ended.
async fn dies_and_comes_back(
    mut place: Place,
    launch: fn(&Stage) -> Launch<'_>,
) -> (Place, Vec<Value>, String) {
    let mut client = launch(&place.stage).start().await;
    let thread = thread_there(&mut client, &place.bridge).await;
    let from = client.inbox.len();
    place
        .amid_a_command(&mut client, &thread, "[far] brief")
        .await;
    place.far.kill().await;
    place.bridge.lead(None);
    given_up(&client, from).await;
    let first = client.turn_end(from, &thread).await;
    let second = client.turn(&thread, "[far] two").await;
    place.far.start().await;
    place.bridge.lead(Some(place.far.door()));
    place.work(&mut client, &thread, "[far] three").await;
    let ends = [first, second].map(|it| json!([it["status"], it["error"]]));
    assert!(client.close().await.success());
    (place, ends.to_vec(), thread)
}

/// Waits until codex has given the machine up: 0.171.0 hopes for 45 seconds.
async fn given_up(client: &Client, from: usize) {
    let is_end = |line: &Line| line.method() == Some("turn/completed");
    let end = async {
        while !client.inbox.since(from).iter().any(is_end) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let waited = tokio::time::timeout(3 * PATIENCE, end).await;
    waited.expect("an end of the turn");
}

async fn slow_machine_holds_nobody_else_up(case: Case) {
    needs_superuser();
    let place = Place::new(case).await;
    let mut client = place.stage.relay().start().await;
    let there = thread_there(&mut client, &place.bridge).await;
    let cwd = place.stage.project.path();
    let local = json!({"environments": [{"environmentId": "local", "cwd": cwd}]});
    let here = client.thread("thread/start", local).await;
    let from = client.inbox.len();
    place.amid_a_command(&mut client, &there, "[far]").await;
    place.bridge.hold(true);
    place.let_the_command_end();
    let said = place.far.work().join("said");
    eventually("the command has spoken", || said.exists().then_some(())).await;
    // Nothing comes from there, and everything else goes on.
    let turn = client.turn(&here, "hello").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    client.ok("thread/list", json!({})).await;
    place.bridge.hold(false);
    place.assert_worked(&client, &there, from).await;
    assert!(client.close().await.success());
    assert_eq!(place.routed(), 4);
}
matrix!(slow_machine_holds_nobody_else_up: versions);

async fn thread_is_resumed_with_its_machine_after_codex_was_restarted(case: Case) {
    needs_superuser();
    let place = Place::new(case).await;
    let mut client = place.stage.relay().start().await;
    let thread = thread_there(&mut client, &place.bridge).await;
    place.work(&mut client, &thread, "[far] one").await;
    assert!(client.close().await.success());

    let mut client = resumed(&place, &thread).await;
    place.work(&mut client, &thread, "[far] two").await;
    place.work(&mut client, &thread, "[far] three").await;

    // Codex dies while a command runs there.
    place
        .amid_a_command(&mut client, &thread, "[far] four")
        .await;
    let program = format!("{} ", place.stage.codex.native.display());
    let codex = eventually_one(&client.mark, |it| it.command.starts_with(&program)).await;
    codex.signal(Signal::SIGKILL);
    assert_eq!(client.exit().await.code(), Some(128 + 9));
    none_marked(&client.mark).await;
    let mut client = resumed(&place, &thread).await;
    place.work(&mut client, &thread, "[far] five").await;
    assert!(client.close().await.success());

    place.routed();
    for (prompt, is_told) in [
        ("[far] one", true),
        ("[far] two", true),
        ("[far] three", false),
        ("[far] four", false),
        ("[far] five", true),
    ] {
        let told = if is_told {
            vec![["BOOTSTRAP.md"]]
        } else {
            Vec::new()
        };
        assert_eq!(
            files_before(&place.stage, &thread, prompt),
            told,
            "{prompt}"
        );
    }
}
matrix!(thread_is_resumed_with_its_machine_after_codex_was_restarted: versions);

/// A new relay and codex, with the machine and the thread as they were.
async fn resumed(place: &Place, thread: &str) -> Client {
    let mut client = place.stage.relay().start().await;
    let add = json!({"environmentId": "far", "execServerUrl": place.bridge.url()});
    client.ok("environment/add", add).await;
    let resume = json!({
        "threadId": thread,
        "sandbox": "danger-full-access",
        "approvalPolicy": "never",
    });
    client.thread("thread/resume", resume).await;
    client
}
