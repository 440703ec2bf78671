//! The whole context on the wire: what `render` says is what the model gets.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;

use codex_relay::commands::endpoint::{Reply, Script, events};
use codex_relay::commands::witness::Recorded;
use serde_json::{Value, json};

use crate::support::blocks::{self, files_before, rendered};
use crate::support::case::Case;
use crate::support::client::Client;
use crate::support::model::Model;
use crate::support::persona::{self, MARKER};
use crate::support::stage::{Stage, holds};
use crate::support::story;

pub(super) fn write(stage: &Stage) {
    persona::write(stage);
    stage.write("BOOTSTRAP.md", "Greet Ada.\n");
    stage.write("MEMORY.md", "It rained on Monday.\n");
    for name in ["knit", "<bake>"] {
        let folder = stage.workspace.join("skills").join(name);
        fs::create_dir_all(&folder).unwrap();
        let text = format!(
            "---\nname: {name}\ndescription: Use when: asked to {name} & more.\n---\nbody\n"
        );
        fs::write(folder.join("SKILL.md"), text).unwrap();
    }
    let folder = stage.workspace.join("users/ada");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("USER.md"), "Ada likes caf\u{e9}\u{301}s.\r\n").unwrap();
}

/// The instructions of each request of a thread's turn, from the prompt on.
fn instructions(stage: &Stage, thread: &str, prompt: &str) -> Vec<String> {
    let requests = stage.endpoint.model_requests();
    let of_thread = requests
        .iter()
        .filter(|it| it.thread() == Some(thread) && it.turn().is_some());
    let last_text = |it: &Recorded| {
        let input = it.json().unwrap()["input"].as_array().cloned().unwrap();
        let asked = input.iter().rfind(|item| item["role"] == "user").cloned();
        asked.unwrap_or_default()["content"][0]["text"].clone()
    };
    let asked = of_thread.filter(|it| last_text(it) == prompt);
    asked
        .map(|it| it.instructions().unwrap_or_default().to_owned())
        .collect()
}

/// The instructions of the one request that a prompt made.
pub(super) fn instructions_of(stage: &Stage, thread: &str, prompt: &str) -> String {
    let mut all = instructions(stage, thread, prompt);
    assert_eq!(all.len(), 1, "{prompt}");
    all.remove(0)
}

/// What `render` prints, with the memory tools or without.
pub(super) async fn printed(stage: &Stage, arguments: &[&str], has_memory_tools: bool) -> String {
    let tools: &[&str] = if has_memory_tools {
        &["--thread-tools", "memory_search,memory_get"]
    } else {
        &[]
    };
    let output = rendered(
        stage,
        &[&["--profile", "ada", "render"], arguments, tools].concat(),
    )
    .await;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    String::from_utf8(output.stdout).unwrap()
}

pub(super) async fn turn(client: &mut Client, thread: &str, prompt: &str, relay: Value) {
    let turn = client
        .turn_with(thread, prompt, json!({"relay": relay}))
        .await;
    assert_eq!(turn["status"], "completed", "{turn}\n{}", client.stderr());
}

async fn model_gets_what_render_prints(case: Case) {
    let stage = Stage::set(case).await;
    write(&stage);
    let (mut client, thread) = stage.relay().option("--profile", "ada").with_thread().await;
    turn(&mut client, &thread, "one", json!({})).await;
    assert!(client.close().await.success());
    let text = instructions_of(&stage, &thread, "one");
    assert!(text.contains("Ada likes"), "{text}");
    assert_eq!(text, printed(&stage, &[], false).await);
    let both = [["BOOTSTRAP.md", "MEMORY.md"]];
    assert_eq!(files_before(&stage, &thread, "one"), both);
    let json = printed(&stage, &["--json"], false).await;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["context"]["text"], text);
    let block = &blocks::before(&stage, &thread, "one")[0];
    assert_eq!(json["references"]["text"], *block);
    let files = stage.files_of_codex().into_iter();
    let holders: Vec<_> = files.filter(|it| holds(it, "Ada likes")).collect();
    assert!(holders.is_empty(), "{holders:?}");
}
matrix!(model_gets_what_render_prints: versions);

async fn memory_tools_of_the_thread_turn_its_memory_into_a_pointer(case: Case) {
    let stage = Stage::set(case).await;
    write(&stage);
    let mut client = stage.relay().option("--profile", "ada").start().await;
    let tool = |name: &str, is_deferred: bool| {
        json!({
            "type": "function", "name": name, "description": "d",
            "inputSchema": {"type": "object"}, "deferLoading": is_deferred,
        })
    };
    let deferred = [tool("memory_get", true)];
    let tools = json!([
        tool("memory_search", false),
        {"type": "namespace", "name": "memory", "description": "d", "tools": deferred},
    ]);
    let thread = client
        .thread("thread/start", json!({"dynamicTools": tools}))
        .await;
    turn(&mut client, &thread, "one", json!({})).await;
    turn(&mut client, &thread, "two", json!({"toolsDisabled": true})).await;
    let resume = json!({"threadId": thread});
    client.thread("thread/resume", resume).await;
    turn(&mut client, &thread, "three", json!({})).await;
    assert!(client.close().await.success());
    // After a restart only the client knows.
    let mut client = stage.relay().option("--profile", "ada").start().await;
    let resume = json!({"threadId": thread, "relay": {"memoryTools": true}});
    client.thread("thread/resume", resume).await;
    turn(&mut client, &thread, "four", json!({})).await;
    let fork = json!({"threadId": thread, "excludeTurns": true});
    let fork = client.thread("thread/fork", fork).await;
    turn(&mut client, &fork, "five", json!({})).await;
    assert!(client.close().await.success());
    let pointer = printed(&stage, &[], true).await;
    assert!(pointer.contains("MEMORY.md and beside it"), "{pointer}");
    for prompt in ["one", "three", "four"] {
        assert_eq!(
            instructions_of(&stage, &thread, prompt),
            pointer,
            "{prompt}"
        );
    }
    let plain = printed(&stage, &[], false).await;
    assert_eq!(instructions_of(&stage, &thread, "two"), plain);
    assert_eq!(instructions_of(&stage, &fork, "five"), plain);
    let files = |thread: &str, prompt: &str| files_before(&stage, thread, prompt);
    assert_eq!(files(&thread, "one"), [["BOOTSTRAP.md"]]);
    assert_eq!(files(&thread, "two"), [["MEMORY.md"]]);
    assert!(files(&thread, "three").is_empty());
    assert_eq!(files(&thread, "four"), [["BOOTSTRAP.md"]]);
    assert_eq!(files(&fork, "five"), [["BOOTSTRAP.md", "MEMORY.md"]]);
}
matrix!(memory_tools_of_the_thread_turn_its_memory_into_a_pointer: versions);

/// Configures an MCP server whose program is this script.
fn serve_tools(stage: &Stage, script: &str) {
    let program = stage.program("tools", script);
    let path = stage.codex_home.join("config.toml");
    let mut config = fs::read_to_string(&path).unwrap();
    write!(
        config,
        "\n[mcp_servers.memory]\ncommand = \"{}\"\n",
        program.display()
    )
    .unwrap();
    fs::write(path, config).unwrap();
}

/// The context of the thread's first turn that has another than `before`: a server may need its time.
async fn context_after(stage: &Stage, client: &mut Client, thread: &str, before: &str) -> String {
    for number in 0..50 {
        let prompt = format!("{} {number}", client.mark);
        turn(client, thread, &prompt, json!({})).await;
        let text = instructions_of(stage, thread, &prompt);
        if text != before {
            return text;
        }
    }
    panic!("it stays as it was");
}

async fn mcp_server_with_memory_tools_turns_the_memory_into_a_pointer(case: Case) {
    let stage = Stage::set(case).await;
    write(&stage);
    serve_tools(&stage, MEMORY_SERVER);
    let plain = printed(&stage, &[], false).await;
    let pointer = printed(&stage, &[], true).await;
    let (mut client, thread) = stage.relay().option("--profile", "ada").with_thread().await;
    let text = context_after(&stage, &mut client, &thread, &plain).await;
    assert_eq!(text, pointer);
    // Where the client says something, nobody is asked.
    let no = json!({"memoryTools": false});
    turn(&mut client, &thread, "without", no).await;
    assert_eq!(instructions_of(&stage, &thread, "without"), plain);
    assert!(client.close().await.success());
    let mut client = stage.relay().option("--profile", "ada").start().await;
    let resume = json!({"threadId": thread});
    client.thread("thread/resume", resume).await;
    let text = context_after(&stage, &mut client, &thread, &plain).await;
    assert_eq!(text, pointer);
    assert!(client.close().await.success());
}
matrix!(mcp_server_with_memory_tools_turns_the_memory_into_a_pointer: versions);

async fn mcp_server_that_does_not_start_leaves_the_memory_to_the_block(case: Case) {
    let stage = Stage::set(case).await;
    write(&stage);
    serve_tools(&stage, "exit 1");
    let plain = printed(&stage, &[], false).await;
    let (mut client, thread) = stage.relay().option("--profile", "ada").with_thread().await;
    turn(&mut client, &thread, "one", json!({})).await;
    assert_eq!(instructions_of(&stage, &thread, "one"), plain);
    let files = files_before(&stage, &thread, "one");
    assert_eq!(files, [["BOOTSTRAP.md", "MEMORY.md"]]);
    assert!(client.close().await.success());
}
matrix!(mcp_server_that_does_not_start_leaves_the_memory_to_the_block: versions);

/// Speaks MCP as far as codex asks.
const MEMORY_SERVER: &str = r#"while read -r line; do
  id=${line#*\"id\":}; id=${id%%,*}; id=${id%\}}
  case $line in
  *\"initialize\"*)
    version=${line#*\"protocolVersion\":\"}; version=${version%%\"*}
    printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"%s","capabilities":{"tools":{}},"serverInfo":{"name":"m","version":"1"}}}\n' "$id" "$version";;
  *tools/list*)
    schema='"inputSchema":{"type":"object"}'
    printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"memory_search",%s},{"name":"memory_get",%s}]}}\n' "$id" "$schema" "$schema";;
  *\"id\":*) printf '{"jsonrpc":"2.0","id":%s,"result":{}}\n' "$id";;
  esac
done"#;

async fn skills_that_codex_lists_itself_are_not_listed_twice(case: Case) {
    let stage = Stage::set(case).await;
    write(&stage);
    let skill = |name: &str| {
        let folder = stage.workspace.join("skills").join(name);
        fs::create_dir_all(&folder).unwrap();
        let text = format!("---\nname: {name}\ndescription: To do with {name}.\n---\n");
        fs::write(folder.join("SKILL.md"), text).unwrap();
        folder
    };
    for (place, name) in [
        (
            stage.project.path().join(".agents/skills"),
            "of-the-project",
        ),
        (stage.home.join(".agents/skills"), "of-the-home"),
        (stage.codex_home.join("skills"), "of-codex"),
    ] {
        fs::create_dir_all(&place).unwrap();
        symlink(skill(name), place.join(name)).unwrap();
    }
    let (mut client, thread) = stage.relay().option("--profile", "ada").with_thread().await;
    turn(&mut client, &thread, "one", json!({})).await;
    assert!(client.close().await.success());
    let requests = stage.endpoint.model_requests();
    let asked = requests.iter().filter(|it| it.thread() == Some(&*thread));
    let whole: String = asked
        .map(|it| String::from_utf8(it.plain().unwrap().to_vec()).unwrap())
        .collect();
    let text = &instructions(&stage, &thread, "one")[0];
    for name in ["of-the-project", "of-the-home", "of-codex"] {
        assert!(
            whole.contains(&format!("To do with {name}.")),
            "codex lists {name}"
        );
        assert!(!text.contains(name), "{text}");
    }
    assert!(text.contains("<name>knit</name>"), "{text}");
}
matrix!(skills_that_codex_lists_itself_are_not_listed_twice: versions);

async fn change_is_logged_with_what_it_costs(case: Case) {
    let stage = Stage::set(case).await;
    write(&stage);
    let (mut client, thread) = stage.relay().option("--log", "info").with_thread().await;
    let words = "the provider's prompt cache starts anew";
    turn(&mut client, &thread, "one", json!({})).await;
    turn(&mut client, &thread, "two", json!({})).await;
    assert_eq!(client.stderr().matches(words).count(), 0);
    stage.write("SOUL.md", &format!("{MARKER} has burnt down."));
    turn(&mut client, &thread, "three", json!({})).await;
    turn(&mut client, &thread, "four", json!({})).await;
    assert_eq!(client.stderr().matches(words).count(), 1);
    assert!(client.close().await.success());
    assert_eq!(
        instructions(&stage, &thread, "one"),
        instructions(&stage, &thread, "two")
    );
    assert_eq!(
        instructions(&stage, &thread, "three"),
        instructions(&stage, &thread, "four")
    );
}
matrix!(change_is_logged_with_what_it_costs: versions);

/// Answers that the context window is exceeded where the prompt says so.
struct Overflows(Model);

impl Script for Overflows {
    fn reply(&self, request: &Recorded) -> Reply {
        let input = request.json().and_then(|body| body["input"].as_array());
        let asked = input.and_then(|input| input.last()).map(Value::to_string);
        if asked.is_some_and(|asked| asked.contains("[overflow]")) {
            let failed = events::failed("resp", "context_length_exceeded", "no room left");
            return Reply::events([events::created("resp"), failed]);
        }
        self.0.reply(request)
    }
}

async fn thread_with_a_full_context_compacts_and_goes_on(case: Case) {
    let stage = Stage::with(case, Overflows(Model::default())).await;
    persona::write(&stage);
    let config = stage.home.with_file_name("relay.toml");
    fs::write(
        &config,
        "[budgets]\nfile_chars = 300000\ntotal_chars = 300000\n",
    )
    .unwrap();
    stage.write("IDENTITY.md", &format!("begin {} end", "x".repeat(261_000)));
    let config = config.display().to_string();
    let (mut client, thread) = stage
        .relay()
        .option("--config", &config)
        .with_thread()
        .await;
    turn(&mut client, &thread, "[full]", json!({})).await;
    turn(&mut client, &thread, "two", json!({})).await;
    let overflow = client.turn(&thread, "[overflow]").await;
    assert_eq!(overflow["status"], "failed", "{overflow}");
    assert_eq!(
        overflow["error"]["codexErrorInfo"], "contextWindowExceeded",
        "{overflow}"
    );
    story::compact(&mut client, &thread).await;
    turn(&mut client, &thread, "four", json!({})).await;
    assert!(client.close().await.success());
    let requests = stage.endpoint.model_requests();
    let of = |purpose: &str| -> Vec<usize> {
        let of_purpose = requests
            .iter()
            .filter(|it| it.purpose().as_deref() == Some(purpose));
        of_purpose.map(|it| persona::copies(it, MARKER)).collect()
    };
    assert_eq!(
        of("compaction"),
        [0, 0],
        "codex compacted by itself, then when asked"
    );
    assert_eq!(of("turn"), [1; 4]);
    let text = &instructions(&stage, &thread, "four")[0];
    assert!(text.len() > 260_000 && text.contains(" end"));
}
matrix!(thread_with_a_full_context_compacts_and_goes_on: transports);

async fn files_that_go_while_turns_run_cost_no_turn(case: Case) {
    let stage = Stage::set(case).await;
    write(&stage);
    let (mut client, thread) = stage.relay().with_thread().await;
    turn(&mut client, &thread, "one", json!({})).await;
    fs::remove_file(stage.workspace.join("USER.md")).unwrap();
    symlink("/etc/passwd", stage.workspace.join("USER.md")).unwrap();
    fs::remove_dir_all(stage.workspace.join("skills")).unwrap();
    fs::write(stage.workspace.join("skills"), "a file").unwrap();
    fs::write(stage.workspace.join("IDENTITY.md"), b"broken \xff bytes\0").unwrap();
    turn(&mut client, &thread, "two", json!({})).await;
    let text = &instructions(&stage, &thread, "two")[0];
    assert!(text.contains("broken \u{fffd} bytes\0"), "{text}");
    assert!(!text.contains("root:") && !text.contains("# Skills"));
    assert!(
        client
            .stderr()
            .contains("USER.md left out: it is reached by a symbolic link")
    );
    fs::remove_dir_all(&stage.workspace).unwrap();
    let params = json!({"threadId": thread, "input": [{"type": "text", "text": "three"}]});
    let error = client.call("turn/start", params).await.unwrap_err();
    assert_eq!(error["data"]["reason"], "context_unavailable", "{error}");
    fs::create_dir(&stage.workspace).unwrap();
    stage.write("SOUL.md", MARKER);
    turn(&mut client, &thread, "four", json!({})).await;
    assert!(client.close().await.success());
    assert!(instructions(&stage, &thread, "four")[0].contains(MARKER));
}
matrix!(files_that_go_while_turns_run_cost_no_turn: versions);
