//! Inference that a Gateway owns: the relay brings the credential, codex never sees it.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use codex_relay::commands::endpoint::{Endpoint, OverHttp, Reply, Script, Upgrade};
use codex_relay::commands::witness::Recorded;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::case::{Case, Transport};
use crate::support::client::Client;
use crate::support::launch::Launch;
use crate::support::model::Model;
use crate::support::persona;
use crate::support::processes::{eventually_one, marked, memory_holds};
use crate::support::stage::{Stage, holds};
use crate::support::story;

/// The credential: stands nowhere else.
const KEY: &str = "gw-key-7d20e1";

/// A Gateway that takes one credential at a time.
#[derive(Clone)]
struct Guarded {
    accepted: Arc<Mutex<String>>,
    transport: Transport,
}

impl Guarded {
    fn takes(&self, key: &str) {
        key.clone_into(&mut self.accepted.lock().unwrap());
    }

    fn refusal(&self, request: &Recorded) -> Option<Reply> {
        let wanted = format!("Bearer {}", self.accepted.lock().unwrap());
        let is_known = request.head.header("authorization") == Some(wanted.as_bytes());
        let error = json!({"error": {"message": "who are you?", "code": "key_unknown"}});
        (!is_known).then(|| Reply::json(StatusCode::UNAUTHORIZED, &error))
    }
}

impl Script for Guarded {
    fn reply(&self, request: &Recorded) -> Reply {
        let refusal = self.refusal(request);
        // The messages of a WebSocket come with the head of its handshake.
        refusal.unwrap_or_else(|| Model::default().reply(request))
    }

    fn other(&self, request: &Recorded) -> Reply {
        let models = || Reply::json(StatusCode::OK, &json!({"models": []}));
        self.refusal(request).unwrap_or_else(models)
    }

    fn upgrade(&self, request: &Recorded) -> Upgrade {
        match (self.refusal(request), self.transport) {
            (Some(refusal), _) => Upgrade::Refuse(refusal),
            (None, Transport::WebSocket) => Upgrade::accept(),
            (None, Transport::Http) => {
                Upgrade::Refuse(Reply::text(StatusCode::UPGRADE_REQUIRED, "http only"))
            }
        }
    }
}

async fn set_stage(case: Case) -> (Stage, Guarded) {
    let gateway = Guarded {
        accepted: Arc::new(Mutex::new(KEY.to_owned())),
        transport: case.transport,
    };
    // What is refused over a WebSocket is refused by the script itself.
    let stage = Stage::on(case, Endpoint::start(gateway.clone()).await.unwrap());
    persona::write(&stage);
    (stage, gateway)
}

impl Launch<'_> {
    fn with_key_in_the_environment(self) -> Self {
        self.env("GATEWAY_KEY", KEY)
            .option("--upstream-bearer-env", "GATEWAY_KEY")
    }

    fn with_key_from(self, file: &std::path::Path) -> Self {
        self.option(
            "--upstream-bearer-command",
            &format!("cat '{}'", file.display()),
        )
    }
}

fn key_file(stage: &Stage, key: &str) -> PathBuf {
    let path = stage.home.with_file_name("key");
    fs::write(&path, format!("{key}\n")).unwrap();
    path
}

/// The requests whose credential isn't the Gateway's, or that say more of an account.
fn strange(stage: &Stage) -> Vec<Arc<Recorded>> {
    let mut all = stage.endpoint.journal().requests;
    let wanted = format!("Bearer {KEY}");
    all.retain(|it| {
        it.head.header("authorization") != Some(wanted.as_bytes())
            || it.head.header("chatgpt-account-id").is_some()
    });
    all
}

async fn codex_without_a_login_runs_on_the_gateways_credential(case: Case) {
    let (stage, _) = set_stage(case).await;
    let log = stage.home.with_file_name("log");
    let mut client = stage
        .relay()
        .logged_out()
        .with_key_in_the_environment()
        .option("--log", "trace")
        .option("--log-file", &log.display().to_string())
        .start()
        .await;
    let account = client.ok("account/read", json!({})).await;
    assert!(account["account"].is_null(), "{account}");
    let thread = client.thread("thread/start", json!({})).await;
    let turn = client.turn(&thread, "[commands 1]").await;
    assert_eq!(turn["status"], "completed", "{turn}\n{}", client.stderr());
    story::spawn_child(&mut client, &thread).await;
    story::review(&mut client, &thread).await;
    story::compact(&mut client, &thread).await;
    assert_no_process_knows_the_key(&mut client, &thread).await;
    let heard = client.inbox.since(0);
    assert!(heard.iter().all(|line| !line.raw.contains(KEY)));
    assert!(!client.stderr().contains(KEY));
    assert!(client.close().await.success());
    assert!(strange(&stage).is_empty(), "{:?}", strange(&stage));
    let requests = stage.endpoint.model_requests();
    for purpose in ["turn", "turn/thread_spawn", "turn/review", "compaction"] {
        let is_it = |it: &&Arc<Recorded>| it.purpose().as_deref() == Some(purpose);
        let found: Vec<_> = requests.iter().filter(is_it).collect();
        assert!(!found.is_empty(), "{purpose}");
        let copies = usize::from(purpose == "turn");
        for request in found {
            assert_eq!(
                persona::copies(request, persona::MARKER),
                copies,
                "{request:?}"
            );
            assert_eq!(request.transport(), case.transport);
        }
    }
    let files = stage.files_of_codex().into_iter().chain([log]);
    let holders: Vec<_> = files.filter(|it| holds(it, KEY)).collect();
    assert!(holders.is_empty(), "{holders:?}");
}
matrix!(codex_without_a_login_runs_on_the_gateways_credential: transports);

/// Looks at everything that came of the relay while codex runs a command.
async fn assert_no_process_knows_the_key(client: &mut Client, thread: &str) {
    let turn = client.start_turn(thread, "[wait]").await;
    let mark = client.mark.clone();
    eventually_one(&mark, |it| it.command.starts_with("sleep 86400")).await;
    let relay = i32::try_from(client.pid()).unwrap();
    let others: Vec<_> = marked(&mark)
        .into_iter()
        .filter(|it| it.pid != relay)
        .collect();
    assert!(others.len() >= 3, "guardian, codex and command: {others:?}");
    for process in others {
        for file in ["environ", "cmdline"] {
            let path = PathBuf::from(format!("/proc/{}/{file}", process.pid));
            assert!(!holds(&path, KEY), "{file} of {process:?}");
            assert!(!holds(&path, "GATEWAY_KEY"), "{file} of {process:?}");
        }
        assert!(!memory_holds(process.pid, KEY), "memory of {process:?}");
    }
    assert!(memory_holds(relay, KEY), "the relay's own memory has it");
    let from = client.inbox.len();
    let interrupt = json!({"threadId": thread, "turnId": turn["id"]});
    client.ok("turn/interrupt", interrupt).await;
    client.turn_end(from, thread).await;
}

async fn account_of_codex_is_replaced(case: Case) {
    let (stage, _) = set_stage(case).await;
    let (mut client, thread) = stage
        .relay()
        .with_key_from(&key_file(&stage, KEY))
        .with_thread()
        .await;
    let turn = client.turn(&thread, "[commands 1]").await;
    assert_eq!(turn["status"], "completed", "{turn}\n{}", client.stderr());
    story::spawn_child(&mut client, &thread).await;
    assert!(client.close().await.success());
    assert!(strange(&stage).is_empty(), "{:?}", strange(&stage));
    assert!(stage.endpoint.model_requests().len() >= 4);
}
matrix!(account_of_codex_is_replaced: all);

async fn credential_that_changes_costs_no_turn(case: Case) {
    let (stage, gateway) = set_stage(case).await;
    let file = key_file(&stage, KEY);
    let (mut client, thread) = stage
        .relay()
        .logged_out()
        .with_key_from(&file)
        .with_thread()
        .await;
    let turn = client.turn(&thread, "one").await;
    assert_eq!(turn["status"], "completed", "{turn}\n{}", client.stderr());
    gateway.takes("gw-key-newer");
    key_file(&stage, "gw-key-newer");
    // A WebSocket that is open stays so: a new thread makes its own.
    let other = client.thread("thread/start", json!({})).await;
    let turn = client.turn(&other, "two").await;
    assert_eq!(turn["status"], "completed", "{turn}\n{}", client.stderr());
    let refused = strange(&stage);
    let refused = refused.iter().filter(|it| {
        it.thread() == Some(&other) && it.head.header("authorization") == Some(KEY_HEADER)
    });
    assert_eq!(
        refused.count(),
        0,
        "only the newer credential is other than the first"
    );
    let requests = stage.endpoint.journal().requests;
    let of_other = requests.iter().filter(|it| it.thread() == Some(&other));
    let old = of_other.filter(|it| it.head.header("authorization") == Some(KEY_HEADER));
    assert_eq!(old.count(), 1, "the old one is tried once");
    // One that nobody takes: the Gateway's own words reach the user.
    gateway.takes("gw-key-unknown");
    let third = client.thread("thread/start", json!({})).await;
    let turn = client.turn(&third, "three").await;
    assert_eq!(turn["status"], "failed", "{turn}");
    assert!(turn.to_string().contains("who are you?"), "{turn}");
    assert!(!turn.to_string().contains("gw-key"), "{turn}");
    assert!(client.close().await.success());
}
matrix!(credential_that_changes_costs_no_turn: transports);

async fn key_file_that_goes_bad_is_told_of_and_costs_no_turn(case: Case) {
    let (stage, _) = set_stage(case).await;
    let file = key_file(&stage, KEY);
    let mut client = stage
        .relay()
        .logged_out()
        .warned()
        .option("--upstream-bearer-file", &file.display().to_string())
        .start()
        .await;
    // A WebSocket that is open stays so: each thread makes its own.
    let mut told = Vec::new();
    for (key, words) in [
        (KEY, None),
        ("", Some("gives nothing; the credential before is used")),
        ("", None),
        (KEY, Some("gives a credential again")),
        (KEY, None),
    ] {
        key_file(&stage, key);
        let thread = client.thread("thread/start", json!({})).await;
        let turn = client.turn(&thread, "hello").await;
        assert_eq!(turn["status"], "completed", "{turn}\n{}", client.stderr());
        told.extend(words);
    }
    client.ok("relay/info", json!({})).await;
    let from = client.inbox.since(0);
    let warnings = from
        .iter()
        .filter(|it| it.method() == Some("relay/warning"));
    let warnings: Vec<_> = warnings.map(|it| &it.value["params"]).collect();
    assert_eq!(warnings.len(), told.len(), "{warnings:?}");
    for (warning, words) in warnings.into_iter().zip(told) {
        assert_eq!(warning["reason"], "upstream_credential");
        assert!(
            warning["message"].as_str().unwrap().ends_with(words),
            "{warning}"
        );
    }
    assert!(client.close().await.success());
    assert!(strange(&stage).is_empty(), "{:?}", strange(&stage));
}
matrix!(key_file_that_goes_bad_is_told_of_and_costs_no_turn: transports);

const KEY_HEADER: &[u8] = b"Bearer gw-key-7d20e1";

async fn threads_go_from_the_gateway_to_a_plain_codex_and_back(case: Case) {
    let (stage, _) = set_stage(case).await;
    let own = match case.transport {
        Transport::Http => Endpoint::start(OverHttp(Model::default())).await,
        Transport::WebSocket => Endpoint::start(Model::default()).await,
    };
    let own = own.unwrap();
    let relay = || stage.relay().logged_out().with_key_in_the_environment();
    let (mut client, thread) = relay().with_thread().await;
    client.turn(&thread, "one").await;
    assert!(client.close().await.success());

    let mut client = stage.plain().unrouted().logged_out().start().await;
    client.config = json!({"openai_base_url": own.base_url()});
    let listed = client.ok("thread/list", json!({})).await;
    let listed = listed["data"].as_array().unwrap();
    assert!(
        listed.iter().any(|it| it["id"] == thread.as_str()),
        "{listed:?}"
    );
    let resume = json!({"threadId": thread});
    client.thread("thread/resume", resume.clone()).await;
    let turn = client.turn(&thread, "two").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let plain = client.thread("thread/start", json!({})).await;
    client.turn(&plain, "three").await;
    assert!(client.close().await.success());

    let mut client = relay().start().await;
    for thread in [&thread, &plain] {
        client
            .thread("thread/resume", json!({"threadId": thread}))
            .await;
        let turn = client.turn(thread, "four").await;
        assert_eq!(turn["status"], "completed", "{turn}\n{}", client.stderr());
    }
    assert!(client.close().await.success());
    assert!(strange(&stage).is_empty(), "{:?}", strange(&stage));
    let keyed = own.journal().requests;
    let keyed = keyed
        .iter()
        .filter(|it| it.head.header("authorization").is_some());
    assert_eq!(keyed.count(), 0, "a plain codex has no credential");
}
matrix!(threads_go_from_the_gateway_to_a_plain_codex_and_back: transports);

async fn doctor_says_whether_the_credential_is_taken(case: Case) {
    let (stage, gateway) = set_stage(case).await;
    let file = key_file(&stage, KEY);
    let report = async || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_codex-relay"));
        command.arg("--codex").arg(&stage.codex.native);
        command.args(["--upstream", &stage.endpoint.base_url()]);
        command.arg("--upstream-bearer-file").arg(&file);
        command.args(["doctor", "--json"]).env_clear();
        command.env("HOME", &stage.home);
        command.env("CODEX_HOME", &stage.codex_home);
        let output = command.output().await.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.contains(KEY), "{text}");
        let report: Value = serde_json::from_str(&text).unwrap();
        let checks = report["checks"].as_array().unwrap().clone();
        let find = move |name: &str| {
            let found = checks.iter().find(|check| check["name"] == name);
            found
                .unwrap_or_else(|| panic!("no {name} in {text}"))
                .clone()
        };
        (find("credential"), find("upstream"))
    };
    let (credential, upstream) = report().await;
    assert_eq!(credential["status"], "ok", "{credential}");
    assert_eq!(upstream["status"], "ok", "{upstream}");
    gateway.takes("another");
    let (credential, upstream) = report().await;
    assert_eq!(credential["status"], "ok", "{credential}");
    assert_eq!(upstream["status"], "failed", "{upstream}");
    assert!(
        upstream["found"].as_str().unwrap().contains("401"),
        "{upstream}"
    );
}
matrix!(doctor_says_whether_the_credential_is_taken: http);
