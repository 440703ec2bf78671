//! The client as the one who gives the context: `relay/…`, and the `relay` member of its requests.

use codex_relay::commands::witness::Recorded;
use codex_relay::control::answers::{Info, RouteStatus, Status, Warning};
use serde_json::{Value, json};

use super::context::{instructions_of, turn};
use crate::support::blocks;
use crate::support::case::Case;
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::persona;
use crate::support::stage::{Stage, holds};
use crate::support::story;

/// Registers a text.
async fn set(client: &mut Client, thread: &str, scope: &str, text: &str) -> Value {
    let params = json!({"threadId": thread, "scope": scope, "text": text});
    client.ok("relay/context/set", params).await
}

async fn client_gives_the_context_of_threads_and_turns(case: Case) {
    let stage = Stage::set(case).await;
    persona::write(&stage);
    let mut client = stage
        .relay()
        .spied()
        .option("--context", "client")
        .start()
        .await;
    let info = client.ok("relay/info", json!({})).await;
    assert_eq!(info["context"], "client");
    let start = json!({"relay": {"context": {"sections": [
        {"name": "memory", "text": "M"},
        {"name": "persona", "text": "of the thread"},
    ]}}});
    let thread = client.thread("thread/start", start).await;
    turn(&mut client, &thread, "one", Value::Null).await;
    let told = set(&mut client, &thread, "turn", "of one turn").await;
    assert_eq!(told["bytes"], 11);
    turn(&mut client, &thread, "two", Value::Null).await;
    let member = json!({
        "context": {"text": "of the member"},
        "references": [{"name": "notes", "text": "Noted-4c1d"}],
    });
    turn(&mut client, &thread, "three", member).await;
    turn(&mut client, &thread, "four", Value::Null).await;
    set(&mut client, &thread, "thread", "replaced").await;
    turn(&mut client, &thread, "five", Value::Null).await;
    let clear = json!({"threadId": thread});
    client.ok("relay/context/clear", clear).await;
    turn(&mut client, &thread, "six", Value::Null).await;
    let default = json!({"scope": "thread", "text": "of the others"});
    client.ok("relay/context/set", default).await;
    turn(&mut client, &thread, "seven", Value::Null).await;
    let unknown = client.call("relay/contexts", json!({})).await.unwrap_err();
    assert_eq!(unknown["code"], -32601, "{unknown}");
    assert!(client.close().await.success());
    assert_each_turn_got_its_own(&stage, &thread);
}
matrix!(client_gives_the_context_of_threads_and_turns: transports);

async fn turn_behind_an_unanswered_resume_gets_its_text(case: Case) {
    let stage = Stage::set(case).await;
    let launch = || stage.relay().option("--context", "client");
    let (mut client, thread) = launch().with_thread().await;
    client.turn(&thread, "first").await;
    assert!(client.close().await.success());
    let client = launch().start().await;
    let from = client.inbox.len();
    let set = json!({"threadId": thread, "scope": "turn", "text": "of one turn"});
    let input = json!([{"type": "text", "text": "second"}]);
    for (id, method, params) in [
        ("a", "thread/resume", json!({"threadId": thread})),
        ("b", "relay/context/set", set),
        (
            "c",
            "turn/start",
            json!({"threadId": thread, "input": input}),
        ),
    ] {
        let line = json!({"id": id, "method": method, "params": params});
        client.send(&line).await;
    }
    let end = client.turn_end(from, &thread).await;
    assert_eq!(end["status"], "completed", "{end}");
    assert!(client.close().await.success());
    let text = instructions_of(&stage, &thread, "second");
    assert!(text.ends_with("of one turn"), "{text}");
}
matrix!(turn_behind_an_unanswered_resume_gets_its_text: transports);

/// A `turn/start` with a text of its own.
fn start(thread: &str, id: &str, prompt: &str, text: &str) -> Value {
    let input = json!([{"type": "text", "text": prompt}]);
    let relay = json!({"context": {"text": text}});
    let params = json!({"threadId": thread, "input": input, "relay": relay});
    json!({"id": id, "method": "turn/start", "params": params})
}

async fn turn_behind_one_that_is_over_or_refused_gets_its_own_text(case: Case) {
    let stage = Stage::set(case).await;
    let launch = stage.relay().option("--context", "client");
    let (mut client, thread) = launch.with_thread().await;
    // Nobody waits for an answer: whether the second one steers is codex's to say.
    let from = client.inbox.len();
    let mut bad = start(&thread, "bad", "", "of the refused");
    bad["params"]["input"] = json!("no list");
    client.send(&bad).await;
    client
        .send(&start(&thread, "good", "good", "of the good"))
        .await;
    let end = client.turn_end(from, &thread).await;
    assert_eq!(end["status"], "completed", "{end}");
    let held = json!({"context": {"text": "of the old"}});
    let held =
        json!({"threadId": thread, "relay": held, "input": [{"type": "text", "text": "[hold]"}]});
    let turn = client.ok("turn/start", held).await["turn"].clone();
    let is_held = |it: &std::sync::Arc<Recorded>| it.turn() == turn["id"].as_str();
    eventually("the model is asked", || {
        let requests = stage.endpoint.model_requests();
        requests.iter().any(is_held).then_some(())
    })
    .await;
    let from = client.inbox.len();
    let interrupt = json!({"threadId": thread, "turnId": turn["id"]});
    client
        .send(&json!({"id": "i", "method": "turn/interrupt", "params": interrupt}))
        .await;
    client
        .send(&start(&thread, "new", "new", "of the new"))
        .await;
    let is_done = |params: &Value| params["turn"]["status"] == "completed";
    client.notification(from, "turn/completed", is_done).await;
    assert!(client.close().await.success());
    for (prompt, text) in [("good", "of the good"), ("new", "of the new")] {
        let told = instructions_of(&stage, &thread, prompt);
        assert!(told.ends_with(text), "{prompt}: {told}");
    }
}
matrix!(turn_behind_one_that_is_over_or_refused_gets_its_own_text: transports);

fn assert_each_turn_got_its_own(stage: &Stage, thread: &str) {
    for (prompt, text) in [
        ("one", "of the thread\n\nM"),
        ("two", "of one turn"),
        ("three", "of the member"),
        ("four", "of the thread\n\nM"),
        ("five", "replaced"),
        ("six", ""),
        ("seven", "of the others"),
    ] {
        let own = own_instructions(stage, thread);
        let told = instructions_of(stage, thread, prompt);
        assert_eq!(
            told.strip_prefix(&*own).unwrap_or(&told).trim_start(),
            text,
            "{prompt}"
        );
    }
    let block = &blocks::before(stage, thread, "three")[0];
    assert!(
        block.contains("<workspace_file path=\"notes\">\nNoted-4c1d\n"),
        "{block}"
    );
    assert!(blocks::before(stage, thread, "four").is_empty());
    let read = stage.copy_of_stdin();
    for word in [
        "relay/",
        "\"relay\"",
        "of the thread",
        "of one turn",
        "of the member",
    ] {
        assert!(!holds(&read, word), "codex has read {word}");
    }
}

/// The instructions that codex itself sends on a thread: those of a request without a context.
fn own_instructions(stage: &Stage, thread: &str) -> String {
    let requests = stage.endpoint.model_requests();
    let of_thread = requests.iter().filter(|it| it.thread() == Some(thread));
    let mut all = of_thread.map(|it| it.instructions().unwrap_or_default().to_owned());
    let shortest = all.by_ref().min_by_key(String::len);
    shortest.unwrap_or_default()
}

async fn children_get_nothing_of_what_the_client_gives(case: Case) {
    let stage = Stage::set(case).await;
    let (mut client, thread) = stage
        .relay()
        .tapped()
        .option("--context", "client")
        .with_thread()
        .await;
    set(&mut client, &thread, "thread", persona::MARKER).await;
    story::spawn_child(&mut client, &thread).await;
    story::review(&mut client, &thread).await;
    story::compact(&mut client, &thread).await;
    assert!(client.close().await.success());
    let traffic = stage.traffic().await;
    let mut kinds = [0, 0];
    for pair in &traffic.pairs {
        let is_parent = pair.sent.thread() == Some(&thread)
            && !pair.sent.is_child()
            && pair.sent.purpose().is_some_and(|it| it == "turn");
        kinds[usize::from(is_parent)] += 1;
        if is_parent {
            persona::assert_injected(pair);
        } else if pair.sent.thread() != Some(&thread) {
            persona::assert_untouched(pair);
        }
    }
    assert!(kinds[0] >= 3 && kinds[1] >= 2, "{kinds:?}");
    let of = |request: &&std::sync::Arc<Recorded>| persona::copies(request, persona::MARKER) > 0;
    let requests = stage.endpoint.model_requests();
    assert!(requests.iter().filter(of).all(|it| !it.is_child()));
}
matrix!(children_get_nothing_of_what_the_client_gives: transports);

async fn status_tells_what_the_model_was_given(case: Case) {
    let stage = Stage::set(case).await;
    let gateway = || stage.relay().option("--context", "client");
    let mut client = gateway().warned().start().await;
    let info: Info = read(client.ok("relay/info", json!({})).await);
    assert_eq!(info.codex_version.as_deref(), Some(case.version.number()));
    assert_eq!(info.route.status, RouteStatus::Pending);
    let thread = client.thread("thread/start", json!({})).await;
    let member = json!({
        "context": {"sections": [{"name": "persona", "text": persona::MARKER}]},
        "references": [{"name": "notes", "text": "n"}],
    });
    turn(&mut client, &thread, "[commands 1]", member.clone()).await;
    let from = client.inbox.len();
    let spawn = json!({"relay": member});
    client.turn_with(&thread, "[spawn]", spawn).await;
    let is_child = |params: &Value| params["threadId"] != thread.as_str();
    client.notification(from, "turn/completed", is_child).await;
    let status: Status = read(client.ok("relay/status", json!({"threadId": thread})).await);
    let [told] = &status.threads[..] else {
        panic!("{status:?}");
    };
    assert_eq!(told.route.status, RouteStatus::Active);
    assert!(
        told.route
            .upstream_host
            .as_deref()
            .unwrap()
            .starts_with("127.0.0.1:")
    );
    assert_eq!(
        (&*told.context.from, told.context.bytes),
        ("turn", persona::MARKER.len())
    );
    assert_eq!(told.context.sources[0].name, "persona");
    assert_eq!(told.references[0].state, "delivered");
    // Two turns of two steps each.
    assert_eq!(told.requests.injected.turn, 4, "{told:?}");
    assert_eq!(told.last_injection.as_ref().unwrap().requests, 2);
    let requests = stage.endpoint.model_requests();
    let of_child = requests.iter().filter(|it| it.is_child()).count();
    assert_eq!(told.requests.untouched.child, of_child as u64, "{told:?}");
    let turn = told.turn.as_ref().unwrap();
    // Connections that are warmed up name no turn.
    assert_eq!(turn.requests.untouched.child, 1, "{told:?}");
    assert_eq!((told.requests.refused, told.bypasses), (0, 0));
    let info: Info = read(client.ok("relay/info", json!({})).await);
    assert_eq!(info.route.status, RouteStatus::Active);
    assert!(client.close().await.success());
}
matrix!(status_tells_what_the_model_was_given: transports);

async fn accounts_are_kept_by_turn_and_by_the_thread_that_the_client_drives(case: Case) {
    let stage = Stage::set(case).await;
    let gateway = stage.relay().option("--context", "client");
    let mut client = gateway.start().await;
    let start = json!({
        "config": {"agents": {"max_depth": 3}},
        "relay": {"context": {"text": persona::MARKER}},
    });
    let thread = client.thread("thread/start", start).await;
    let from = client.inbox.len();
    client.turn(&thread, "[family]").await;
    let is_grandchild = |it: &std::sync::Arc<Recorded>| {
        it.parent().is_some_and(|it| it != thread) && it.turn().is_some_and(|it| !it.is_empty())
    };
    eventually("the child's child asks", || {
        let requests = stage.endpoint.model_requests();
        requests.iter().any(is_grandchild).then_some(())
    })
    .await;
    // The ends of all three: nothing more is asked.
    let ends = async |count| {
        eventually("the family rests", || {
            let heard = client.inbox.since(from);
            let is_end = |it: &&crate::support::inbox::Line| it.method() == Some("turn/completed");
            (heard.iter().filter(is_end).count() >= count).then_some(())
        })
        .await;
    };
    ends(3).await;
    let requests = stage.endpoint.model_requests();
    let of_others = requests.iter().filter(|it| it.is_child());
    let (named, all) = of_others.fold((0, 0), |(named, all), it| {
        let is_named = it
            .metadata()
            .is_some_and(|it| it.get("root_turn_id").is_some());
        (named + u64::from(is_named), all + 1)
    });
    let status: Status = read(client.ok("relay/status", json!({})).await);
    let [told] = &status.threads[..] else {
        panic!("{status:?}");
    };
    assert!(named >= 3, "{named}");
    assert_eq!(told.requests.untouched.child, all, "{told:?}");
    assert_eq!(status.totals.untouched.child, all, "{status:?}");
    let turn = told.turn.clone().unwrap();
    assert_eq!(turn.requests.untouched.child, named, "{told:?}");
    assert_eq!(told.codex_turn, None);
    // What codex starts itself has an account of its own.
    let goal = story::pursue_goal(&mut client, &thread).await;
    assert_eq!(goal["status"], "completed", "{goal}");
    let status: Status = read(client.ok("relay/status", json!({})).await);
    let told = &status.threads[0];
    assert_eq!(told.turn.as_ref(), Some(&turn), "as it was");
    let own = told.codex_turn.as_ref().unwrap();
    assert_eq!(own.turn_id, goal["id"].as_str().unwrap());
    assert_eq!(
        (own.context, own.is_running),
        (persona::MARKER.len(), false)
    );
    assert!(own.requests.injected.turn >= 2, "{own:?}");
    assert!(client.close().await.success());
}
matrix!(accounts_are_kept_by_turn_and_by_the_thread_that_the_client_drives: transports);

async fn turn_of_codex_itself_is_refused_after_a_text_for_one_turn(case: Case) {
    let stage = Stage::set(case).await;
    let gateway = || stage.relay().option("--context", "client");
    let (mut client, thread) = gateway().warned().with_thread().await;
    set(&mut client, &thread, "turn", persona::MARKER).await;
    turn(&mut client, &thread, "one", Value::Null).await;
    let from = client.inbox.len();
    let goal = story::pursue_goal(&mut client, &thread).await;
    assert_eq!(goal["status"], "failed", "{goal}");
    assert!(
        goal.to_string().contains("registered for one turn only"),
        "{goal}"
    );
    let is_stale = |params: &Value| params["reason"] == "generation_stale";
    let warning = client.notification(from, "relay/warning", is_stale).await;
    let warning: Warning = read(warning);
    assert_eq!(warning.thread_id.as_deref(), Some(&*thread));
    let status: Status = read(client.ok("relay/status", json!({})).await);
    let refusal = status.threads[0].last_refusal.as_ref().unwrap();
    let turns = [&status.threads[0].turn, &status.threads[0].codex_turn];
    let refused = turns.map(|it| it.as_ref().unwrap().requests.refused);
    assert_eq!(refused, [0, 1], "{status:?}");
    assert_eq!(
        (&refusal.reason, &refusal.message),
        (&warning.reason, &warning.message)
    );
    assert!(client.close().await.success());
    // For the thread it may have it, and a client that didn't ask isn't told of anything.
    let (mut client, thread) = gateway().with_thread().await;
    set(&mut client, &thread, "thread", persona::MARKER).await;
    let goal = story::pursue_goal(&mut client, &thread).await;
    assert_eq!(goal["status"], "completed", "{goal}");
    let heard = client.inbox.since(0);
    assert!(
        heard
            .iter()
            .all(|line| line.method() != Some("relay/warning"))
    );
    assert!(client.close().await.success());
}
matrix!(turn_of_codex_itself_is_refused_after_a_text_for_one_turn: transports);

/// Reads an answer back into its type: nothing is missing, nothing is unknown.
fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    let shown = value.to_string();
    serde_json::from_value(value).unwrap_or_else(|error| panic!("{error}: {shown}"))
}

async fn threads_that_come_back_get_what_is_given_for_them(case: Case) {
    let stage = Stage::set(case).await;
    let gateway = || stage.relay().option("--context", "client");
    let mark = |name: &str| format!("{}-{name}.", persona::MARKER);
    let (mut client, thread) = gateway().with_thread().await;
    set(&mut client, &thread, "thread", &mark("first")).await;
    turn(&mut client, &thread, "one", Value::Null).await;
    assert!(client.close().await.success());
    let mut client = gateway().start().await;
    set(&mut client, &thread, "thread", &mark("second")).await;
    client
        .thread("thread/resume", json!({"threadId": thread}))
        .await;
    turn(&mut client, &thread, "two", Value::Null).await;
    let relay = json!({"context": {"text": mark("fork")}});
    let fork = json!({"threadId": thread, "excludeTurns": true, "relay": relay});
    let fork = client.thread("thread/fork", fork).await;
    turn(&mut client, &fork, "three", Value::Null).await;
    turn(&mut client, &thread, "four", Value::Null).await;
    let relay = json!({"context": {"text": mark("third")}});
    let resume = json!({"threadId": thread, "relay": relay});
    client.thread("thread/resume", resume).await;
    turn(&mut client, &thread, "five", Value::Null).await;
    let plain = json!({"threadId": thread, "excludeTurns": true});
    let plain = client.thread("thread/fork", plain).await;
    turn(&mut client, &plain, "six", Value::Null).await;
    assert!(client.close().await.success());
    for (thread, prompt, name) in [
        (&thread, "one", "first"),
        (&thread, "two", "second"),
        (&fork, "three", "fork"),
        (&thread, "four", "second"),
        (&thread, "five", "third"),
    ] {
        let told = instructions_of(&stage, thread, prompt);
        assert!(told.ends_with(&mark(name)), "{prompt}: {told}");
        assert_eq!(told.matches(persona::MARKER).count(), 1, "{prompt}");
    }
    let told = instructions_of(&stage, &plain, "six");
    assert!(!told.contains(persona::MARKER), "a fork starts anew");
    for request in stage.endpoint.model_requests() {
        assert!(
            persona::copies(&request, persona::MARKER) <= 1,
            "{request:?}"
        );
    }
    let files = stage.files_of_codex().into_iter();
    let holders: Vec<_> = files.filter(|it| holds(it, persona::MARKER)).collect();
    assert!(holders.is_empty(), "{holders:?}");
}
matrix!(threads_that_come_back_get_what_is_given_for_them: transports);
