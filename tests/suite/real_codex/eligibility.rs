//! Which threads are routed, and what becomes of routes that change.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use codex_relay::commands::endpoint::{Reply, Script};
use codex_relay::commands::witness::Recorded;
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::case::{Case, Login, Transport};
use crate::support::client::Client;
use crate::support::codex::Version;
use crate::support::eventually;
use crate::support::inbox::Line;
use crate::support::launch::{Launch, log_in, tokens};
use crate::support::model::Model;
use crate::support::needs_superuser;
use crate::support::orders::{replaced, told, turn};
use crate::support::persona::{self, MARKER, copies};
use crate::support::stage::{PrivateRoute, Stage};

/// Adds a line at the head of codex's configuration.
fn configure(stage: &Stage, lines: &str) {
    let path = stage.codex_home.join("config.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(path, format!("{lines}\n{text}")).unwrap();
}

/// A client whose thread was started with these params, and the thread.
async fn started(launch: Launch<'_>, params: Value) -> (Client, String) {
    let mut client = launch.start().await;
    let thread = client.thread("thread/start", params).await;
    (client, thread)
}

/// Says that the route of a thread was refused for this reason, that codex was left its own way, and that the thread
/// is told its context all the same.
async fn is_not_routed(stage: &Stage, launch: Launch<'_>, params: Value, reason: &str) {
    persona::write(stage);
    let (client, _) = started(launch.spied(), params).await;
    assert!(client.stderr().contains(reason), "{}", client.stderr());
    let stdin = fs::read_to_string(stage.copy_of_stdin()).unwrap();
    assert!(!stdin.contains("\"openai_base_url\":\"http://"), "{stdin}");
    let start = stdin.lines().find(|it| it.contains("thread/start"));
    let start: Value = serde_json::from_str(start.unwrap()).unwrap();
    let told = start["params"]["developerInstructions"].as_str().unwrap();
    assert!(told.starts_with("<agent_workspace_section>\n") && told.contains(MARKER));
    assert!(client.close().await.success());
}

async fn ways_of_ones_own_are_left_alone(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let system = json!({"config": {"features.respect_system_proxy": true}});
    is_not_routed(&stage, stage.relay(), system, "system_proxy").await;
    let nested = json!({"config": {"features": {"respect_system_proxy": true}}});
    is_not_routed(&stage, stage.relay(), nested, "system_proxy").await;
    let provider = json!({"name": "mine", "base_url": "http://127.0.0.1:1/v1"});
    let chosen =
        json!({"config": {"model_provider": "mine", "model_providers": {"mine": provider}}});
    is_not_routed(&stage, stage.relay(), chosen, "other_provider").await;
    let own = json!({"config": {"openai_base_url": "https://gateway.example/v1"}});
    is_not_routed(&stage, stage.relay(), own, "own_endpoint").await;
    configure(&stage, "features.respect_system_proxy = true");
    let text = fs::read_to_string(stage.codex_home.join("config.toml")).unwrap();
    let text = text.replace("features.respect_system_proxy = true\n", "");
    let text = text.replace("[features]\n", "[features]\nrespect_system_proxy = true\n");
    fs::write(stage.codex_home.join("config.toml"), text).unwrap();
    is_not_routed(&stage, stage.relay(), json!({}), "system_proxy").await;
}
matrix!(ways_of_ones_own_are_left_alone: versions);

async fn address_of_a_config_flag_is_the_users_own(case: Case) {
    let stage = Stage::set(case).await;
    let flag = "openai_base_url=\"http://127.0.0.1:1/v1\"";
    let launch = stage.relay().argument("-c").argument(flag);
    is_not_routed(&stage, launch, json!({}), "own_endpoint").await;
    let launch = stage
        .relay()
        .argument("-c")
        .argument("openai_base_url=\"\"");
    let (mut client, thread) = started(launch, json!({})).await;
    let turn = client.turn(&thread, "hello").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    assert!(client.close().await.success());
}
matrix!(address_of_a_config_flag_is_the_users_own: versions);

/// A relay on a machine whose administrator has given codex this file.
fn managed<'a>(stage: &'a Stage, name: &str, text: &str) -> Launch<'a> {
    needs_superuser();
    let file = stage.home.with_file_name(name);
    fs::write(&file, text).unwrap();
    let etc = stage.home.with_file_name("etc");
    fs::create_dir(&etc).unwrap();
    let script = include_str!("managed.sh");
    let (etc, file) = (etc.display().to_string(), file.display().to_string());
    let words = [
        "unshare", "--mount", "--", "sh", "-c", script, "managed", &etc, &file,
    ];
    stage.relay().within(words.map(str::to_owned))
}

async fn upstream_of_managed_configuration_is_left_alone(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let url = format!("openai_base_url = \"{}\"\n", stage.endpoint.base_url());
    let launch = managed(&stage, "managed_config.toml", &url).spied();
    let (mut client, thread) = started(launch, json!({})).await;
    turn(&mut client, &thread, "one").await;
    stage.write("SOUL.md", "You keep the other lighthouse.\n");
    turn(&mut client, &thread, "two").await;
    let status = client.ok("relay/status", json!({"threadId": thread})).await;
    let route = &status["threads"][0]["route"];
    assert_eq!(route["status"], "fallback", "{status}");
    assert_eq!(route["reason"], "upstream_locked", "{status}");
    assert!(
        client.stderr().contains("upstream_locked"),
        "{}",
        client.stderr()
    );
    assert!(client.close().await.success());
    let stdin = fs::read_to_string(stage.copy_of_stdin()).unwrap();
    assert!(!stdin.contains("\"openai_base_url\":\"http://"), "{stdin}");
    let one = stage.asked(&thread, "one");
    let section = told(&one, MARKER);
    assert!(section.len() == 1 && section[0].starts_with("<agent_workspace_section>\n"));
    assert!(!one.instructions().unwrap_or_default().contains(MARKER));
    let two = replaced(&stage.asked(&thread, "two"));
    assert!(
        two.len() == 1 && two[0].contains("other lighthouse"),
        "{two:?}"
    );
}
matrix!(upstream_of_managed_configuration_is_left_alone: http);

async fn proxies_of_managed_requirements_are_left_alone(case: Case) {
    // The older version knows no such requirement.
    if case.version == Version::V155 {
        return;
    }
    let stage = Stage::set(case).await;
    let required = "[features]\nrespect_system_proxy = true\n";
    let launch = managed(&stage, "requirements.toml", required);
    is_not_routed(&stage, launch, json!({}), "system_proxy").await;
}
matrix!(proxies_of_managed_requirements_are_left_alone: versions);

/// A program that is codex but for what it writes, or reads.
fn altered(stage: &Stage, name: &str, reads: &str, writes: &str) -> std::path::PathBuf {
    let codex = stage.codex.native.display();
    let script = format!("sed -u '{reads}' | '{codex}' \"$@\" | sed -u '{writes}'");
    stage.program(name, &script)
}

async fn program_that_is_not_codex_is_relayed_without_a_route(case: Case) {
    let stage = Stage::set(case).await;
    let agent = "s#\"userAgent\":\"[^\"]*\"#\"userAgent\":\"my-agents 3\"#";
    let program = altered(&stage, "other", "", agent);
    is_not_routed(
        &stage,
        stage.relay().codex(program),
        json!({}),
        "custom_command",
    )
    .await;
    assert_eq!(stage.endpoint.model_requests().len(), 0);
}
matrix!(program_that_is_not_codex_is_relayed_without_a_route: versions);

async fn attachment_is_relayed_without_a_route(case: Case) {
    let stage = Stage::set(case).await;
    // An attachment answers as the app server that it attaches to.
    let script = format!(
        "[ \"$2\" = proxy ] && exec '{}' app-server",
        stage.codex.native.display()
    );
    let program = stage.program("attached", &script);
    let launch = stage.relay().codex(program).argument("proxy");
    is_not_routed(&stage, launch, json!({}), "attached_proxy").await;
}
matrix!(attachment_is_relayed_without_a_route: versions);

async fn account_of_another_provider_is_left_its_own_way(case: Case) {
    let stage = Stage::set(case).await;
    let read = r#"s/"account":{"type":"apiKey"}/"account":{"type":"amazonBedrock"}/"#;
    let told = r#"s/"authMode":"apikey"/"authMode":"bedrockApiKey"/"#;
    let bedrock = &format!("{read};{told}");
    let program = altered(&stage, "bedrock", "", bedrock);
    is_not_routed(
        &stage,
        stage.relay().codex(program),
        json!({}),
        "account_unknown",
    )
    .await;
}
matrix!(account_of_another_provider_is_left_its_own_way: versions);

async fn hundreds_of_threads_are_routed(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let mut client = stage.relay().start().await;
    let mut threads = Vec::new();
    for _ in 0..300 {
        threads.push(
            client
                .thread("thread/start", json!({"ephemeral": true}))
                .await,
        );
    }
    for thread in [&threads[0], &threads[299]] {
        let turn = client.turn(thread, "hello").await;
        assert_eq!(turn["status"], "completed", "{turn}");
        let requests = stage.endpoint.model_requests();
        let last = requests.iter().rfind(|it| it.turn().is_some()).unwrap();
        assert_eq!(copies(last, MARKER), 1);
    }
    assert!(client.close().await.success());
}
matrix!(hundreds_of_threads_are_routed: http);

async fn old_codex_is_refused_by_its_version(case: Case) {
    let stage = Stage::set(case).await;
    let number = case.version.number();
    let older = format!("s#/{number} (#/0.148.0 (#");
    let program = altered(&stage, "older", "", &older);
    let mut client = stage.relay().codex(program).spawn();
    let introduction = json!({"clientInfo": {"name": "suite", "version": "1"}});
    let refused = client.call("initialize", introduction).await.unwrap_err();
    let words = "codex-relay: codex 0.148.0 is too old, 0.149.0 or newer is needed";
    assert!(
        refused["message"].as_str().unwrap().starts_with(words),
        "{refused}"
    );
    assert_eq!(refused["data"]["reason"], "codex_too_old");
    assert_eq!(client.exit().await.code(), Some(69));
}
matrix!(old_codex_is_refused_by_its_version: versions);

async fn newer_codex_is_a_warning(case: Case) {
    let stage = Stage::set(case).await;
    let number = case.version.number();
    let newer = format!("s#/{number} (#/0.999.0 (#");
    let program = altered(&stage, "newer", "", &newer);
    let (mut client, thread) = started(stage.relay().codex(program), json!({})).await;
    let turn = client.turn(&thread, "hello").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    assert!(
        client.stderr().contains("codex 0.999.0 is newer"),
        "{}",
        client.stderr()
    );
    assert!(client.close().await.success());
}
matrix!(newer_codex_is_a_warning: versions);

async fn turn_that_goes_another_way_raises_the_alarm(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    // As managed configuration would: another address than the one that codex was given by us.
    let past_us = format!(
        "s#\"openai_base_url\":\"[^\"]*\"#\"openai_base_url\":\"{}\"#",
        stage.endpoint.base_url()
    );
    let program = altered(&stage, "past", &past_us, "");
    let (mut client, thread) = started(stage.relay().codex(program), json!({})).await;
    let turn = client.turn(&thread, "hello").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    eventually("the alarm is raised", || {
        client
            .stderr()
            .contains("reached a model without the relay")
            .then_some(())
    })
    .await;
    let requests = stage.endpoint.model_requests();
    assert!(requests.iter().all(|it| copies(it, MARKER) == 0));
    assert!(client.close().await.success());
}
matrix!(turn_that_goes_another_way_raises_the_alarm: transports);

async fn turns_that_come_here_raise_none(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let (mut client, thread) = started(stage.relay(), json!({})).await;
    for prompt in ["hello", "[commands 2]", "[full]"] {
        client.turn(&thread, prompt).await;
    }
    let command = json!({"threadId": thread, "command": "true"});
    client.turn_of("thread/shellCommand", command).await;
    crate::support::story::review(&mut client, &thread).await;
    crate::support::story::compact(&mut client, &thread).await;
    assert!(
        !client.stderr().contains("without the relay"),
        "{}",
        client.stderr()
    );
    assert!(client.close().await.success());
}
matrix!(turns_that_come_here_raise_none: transports);

async fn turns_that_pass_unread_raise_none(case: Case) {
    let stage = Stage::set(case).await;
    let launch = stage.relay().option("--context", "none");
    let (mut client, thread) = started(launch, json!({})).await;
    client.turn(&thread, "hello").await;
    client.turn(&thread, "[commands 2]").await;
    let told = client.stderr();
    assert!(!told.contains("without the relay"), "{told}");
    let status = client.ok("relay/status", json!({})).await;
    assert_eq!(status["threads"][0]["bypasses"], 0, "{status}");
    let count = |requests: &Value| -> u64 {
        let untouched = requests["untouched"].as_object().unwrap();
        untouched.values().filter_map(Value::as_u64).sum()
    };
    let asked = stage.endpoint.model_requests();
    assert!(asked.len() >= 4);
    assert_eq!(count(&status["totals"]), asked.len() as u64, "{status}");
    // What codex asks before it has answered for the thread's start is nobody's yet.
    let of_turns = asked.iter().filter(|it| it.turn().is_some()).count();
    let of_thread = count(&status["threads"][0]["requests"]);
    assert!(of_thread >= of_turns as u64, "{status}");
    assert!(client.close().await.success());
}
matrix!(turns_that_pass_unread_raise_none: transports);

async fn account_of_another_kind_is_routed_anew(case: Case) {
    let model = Model::default();
    let stage = Stage::with(case, model.clone()).await;
    persona::write(&stage);
    let (mut client, thread) = started(stage.relay(), json!({})).await;
    let from = client.inbox.len();
    let input = json!([{"type": "text", "text": "[hold]"}]);
    let turn = json!({"threadId": thread, "input": input});
    client.ok("turn/start", turn).await;
    let turns = || {
        let requests = stage.endpoint.model_requests();
        requests
            .into_iter()
            .filter(|it| it.turn().is_some())
            .count()
    };
    eventually("the request is here", || (turns() == 1).then_some(())).await;
    log_in(&mut client, Login::ChatGpt).await;
    if case.version == Version::V155 {
        // Codex goes on, as somebody else. 0.171.0 ends the turn by itself.
        eventually("the request comes again", || (turns() > 1).then_some(())).await;
        let told = client.stderr();
        assert!(
            told.contains("the account is of another kind now"),
            "{told}"
        );
    }
    model.held_may_end.give();
    let of_thread = |params: &Value| params["threadId"] == thread.as_str();
    client.notification(from, "turn/completed", of_thread).await;
    let turn = client.turn(&thread, "hello").await;
    assert_eq!(turn["status"], "completed", "{turn}\n{}", client.stderr());
    let requests = stage.endpoint.model_requests();
    let last = requests.iter().rfind(|it| it.turn().is_some()).unwrap();
    assert_eq!(copies(last, MARKER), 1);
    assert!(client.close().await.success());
}
matrix!(account_of_another_kind_is_routed_anew: versions);

async fn new_token_of_the_same_account_interrupts_nothing(case: Case) {
    let model = Model::default();
    let stage = Stage::with(case, model.clone()).await;
    let (mut client, thread) = started(stage.relay(), json!({})).await;
    let from = client.inbox.len();
    let input = json!([{"type": "text", "text": "[hold]"}]);
    let turn = json!({"threadId": thread, "input": input});
    client.ok("turn/start", turn).await;
    let requests = || stage.endpoint.model_requests();
    let arrived = || requests().iter().any(|it| it.turn().is_some());
    eventually("the request is here", || arrived().then_some(())).await;
    let before = requests().len();
    log_in(&mut client, case.login).await;
    model.held_may_end.give();
    let of_thread = |params: &Value| params["threadId"] == thread.as_str();
    let ended = client.notification(from, "turn/completed", of_thread).await;
    // 0.171.0 ends what runs at every login, whoever stands behind it.
    if case.version == Version::V155 {
        assert_eq!(ended["turn"]["status"], "completed", "{ended}");
        assert_eq!(requests().len(), before);
    }
    assert!(
        !client.stderr().contains("of another kind"),
        "{}",
        client.stderr()
    );
    assert!(client.close().await.success());
}
matrix!(new_token_of_the_same_account_interrupts_nothing: versions);

/// Takes the first turn's token for an expired one.
struct Expired {
    model: Model,
    has_refused: AtomicBool,
}

impl Script for Expired {
    fn reply(&self, request: &Recorded) -> Reply {
        let is_first = request.turn().is_some() && !self.has_refused.swap(true, Ordering::SeqCst);
        if is_first {
            let error = json!({"error": {"message": "expired", "code": "token_expired"}});
            return Reply::json(StatusCode::UNAUTHORIZED, &error);
        }
        self.model.reply(request)
    }
}

async fn token_is_refreshed_while_a_request_waits(version: Version) {
    let case = Case {
        version,
        transport: Transport::Http,
        login: Login::ChatGpt,
    };
    let script = Expired {
        model: Model::default(),
        has_refused: AtomicBool::default(),
    };
    let stage = Stage::with(case, script).await;
    persona::write(&stage);
    let (mut client, thread) = started(stage.relay(), json!({})).await;
    let from = client.inbox.len();
    let input = json!([{"type": "text", "text": "hello"}]);
    let turn = json!({"threadId": thread, "input": input});
    client.ok("turn/start", turn).await;
    let asked = |line: &Line| line.method() == Some("account/chatgptAuthTokens/refresh");
    let question = client
        .inbox
        .wait("a question for tokens", from, asked)
        .await;
    let answer = json!({"id": question.value["id"], "result": tokens()});
    client.send(&answer).await;
    let of_thread = |params: &Value| params["threadId"] == thread.as_str();
    let ended = client.notification(from, "turn/completed", of_thread).await;
    assert_eq!(ended["turn"]["status"], "completed", "{ended}");
    let requests = stage.endpoint.model_requests();
    let turns = requests.iter().filter(|it| it.turn().is_some());
    let copies: Vec<_> = turns.map(|it| copies(it, MARKER)).collect();
    assert_eq!(copies, [1, 1]);
    assert!(client.close().await.success());
}

#[tokio::test]
async fn token_is_refreshed_while_a_request_waits_v171() {
    Box::pin(token_is_refreshed_while_a_request_waits(Version::V171)).await;
}

#[tokio::test]
async fn token_is_refreshed_while_a_request_waits_v155() {
    Box::pin(token_is_refreshed_while_a_request_waits(Version::V155)).await;
}

async fn endpoint_that_fails_ends_codex_and_says_so(case: Case) {
    let stage = Stage::set(case).await;
    let (mut client, thread) = started(stage.relay().spied(), json!({})).await;
    let from = client.inbox.len();
    let input = json!([{"type": "text", "text": "[hold]"}]);
    client
        .ok("turn/start", json!({"threadId": thread, "input": input}))
        .await;
    let PrivateRoute { address, .. } = stage.spied();
    crate::support::processes::shut_listener(client.pid(), address.port());
    assert_eq!(client.exit().await.code(), Some(70));
    let lines = client.inbox.since(from);
    let ended = lines
        .iter()
        .filter(|it| it.method() == Some("turn/completed"));
    assert_eq!(ended.count(), 1, "{lines:?}");
    assert!(
        client.stderr().contains("accepts no more connections"),
        "{}",
        client.stderr()
    );
}
matrix!(endpoint_that_fails_ends_codex_and_says_so: versions);
