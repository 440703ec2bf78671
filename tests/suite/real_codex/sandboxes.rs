//! What a thread may write to, over a renewal: what it would be without one.

use std::fs;

use serde_json::{Value, json};

use super::policy::{NEW, OLD};
use crate::support::case::Case;
use crate::support::client::Client;
use crate::support::orders::replaced;
use crate::support::stage::Stage;

/// What codex says that a thread may write to.
async fn sandbox(client: &mut Client, thread: &str) -> Value {
    let resume = json!({"threadId": thread, "excludeTurns": true});
    let answer = client.ok("thread/resume", resume).await;
    let names = ["cwd", "runtimeWorkspaceRoots", "sandbox"];
    names.map(|name| answer[name].clone()).to_vec().into()
}

/// `value` with each folder `@name` as it is on this stage.
fn on(stage: &Stage, value: &Value) -> Value {
    let at = format!("{}/", stage.home.display());
    serde_json::from_str(&value.to_string().replace('@', &at)).unwrap()
}

/// Whether what a thread may write to in the end is the same with a renewal before its second turn, and
/// what it is.
async fn assert_kept(stage: &Stage, start: &Value, turns: [Value; 3]) -> Value {
    for name in ["a", "b", "r", "x"] {
        fs::create_dir_all(stage.home.join(name)).unwrap();
    }
    let start = on(stage, start);
    let mut client = stage.with_policy(OLD).start().await;
    let mut said = Vec::new();
    for policy in [OLD, NEW] {
        stage.policy(OLD);
        let thread = client.thread("thread/start", start.clone()).await;
        for (more, prompt) in turns.iter().zip(["one", "two", "three"]) {
            let done = client.turn_with(&thread, prompt, on(stage, more)).await;
            assert_eq!(done["status"], "completed", "{done}");
            stage.policy(policy);
        }
        let renewals = replaced(&stage.asked(&thread, "two")).len();
        assert_eq!(renewals, usize::from(policy == NEW));
        said.push(sandbox(&mut client, &thread).await);
    }
    assert!(client.close().await.success());
    assert_eq!(said[1], said[0]);
    said.swap_remove(0)
}

fn plain_policy(roots: &[&str]) -> Value {
    json!({
        "type": "workspaceWrite",
        "writableRoots": roots,
        "networkAccess": false,
        "excludeTmpdirEnvVar": true,
        "excludeSlashTmp": false,
    })
}

async fn workspace_roots_stay_no_longer_than_the_thread(case: Case) {
    let stage = Stage::set(case).await;
    let start =
        json!({"cwd": "@a", "sandbox": "workspace-write", "runtimeWorkspaceRoots": ["@a", "@r"]});
    let away = json!({"cwd": "@b", "runtimeWorkspaceRoots": ["@b"]});
    let policy = json!({"sandboxPolicy": plain_policy(&[])});
    for first in [json!({}), policy] {
        for turns in [
            [first.clone(), json!({}), away.clone()],
            [first.clone(), away.clone(), json!({"cwd": "@x"})],
        ] {
            let left = assert_kept(&stage, &start, turns).await;
            assert_eq!(left[2]["writableRoots"], json!([]));
        }
    }
}
matrix!(workspace_roots_stay_no_longer_than_the_thread: http);

async fn folder_of_an_environment_stays_no_longer_than_the_thread(case: Case) {
    let stage = Stage::set(case).await;
    let at = |folder: &str| json!({"environments": [{"environmentId": "local", "cwd": folder}]});
    let mut start = at("@x");
    start["cwd"] = "@a".into();
    start["sandbox"] = "workspace-write".into();
    for turns in [
        [json!({}), json!({}), at("@b")],
        [json!({}), at("@b"), json!({})],
        [json!({}), json!({"cwd": "@b"}), json!({})],
        [
            json!({}),
            json!({"runtimeWorkspaceRoots": ["@r"]}),
            json!({"cwd": "@b", "runtimeWorkspaceRoots": ["@b"]}),
        ],
    ] {
        let left = assert_kept(&stage, &start, turns).await;
        assert_eq!(left[2]["writableRoots"], json!([]));
        assert_eq!(left[2]["excludeTmpdirEnvVar"], false);
    }
}
matrix!(folder_of_an_environment_stays_no_longer_than_the_thread: http);

async fn policy_of_the_client_stays_as_it_is(case: Case) {
    let stage = Stage::set(case).await;
    // One of its roots is a workspace root, too.
    let start = json!({"cwd": "@a", "runtimeWorkspaceRoots": ["@a", "@r"]});
    let set = json!({"sandboxPolicy": plain_policy(&["@r", "@x"])});
    let away = json!({"cwd": "@b", "runtimeWorkspaceRoots": ["@b"]});
    let left = assert_kept(&stage, &start, [set, json!({}), away.clone()]).await;
    let roots = on(&stage, &json!(["@r", "@x"]));
    assert_eq!(left[2]["writableRoots"], roots);
    let settings =
        json!({"sandbox_workspace_write": {"writable_roots": ["@r"], "network_access": true}});
    let start = json!({"cwd": "@a", "sandbox": "workspace-write", "config": settings});
    let left = assert_kept(&stage, &start, [json!({}), json!({}), away.clone()]).await;
    assert_eq!(left[2]["writableRoots"], on(&stage, &json!(["@r"])));
    // A policy of its own beats what its configuration would bring.
    let set = json!({"sandboxPolicy": plain_policy(&[])});
    let left = assert_kept(&stage, &start, [set, json!({}), away]).await;
    assert_eq!(left[2], plain_policy(&[]));
}
matrix!(policy_of_the_client_stays_as_it_is: http);

async fn policy_of_an_update_stays_as_it_is(case: Case) {
    let stage = Stage::set(case).await;
    let folder = stage.home.display().to_string();
    let mut client = stage.with_policy(OLD).start().await;
    let start = json!({"runtimeWorkspaceRoots": [folder], "sandbox": "read-only"});
    let thread = client.thread("thread/start", start).await;
    let policy = plain_policy(&[&folder]);
    let update = json!({"threadId": thread, "sandboxPolicy": policy});
    client.ok("thread/settings/update", update).await;
    let refused = json!({"threadId": thread, "sandboxPolicy": plain_policy(&[]), "permissions": ":workspace"});
    let refused = client.call("thread/settings/update", refused).await;
    assert!(refused.is_err());
    let done = client.turn_with(&thread, "one", json!({})).await;
    assert_eq!(done["status"], "completed", "{done}");
    stage.policy(NEW);
    let done = client.turn_with(&thread, "two", json!({})).await;
    assert_eq!(done["status"], "completed", "{done}");
    let away = json!({"cwd": stage.workspace, "runtimeWorkspaceRoots": [stage.workspace]});
    let done = client.turn_with(&thread, "three", away).await;
    assert_eq!(done["status"], "completed", "{done}");
    assert_eq!(sandbox(&mut client, &thread).await[2], policy);
    assert!(client.close().await.success());
    assert_eq!(replaced(&stage.asked(&thread, "two")).len(), 1);
}
matrix!(policy_of_an_update_stays_as_it_is: http);
