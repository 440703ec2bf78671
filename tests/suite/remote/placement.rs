//! Commands and edits happen on the other machine, model requests go through the relay, and nothing of it goes there.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::bridge::Bridge;
use super::far::Far;
use super::model::FarModel;
use super::search::{Needle, Stack};
use crate::support::case::Case;
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::launch;
use crate::support::needs_superuser;
use crate::support::persona::{self, MARKER};
use crate::support::processes::none_marked;
use crate::support::stage::Stage;
use crate::support::story;

/// Opens a thread that works on the other machine.
pub(crate) async fn thread_there(client: &mut Client, bridge: &Bridge) -> String {
    let add = json!({"environmentId": "far", "execServerUrl": bridge.url()});
    client.ok("environment/add", add).await;
    client.thread("thread/start", there()).await
}

/// The members that place a thread there, with nobody asked for anything.
pub(crate) fn there() -> Value {
    json!({
        "environments": [{"environmentId": "far", "cwd": "/work"}],
        "sandbox": "danger-full-access",
        "approvalPolicy": "never",
    })
}

/// Runs the turn that works there; the machine is searched while its command runs.
async fn work(client: &mut Client, thread: &str, far: &Far, stack: &mut Stack) {
    let from = client.inbox.len();
    client.start_turn(thread, "[far]").await;
    let looking = far.work().join("looking");
    eventually("a command runs there", || looking.exists().then_some(())).await;
    stack.add_processes(far);
    fs::write(far.work().join("go"), "").unwrap();
    let turn = client.turn_end(from, thread).await;
    assert_eq!(turn["status"], "completed", "{turn}\n{}", client.stderr());
    let said = client.inbox.since(from);
    let said = said
        .iter()
        .any(|line| line.raw.contains("seen by a command"));
    assert!(said, "the command's output comes back");
}

/// What belongs to this side.
fn needles(stage: &Stage) -> Vec<Needle> {
    let route = stage.spied();
    let tokens = launch::tokens();
    vec![
        Needle::new("private address", route.address.to_string()),
        Needle::new("secret", route.secret()),
        Needle::new("name of the route", "openai_base_url"),
        Needle::new("upstream", stage.endpoint.address().to_string()),
        Needle::new("persona", MARKER),
        Needle::new("name", "Marlowe"),
        Needle::new("reference block", REFERENCE),
        Needle::new("API key", "sk-test"),
        Needle::new("access token", tokens["accessToken"].as_str().unwrap()),
        Needle::new("bearer", KEY),
        Needle::new("account", tokens["chatgptAccountId"].as_str().unwrap()),
        Needle::new("generation", "codex_relay_generation"),
        Needle::new("the relay", "codex-relay"),
        Needle::new("CODEX_HOME of here", stage.codex_home.to_string_lossy()),
        Needle::new("workspace", stage.workspace.to_string_lossy()),
    ]
}

/// Asserts that the parent's requests have the persona once, and those of the child none.
async fn assert_routed(stage: &Stage) {
    let traffic = stage.traffic().await;
    assert!(
        traffic.lost.is_empty() && traffic.foreign.is_empty(),
        "{traffic:?}"
    );
    // A prewarm may come before its thread is known.
    let told = traffic
        .pairs
        .iter()
        .filter(|pair| pair.sent.purpose().as_deref() != Some("prewarm"));
    let (of_children, of_parent): (Vec<_>, Vec<_>) = told.partition(|pair| pair.sent.is_child());
    assert!(!of_children.is_empty());
    assert!(of_parent.len() >= 3, "{of_parent:?}");
    for pair in of_children {
        persona::assert_untouched(pair);
    }
    for pair in of_parent {
        persona::assert_injected(pair);
    }
}

async fn work_is_done_there_and_thought_of_here(case: Case) {
    needs_superuser();
    let stage = Stage::with(case, FarModel::default()).await;
    persona::write(&stage);
    stage.write("BOOTSTRAP.md", REFERENCE);
    let mut far = Far::new(&stage.codex, stage.home.with_file_name("far"));
    far.start().await;
    let bridge = Bridge::start().await;
    bridge.lead(Some(far.door()));
    let mut client = stage.relay().spied().tapped().start().await;
    let thread = thread_there(&mut client, &bridge).await;
    let mut stack = Stack::default();
    work(&mut client, &thread, &far, &mut stack).await;
    story::spawn_child(&mut client, &thread).await;
    assert!(client.close().await.success());
    assert_worked_there(&stage, &far);
    assert_routed(&stage).await;
    far.kill().await;
    stack.add_files(&far);
    stack.add_record(&bridge.record());
    assert_clean(&stage, &stack);
}
matrix!(work_is_done_there_and_thought_of_here: all);

async fn machine_at_the_end_of_a_pipe_learns_nothing_either(case: Case) {
    needs_superuser();
    let stage = Stage::with(case, FarModel::default()).await;
    persona::write(&stage);
    stage.write("BOOTSTRAP.md", REFERENCE);
    let mut far = Far::new(&stage.codex, stage.home.with_file_name("far"));
    let tapes = ["outward", "homeward"].map(|it| stage.home.with_file_name(it));
    let program = stage.program("enter", &script(&far, &tapes));
    fs::write(
        stage.codex_home.join("environments.toml"),
        format!(
            "[[environments]]\nid = \"far\"\nprogram = \"{}\"\n",
            program.display()
        ),
    )
    .unwrap();
    let mut client = stage.relay().spied().tapped().start().await;
    let thread = client.thread("thread/start", there()).await;
    let mut stack = Stack::default();
    work(&mut client, &thread, &far, &mut stack).await;
    story::spawn_child(&mut client, &thread).await;
    let mark = client.mark.clone();
    assert!(client.close().await.success());
    assert_worked_there(&stage, &far);
    assert_routed(&stage).await;
    // The end of the pipe is the end of the server.
    far.kill().await;
    none_marked(&mark).await;
    stack.add_files(&far);
    for tape in tapes {
        stack.add_lines(&fs::read(tape).unwrap());
    }
    assert_clean(&stage, &stack);
}
matrix!(machine_at_the_end_of_a_pipe_learns_nothing_either: transports);

async fn machine_of_a_gateway_learns_neither_its_credential_nor_its_context(case: Case) {
    needs_superuser();
    let stage = Stage::with(case, FarModel::default()).await;
    let mut far = Far::new(&stage.codex, stage.home.with_file_name("far"));
    far.start().await;
    let bridge = Bridge::start().await;
    bridge.lead(Some(far.door()));
    let launch = stage.relay().logged_out().spied().tapped();
    let launch = launch.option("--context", "client").env("GATEWAY_KEY", KEY);
    let launch = launch.option("--upstream-bearer-env", "GATEWAY_KEY");
    let mut client = launch.start().await;
    let add = json!({"environmentId": "far", "execServerUrl": bridge.url()});
    client.ok("environment/add", add).await;
    let mut start = there();
    let text = format!("You keep the lighthouse of {MARKER}. Your name is Marlowe.");
    start["relay"] = json!({"context": {"text": text}});
    let thread = client.thread("thread/start", start).await;
    let references = json!([{"name": "notes", "text": REFERENCE}]);
    let set =
        json!({"threadId": thread, "scope": "thread", "text": text, "references": references});
    client.ok("relay/context/set", set).await;
    let mut stack = Stack::default();
    work(&mut client, &thread, &far, &mut stack).await;
    story::spawn_child(&mut client, &thread).await;
    assert!(client.close().await.success());
    assert_worked_there(&stage, &far);
    let requests = stage.endpoint.model_requests();
    for request in &requests {
        let bearer = format!("Bearer {KEY}");
        assert_eq!(
            request.head.header("authorization"),
            Some(bearer.as_bytes())
        );
        // A prewarm may come before its thread is known.
        if request.purpose().as_deref() != Some("prewarm") {
            let copies = usize::from(!request.is_child());
            assert_eq!(persona::copies(request, MARKER), copies, "{request:?}");
        }
    }
    assert!(requests.iter().any(|it| it.is_child()));
    let noted = requests
        .iter()
        .any(|it| persona::copies(it, REFERENCE.trim()) == 1);
    assert!(noted, "the model gets the reference block");
    far.kill().await;
    stack.add_files(&far);
    stack.add_record(&bridge.record());
    assert_clean(&stage, &stack);
}
matrix!(machine_of_a_gateway_learns_neither_its_credential_nor_its_context: transports);

/// A script that leads to the exec-server by its pipes, and writes down what passes.
fn script(far: &Far, [outward, homeward]: &[PathBuf; 2]) -> String {
    let command = far.script(&["exec-server", "--listen", "stdio"]);
    let (outward, homeward) = (outward.display(), homeward.display());
    format!("tee -a '{outward}' | {command} | tee -a '{homeward}'")
}

/// Asserts that command and edit happened on the other machine, and nothing on this one.
fn assert_worked_there(stage: &Stage, far: &Far) {
    let edited = fs::read_to_string(far.work().join("edited")).unwrap();
    assert_eq!(edited, "by apply_patch\n");
    let seen = fs::read_to_string(far.work().join("seen")).unwrap();
    assert!(seen.starts_with("/work\n"), "{seen}");
    let here = fs::read_dir(stage.project.path()).unwrap();
    assert_eq!(here.count(), 0, "nothing happened here");
}

/// Asserts that the search finds what is there, and nothing that belongs here.
fn assert_clean(stage: &Stage, stack: &Stack) {
    assert!(stack.places_of("by apply_patch").len() >= 2);
    assert!(!stack.places_of("CODEX_HOME=/codex").is_empty());
    stack.assert_without(&needles(stage));
}

/// What a Gateway's own endpoint is asked with.
const KEY: &str = "gw-key-41c7d2";

const REFERENCE: &str = "Greet-the-keeper-7c1d first.\n";
