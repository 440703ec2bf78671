use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::task::JoinSet;

use super::*;
use crate::context::supplier::Supplier;
use crate::session::machine::{Config, Session};
use crate::session::observe::CodexVerdict;
use crate::stdio::outbound::Own;
use crate::stdio::writer::queue;
use crate::upstream::calls::Calls;

#[tokio::test]
async fn overloaded_codex_is_asked_again() {
    let session = SharedSession::new(Session::new(Config::of_tests(Supplier::Workspace)));
    let (own_start, own_end) = Own::new();
    let (_codex, client, _lines) = queue();
    let inbound = Inbound {
        session: session.clone(),
        feed: Feed::Nobody,
        orders: OrdersFeed::default(),
        client,
        own: own_end,
        calls: Calls::default(),
        budget: Budget::new(),
        turnstile: Turnstile::default(),
        waiting: WaitingLines::default(),
    };
    let (mut from_client, stdin) = duplex(4096);
    let (to_codex, mut codex) = duplex(4096);
    let mut tasks = JoinSet::new();
    tasks.spawn(inbound.pump(stdin, to_codex));
    let line = b"{\"id\":1,\"method\":\"thread/start\",\"params\":{}}\n";
    from_client.write_all(line).await.unwrap();
    let overloaded = r#""error":{"code":-32001,"message":"Server overloaded; retry later."}"#;
    let config = r#""result":{"config":{"model_provider":"mine"}}"#;
    let mut asked = Vec::new();
    for said in [overloaded, overloaded, config] {
        let mut question = vec![0; 200];
        let read = codex.read(&mut question).await.unwrap();
        asked.push(String::from_utf8_lossy(&question[..read]).into_owned());
        let line = Bytes::from(format!("{{\"id\":\"own-0\",{said}}}\n"));
        let CodexVerdict::Own(own) = session.with(|session| session.on_codex_line(&line)) else {
            panic!("the answer is ours");
        };
        own_start.answers.send(own).await.unwrap();
    }
    assert!(asked[0].contains("config/read") && asked.iter().all(|it| *it == asked[0]));
    let mut passed = vec![0; 200];
    let read = codex.read(&mut passed).await.unwrap();
    assert_eq!(&passed[..read], line);
}
