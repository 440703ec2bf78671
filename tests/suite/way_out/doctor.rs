//! The doctor names the hop that fails, and what mends it.

use serde_json::Value;
use tokio::process::Command;

use crate::support::case::{Case, Login, Transport};
use crate::support::codex::Version;
use crate::support::front::{Authority, Behind, Front};
use crate::support::proxy::{ForwardProxy, PASSWORD, UPSTREAM, hosts_file};
use crate::support::stage::Stage;

/// What the doctor says, and its exit code.
async fn report(
    stage: &Stage,
    options: &[&str],
    variables: &[(&str, &str)],
) -> (Option<i32>, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_codex-relay"));
    command.arg("--codex").arg(&stage.codex.native);
    command.arg("--workspace").arg(&stage.workspace);
    command.args(options).args(["doctor", "--json"]).env_clear();
    command
        .env("HOME", &stage.home)
        .env("CODEX_HOME", &stage.codex_home);
    command.envs(variables.iter().copied());
    let output = command.output().await.unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(!text.contains(PASSWORD), "{text}");
    let json = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{output:?}"));
    (output.status.code(), json)
}

/// Status and words of a check.
fn check<'a>(report: &'a Value, name: &str) -> (&'a str, &'a str) {
    let checks = report["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["name"] == name);
    let found = found.unwrap_or_else(|| panic!("no {name} in {report}"));
    let text = |member: &str| found[member].as_str().unwrap();
    (text("status"), text("found"))
}

async fn stage() -> Stage {
    Stage::set(Case {
        version: Version::V171,
        transport: Transport::Http,
        login: Login::ApiKey,
    })
    .await
}

#[tokio::test]
async fn everything_in_order_is_said_so_and_nothing_changes() {
    let stage = stage().await;
    stage.write("SOUL.md", "You keep the lighthouse.\n");
    // Codex furnishes its home when it first runs.
    let client = stage.relay().start().await;
    assert!(client.close().await.success());
    let authority = Authority::new("Authority of the test");
    let behind = Behind::Endpoint(stage.endpoint.address());
    let front = Front::start(&authority, UPSTREAM, behind).await;
    let proxy = ForwardProxy::with_login().await;
    let upstream = format!("https://{UPSTREAM}:{}/v1", front.address.port());
    let roots = authority.file(&stage.home).display().to_string();
    let before = contents(&stage);
    let (code, report) = report(
        &stage,
        &["--upstream", &upstream, "--ca-file", &roots],
        &[("https_proxy", &proxy.url("http"))],
    )
    .await;
    assert_eq!(code, Some(0), "{report:#}");
    for name in [
        "codex",
        "workspace",
        "account",
        "route",
        "proxy",
        "tls",
        "upstream",
    ] {
        assert_eq!(check(&report, name).0, "ok", "{report:#}");
    }
    assert_eq!(check(&report, "account").1, "an API key");
    assert_eq!(contents(&stage), before);
}

/// Every file of codex's home with its bytes, but for what a database keeps while it is open.
fn contents(stage: &Stage) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut files = stage.files_of_codex();
    files.sort();
    let read = files.into_iter().map(|file| {
        let bytes = std::fs::read(&file).unwrap();
        (file, bytes)
    });
    read.collect()
}

#[tokio::test]
async fn each_hop_that_fails_is_named() {
    let stage = stage().await;
    let authority = Authority::new("Authority of the test");
    let front = Front::start(&authority, "localhost", Behind::Versions).await;
    let local = format!("https://localhost:{}/v1", front.address.port());
    let proxy = ForwardProxy::with_login().await;
    let strict = format!("http://{}", proxy.address);
    for (options, name, words) in [
        (
            vec!["--upstream", &local],
            "tls",
            "tls: unknown issuer CN=Authority of the test",
        ),
        (
            vec!["--upstream", "http://127.0.0.1:1"],
            "connect",
            "connect: connection refused",
        ),
        (
            vec!["--upstream", "https://nowhere.invalid"],
            "dns",
            "dns: no such host",
        ),
        (
            vec!["--upstream", "https://up.example", "--proxy", &strict],
            "proxy",
            " answered 407 ",
        ),
    ] {
        let (code, report) = report(&stage, &options, &[]).await;
        assert_eq!(code, Some(1), "{report:#}");
        let (status, found) = check(&report, name);
        assert!(status == "failed" && found.contains(words), "{report:#}");
        assert_eq!(check(&report, "account").0, "skipped");
    }
}

#[tokio::test]
async fn service_at_a_private_address_is_refused_unless_it_was_named() {
    let stage = stage().await;
    let hosts = hosts_file(&stage.home, "10.0.0.7 api.openai.com\n");
    let variables: Vec<(&str, &str)> = hosts.iter().map(|(n, v)| (*n, v.as_str())).collect();
    let (_, refused) = report(&stage, &[], &variables).await;
    let (status, found) = check(&refused, "dns");
    assert_eq!(status, "failed");
    assert!(
        found.starts_with("dns: api.openai.com is 10.0.0.7 here, a private address"),
        "{found}"
    );
    let authority = Authority::new("Authority of the test");
    let front = Front::start(&authority, "dual.example", Behind::Versions).await;
    // The first address leads nowhere.
    let hosts = hosts_file(
        &stage.home,
        "2001:db8::1 dual.example\n127.0.0.1 dual.example\n",
    );
    let variables: Vec<(&str, &str)> = hosts.iter().map(|(n, v)| (*n, v.as_str())).collect();
    let upstream = format!("https://dual.example:{}", front.address.port());
    let roots = authority.file(&stage.home).display().to_string();
    let options = ["--upstream", &upstream, "--ca-file", &roots];
    let (code, dual) = report(&stage, &options, &variables).await;
    assert_eq!(code, Some(0), "{dual:#}");
    assert_eq!(check(&dual, "tls").0, "ok");
}
