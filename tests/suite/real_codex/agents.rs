//! A small Gateway: it runs two agents on two threads of one codex, each with contexts of its own.

use std::collections::BTreeMap;

use codex_relay::commands::endpoint::{Reply, Script, events};
use codex_relay::commands::witness::Recorded;
use serde_json::{Value, json};

use crate::support::case::Case;
use crate::support::client::Client;
use crate::support::model::Model;
use crate::support::persona::copies;
use crate::support::stage::{Stage, holds};

/// What every text of the Gateway has in it, and nothing else.
const MARK: &str = "gateway-text-";

/// Turns of each agent.
const TURNS: usize = 100;

/// Has each parent that is asked to make a child of another name.
struct Spawning(Model);

impl Script for Spawning {
    fn reply(&self, request: &Recorded) -> Reply {
        let input = request.json().and_then(|body| body["input"].as_array());
        let last = input.and_then(|input| input.last()).map(Value::to_string);
        let is_asked = last.is_some_and(|last| last.contains("[spawn]"));
        if !is_asked || request.is_child() || request.turn().is_none() {
            return self.0.reply(request);
        }
        let number = request.number;
        let (call, name) = (format!("spawn-{number}"), format!("kid_{number}"));
        let call = events::spawn_agent(&call, &name, "say hello");
        Reply::events(events::answer(&format!("resp-{number}"), [call]))
    }
}

/// One agent: its thread, and how its texts are given.
struct Agent {
    name: &'static str,
    thread: String,
    /// The text of each turn, by the turn's id.
    texts: BTreeMap<String, String>,
}

impl Agent {
    /// Gives a text for the next turn and starts it; every fourth turn has that of the thread.
    async fn start(&mut self, client: &mut Client, number: usize) {
        let mut text = format!("{MARK}{}-{number}.", self.name);
        let mut member = Value::Null;
        let set = |scope: &str, text: &str| json!({"threadId": self.thread, "scope": scope, "text": text});
        match number % 4 {
            0 => {
                client.ok("relay/context/set", set("thread", &text)).await;
            }
            1 => {
                // Not waited for: it stands before the turn on the same stream.
                let set = json!({"id": format!("set-{number}"), "method": "relay/context/set",
                    "params": set("turn", &text)});
                client.send(&set).await;
            }
            2 => member = json!({"context": {"sections": [{"name": "persona", "text": text}]}}),
            _ => text = format!("{MARK}{}-{}.", self.name, number - 3),
        }
        let prompt = match number % 10 {
            4 => "[spawn]",
            7 => "[commands 2]",
            _ => "go on",
        };
        let input = json!([{"type": "text", "text": prompt}]);
        let params = json!({"threadId": self.thread, "input": input, "relay": member});
        let turn = client.ok("turn/start", params).await;
        let id = turn["turn"]["id"].as_str().unwrap().to_owned();
        if number.is_multiple_of(5) {
            // What is set while the turn runs, and what steers it, isn't for this turn.
            let late = format!("{MARK}{}-late.", self.name);
            client.ok("relay/context/set", set("turn", &late)).await;
            let clear = json!({"threadId": self.thread});
            if number.is_multiple_of(4) {
                client.ok("relay/context/set", set("turn", &text)).await;
            } else {
                client.ok("relay/context/clear", clear).await;
                let kept = number - number % 4;
                let kept = format!("{MARK}{}-{kept}.", self.name);
                client.ok("relay/context/set", set("thread", &kept)).await;
            }
        }
        self.texts.insert(id, text);
    }
}

async fn two_agents_keep_their_texts_apart(case: Case) {
    let stage = Stage::with(case, Spawning(Model::default())).await;
    let mut client = stage.relay().option("--context", "client").start().await;
    let mut agents = Vec::new();
    for name in ["ada", "bob"] {
        let thread = client.thread("thread/start", json!({})).await;
        let texts = BTreeMap::new();
        agents.push(Agent {
            name,
            thread,
            texts,
        });
    }
    for number in 0..TURNS {
        let from = client.inbox.len();
        for agent in &mut agents {
            agent.start(&mut client, number).await;
        }
        for agent in &agents {
            let turn = client.turn_end(from, &agent.thread).await;
            assert_eq!(turn["status"], "completed", "{turn}\n{}", client.stderr());
        }
    }
    let status = client.ok("relay/status", json!({})).await;
    assert!(client.close().await.success());
    assert_each_request_has_its_own_text(&stage, &agents);
    for thread in status["threads"].as_array().unwrap() {
        assert_eq!(thread["requests"]["refused"], 0, "{thread}");
    }
    let files = stage.files_of_codex();
    let holders: Vec<_> = files.iter().filter(|it| holds(it, MARK)).collect();
    assert!(holders.is_empty(), "{holders:?}");
}
matrix!(two_agents_keep_their_texts_apart: transports);

fn assert_each_request_has_its_own_text(stage: &Stage, agents: &[Agent]) {
    let requests = stage.endpoint.model_requests();
    let mut seen = BTreeMap::new();
    for request in &requests {
        let agent = agents
            .iter()
            .find(|it| request.thread() == Some(&it.thread));
        let turn = request.turn().filter(|_| !request.is_child());
        let text = agent.and_then(|agent| agent.texts.get(turn?));
        let Some(text) = text else {
            assert_foreign(request, agent);
            continue;
        };
        assert_eq!(copies(request, text), 1, "{request:?}");
        assert_eq!(copies(request, MARK), 1, "{request:?}");
        assert!(request.instructions().unwrap().ends_with(text.as_str()));
        *seen.entry(text.clone()).or_insert(0) += 1;
    }
    // Every fourth turn has the text of one before it.
    let texts = agents.len() * TURNS * 3 / 4;
    assert_eq!(seen.len(), texts, "{seen:?}");
    assert!(seen.values().any(|count| *count > 2), "steps of one turn");
    let children = requests.iter().filter(|it| it.is_child()).count();
    assert!(children >= agents.len() * TURNS / 10, "{children}");
}

/// A request that belongs to no turn of the Gateway's: a child's, or a prewarm.
fn assert_foreign(request: &Recorded, agent: Option<&Agent>) {
    let count = copies(request, MARK);
    match agent.filter(|_| !request.is_child()) {
        None => assert_eq!(count, 0, "{request:?}"),
        // A prewarm has what the thread has, if it has something.
        Some(agent) => {
            assert_eq!(request.purpose().as_deref(), Some("prewarm"), "{request:?}");
            let own = format!("{MARK}{}-", agent.name);
            assert!(count <= 1 && copies(request, &own) == count, "{request:?}");
        }
    }
}
