//! The copy of AGENTS.md follows the environments of a thread: codex reads the file of the folder that the
//! environment of this machine is in.

use std::fs;

use serde_json::{Value, json};

use super::documents::{AGENTS, in_workspace, shown};
use super::policy::OLD;
use crate::support::case::Case;
use crate::support::client::Client;
use crate::support::codex::Version;
use crate::support::eventually;
use crate::support::model::Model;
use crate::support::orders::{replaced, turn};
use crate::support::persona::copies;
use crate::support::stage::Stage;

/// A list of environments with this machine alone, in a folder.
fn here(folder: &str) -> Value {
    json!([{"environmentId": "local", "cwd": folder}])
}

/// Takes turns, each with its members, and asserts after each whether codex and whether the relay have
/// the model go by the file.
async fn assert_shown(
    stage: &Stage,
    client: &mut Client,
    thread: &str,
    steps: &[(&str, Value, (bool, bool))],
) {
    for (prompt, more, is_shown) in steps {
        let done = client.turn_with(thread, prompt, more.clone()).await;
        assert_eq!(done["status"], "completed", "{prompt}: {done}");
        let request = stage.asked(thread, prompt);
        assert_eq!(shown(&request), *is_shown, "{prompt}");
    }
}

const CODEXS: (bool, bool) = (true, false);
const OURS: (bool, bool) = (false, true);

async fn copy_goes_with_the_folder_of_an_environment(case: Case) {
    let stage = Stage::set(case).await;
    stage.write("AGENTS.md", &format!("{AGENTS}\n"));
    let inside = stage.workspace.display().to_string();
    let outside = stage.home.display().to_string();
    let mut client = stage.relay().start().await;
    let start = json!({"cwd": inside});
    let thread = client.thread("thread/start", start).await;
    let steps = [
        ("one", json!({}), CODEXS),
        ("out", json!({"environments": here(&outside)}), OURS),
        ("still out", json!({}), OURS),
        ("in", json!({"environments": here(&inside)}), CODEXS),
        ("still in", json!({}), CODEXS),
        (
            "out beside",
            json!({"cwd": inside, "environments": here(&outside)}),
            OURS,
        ),
        ("out with a model", json!({"effort": "low"}), OURS),
        ("back", json!({"cwd": inside}), CODEXS),
        ("nowhere", json!({"environments": []}), OURS),
        ("still nowhere", json!({"effort": "high"}), OURS),
        ("here again", json!({"cwd": inside}), CODEXS),
        (
            "in beside",
            json!({"cwd": outside, "environments": here(&inside)}),
            CODEXS,
        ),
        ("in with a model", json!({"effort": "low"}), CODEXS),
        (
            "nowhere beside",
            json!({"cwd": inside, "environments": []}),
            OURS,
        ),
        ("null", json!({"cwd": inside, "environments": null}), CODEXS),
        ("away", json!({"cwd": outside}), OURS),
    ];
    assert_shown(&stage, &mut client, &thread, &steps).await;
    assert!(client.close().await.success());
}
matrix!(copy_goes_with_the_folder_of_an_environment: http);

async fn folder_of_an_environment_counts_from_the_start(case: Case) {
    let stage = Stage::set(case).await;
    stage.write("AGENTS.md", &format!("{AGENTS}\n"));
    let inside = stage.workspace.display().to_string();
    let outside = stage.home.display().to_string();
    let mut client = stage.relay().start().await;
    for (cwd, place, is_shown) in [(&outside, &inside, CODEXS), (&inside, &outside, OURS)] {
        let start = json!({"cwd": cwd, "environments": here(place)});
        let thread = client.thread("thread/start", start).await;
        let steps = [("one", json!({}), is_shown), ("two", json!({}), is_shown)];
        assert_shown(&stage, &mut client, &thread, &steps).await;
        for prompt in ["one", "two"] {
            let request = stage.asked(&thread, prompt);
            assert_eq!(copies(&request, AGENTS), 1, "{prompt}");
            assert_eq!(replaced(&request), [""; 0], "{prompt}");
        }
        // A fork begins in the folder of its thread, whatever the environments.
        let fork = json!({"threadId": thread, "environments": here(place)});
        let fork = client.thread("thread/fork", fork).await;
        let (codexs, ours) = is_shown;
        let steps = [("fork", json!({}), (!codexs, !ours))];
        assert_shown(&stage, &mut client, &fork, &steps).await;
    }
    assert!(client.close().await.success());
}
matrix!(folder_of_an_environment_counts_from_the_start: http);

async fn copy_goes_with_the_environments_of_a_change_of_settings(case: Case) {
    // Older ones pass over the environments of a change.
    let is_taken = case.version != Version::V155;
    let stage = Stage::set(case).await;
    stage.write("AGENTS.md", &format!("{AGENTS}\n"));
    let inside = stage.workspace.display().to_string();
    let outside = stage.home.display().to_string();
    let (mut client, thread) = in_workspace(stage.relay(), &stage, json!({})).await;
    let taken = |is_shown| if is_taken { is_shown } else { CODEXS };
    turn(&mut client, &thread, "one").await;
    for (prompt, change, is_shown) in [
        ("out", json!({"environments": here(&outside)}), taken(OURS)),
        ("in", json!({"environments": here(&inside)}), CODEXS),
        ("nowhere", json!({"environments": []}), taken(OURS)),
        ("back", json!({"cwd": inside}), CODEXS),
        (
            "beside",
            json!({"cwd": inside, "environments": here(&outside)}),
            taken(OURS),
        ),
        ("refused", json!({"cwd": inside, "model": 7}), taken(OURS)),
    ] {
        let mut update = json!({"threadId": thread});
        let members = update.as_object_mut().unwrap();
        members.extend(change.as_object().unwrap().clone());
        let answer = client.call("thread/settings/update", update).await;
        assert_eq!(answer.is_ok(), prompt != "refused", "{answer:?}");
        // What a client resumes meanwhile changes nothing, and lists what was read before.
        let resume = json!({"threadId": thread, "excludeTurns": true});
        client.ok("thread/resume", resume).await;
        let steps = [(prompt, json!({}), is_shown)];
        assert_shown(&stage, &mut client, &thread, &steps).await;
    }
    assert!(client.close().await.success());
}
matrix!(copy_goes_with_the_environments_of_a_change_of_settings: http);

async fn turn_that_codex_refuses_moves_nothing(case: Case) {
    let stage = Stage::set(case).await;
    stage.write("AGENTS.md", &format!("{AGENTS}\n"));
    let inside = stage.workspace.display().to_string();
    let (mut client, thread) = in_workspace(stage.relay(), &stage, json!({})).await;
    turn(&mut client, &thread, "one").await;
    for entry in [
        json!({"environmentId": "local", "cwd": "below"}),
        json!({"environmentId": "local"}),
        json!({"environmentId": "unheard of", "cwd": inside}),
    ] {
        let input = json!([{"type": "text", "text": "refused"}]);
        let refused = json!({"threadId": thread, "input": input, "environments": [&entry]});
        client.call("turn/start", refused).await.unwrap_err();
        let prompt = format!("next to {entry}");
        let steps = [(&*prompt, json!({}), CODEXS)];
        assert_shown(&stage, &mut client, &thread, &steps).await;
    }
    assert!(client.close().await.success());
}
matrix!(turn_that_codex_refuses_moves_nothing: http);

async fn renewal_leaves_a_thread_in_its_environment(case: Case) {
    let stage = Stage::set(case).await;
    stage.write("AGENTS.md", &format!("{AGENTS}\n"));
    let inside = stage.workspace.display().to_string();
    let outside = stage.home.display().to_string();
    let mut client = stage.with_policy(OLD).start().await;
    for (cwd, place, is_shown) in [(&outside, &inside, CODEXS), (&inside, &outside, OURS)] {
        stage.policy(OLD);
        let start = json!({"cwd": cwd, "environments": here(place)});
        let thread = client.thread("thread/start", start).await;
        turn(&mut client, &thread, "one").await;
        stage.policy("Another-policy-7c2e");
        let steps = [("two", json!({}), is_shown), ("three", json!({}), is_shown)];
        assert_shown(&stage, &mut client, &thread, &steps).await;
        let resume = json!({"threadId": thread, "excludeTurns": true});
        let answer = client.ok("thread/resume", resume).await;
        assert_eq!(answer["cwd"].as_str(), Some(cwd.as_str()));
        let entry = &answer["thread"]["environments"][0];
        assert_eq!(entry["cwd"].as_str(), Some(place.as_str()));
    }
    assert!(client.close().await.success());
}
matrix!(renewal_leaves_a_thread_in_its_environment: http);

async fn folder_without_this_machine_gets_a_copy(case: Case) {
    let stage = Stage::set(case).await;
    stage.write("AGENTS.md", &format!("{AGENTS}\n"));
    // What is usual is a setting of the user's.
    let usual = stage.codex_home.join("environments.toml");
    fs::write(usual, "default = \"none\"\n").unwrap();
    let inside = stage.workspace.display().to_string();
    let (mut client, thread) = in_workspace(stage.relay(), &stage, json!({})).await;
    let steps = [
        ("one", json!({}), OURS),
        ("inside", json!({"cwd": inside}), OURS),
        ("here", json!({"environments": here(&inside)}), CODEXS),
        ("inside again", json!({"cwd": inside}), OURS),
    ];
    assert_shown(&stage, &mut client, &thread, &steps).await;
    let second = json!({"cwd": inside});
    let second = client.thread("thread/start", second).await;
    turn(&mut client, &second, "one").await;
    assert!(client.close().await.success());
    let one = stage.asked(&second, "one");
    assert_eq!((shown(&one), replaced(&one).len()), (OURS, 0));
}
matrix!(folder_without_this_machine_gets_a_copy: http);

async fn environment_of_this_machine_counts_wherever_it_stands(case: Case) {
    let stage = Stage::set(case).await;
    stage.write("AGENTS.md", &format!("{AGENTS}\n"));
    let program = stage.codex.native.display();
    let far = format!(
        "[[environments]]\nid = \"far\"\nprogram = \"{program}\"\n\
         args = [\"exec-server\", \"--listen\", \"stdio\"]\n"
    );
    fs::write(stage.codex_home.join("environments.toml"), far).unwrap();
    let inside = stage.workspace.display().to_string();
    let outside = stage.home.display().to_string();
    let far = json!({"environmentId": "far", "cwd": outside});
    let near = |folder: &str| here(folder)[0].clone();
    let start = json!({"environments": [far, near(&inside)], "cwd": outside});
    let mut client = stage.relay().start().await;
    let thread = client.thread("thread/start", start).await;
    let steps = [
        ("behind", json!({}), CODEXS),
        ("far", json!({"environments": [far], "cwd": inside}), OURS),
        (
            "before",
            json!({"environments": [near(&inside), far]}),
            CODEXS,
        ),
        (
            "out",
            json!({"environments": [far, near(&outside)], "cwd": inside}),
            OURS,
        ),
        ("in", json!({"environments": [far, near(&inside)]}), CODEXS),
        ("still in", json!({"effort": "low"}), CODEXS),
        ("away", json!({"cwd": outside}), OURS),
    ];
    assert_shown(&stage, &mut client, &thread, &steps).await;
    assert!(client.close().await.success());
}
matrix!(environment_of_this_machine_counts_wherever_it_stands: http);

async fn ephemeral_thread_is_told_where_it_goes(case: Case) {
    let stage = Stage::set(case).await;
    stage.write("AGENTS.md", &format!("{AGENTS}\n"));
    let inside = stage.workspace.display().to_string();
    let outside = stage.home.display().to_string();
    let start = json!({"ephemeral": true, "environments": here(&outside)});
    let (mut client, thread) = in_workspace(stage.relay(), &stage, start).await;
    let steps = [
        ("out", json!({}), OURS),
        ("in", json!({"environments": here(&inside)}), CODEXS),
        ("still in", json!({}), CODEXS),
        ("nowhere", json!({"environments": []}), OURS),
        ("back", json!({"cwd": inside}), CODEXS),
    ];
    assert_shown(&stage, &mut client, &thread, &steps).await;
    assert!(client.close().await.success());
}
matrix!(ephemeral_thread_is_told_where_it_goes: http);

async fn turn_that_joins_a_running_one_moves_the_next(case: Case) {
    let model = Model::default();
    let stage = Stage::with(case, model.clone()).await;
    stage.write("AGENTS.md", &format!("{AGENTS}\n"));
    let (mut client, thread) = in_workspace(stage.relay(), &stage, json!({})).await;
    let from = client.inbox.len();
    client.start_turn(&thread, "[hold]").await;
    eventually("the model is asked", || {
        let requests = stage.endpoint.model_requests();
        requests.iter().any(|it| it.turn().is_some()).then_some(())
    })
    .await;
    let input = json!([{"type": "text", "text": "joins"}]);
    let joins = json!({"threadId": thread, "input": input, "environments": []});
    client.ok("turn/start", joins).await;
    model.held_may_end.give();
    let end = client.turn_end(from, &thread).await;
    assert_eq!(end["status"], "completed", "{end}");
    let steps = [("next", json!({}), OURS), ("still", json!({}), OURS)];
    assert_shown(&stage, &mut client, &thread, &steps).await;
    assert!(client.close().await.success());
}
matrix!(turn_that_joins_a_running_one_moves_the_next: http);
