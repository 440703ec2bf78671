//! Bytes that codex may come to send one day: whatever JSON allows arrives as it was written.

use std::sync::Arc;

use bytes::Bytes;
use codex_relay::commands::witness::{Head, Kind, Pair, Recorded};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;

use crate::support::PATIENCE;
use crate::support::case::Case;
use crate::support::model::Model;
use crate::support::persona::{self, MARKER};
use crate::support::stage::{PrivateRoute, Stage};
use crate::support::story;

/// How a body of our own is sent.
#[derive(Clone, Copy, Debug)]
enum Way {
    Plain,
    Zstd,
    WebSocket,
}

/// A body in no spelling of codex's, with the metadata of a request that codex made.
fn odd_body(metadata: &str) -> String {
    let metadata = Value::from(metadata);
    format!(
        r#" {{"type" : "response.create","big":12345678901234567890,"huge":1e400,"zero":-0.0,
        "twice":1,"tw\u0069ce":[2 , {{"instructions":"inner"}}],"escapes":"\u00e9\/\ud83d\ude00\"\\",
        "instructions":"old \u00e9\t","unknown":{{"x":null,"x":true}},"input":[{{"n":0.10}}],
        "client_metadata":{{"x-codex-turn-metadata":{metadata}}} ,"last":[]	}}"#
    )
}

async fn send(route: &PrivateRoute, way: Way, body: &str) {
    let sent = async {
        let mut stream = TcpStream::connect(route.address).await.unwrap();
        if matches!(way, Way::WebSocket) {
            let url = format!("ws://{}{}/responses", route.address, route.base);
            let (mut socket, _) = client_async(url, stream).await.unwrap();
            socket.send(Message::text(body)).await.unwrap();
            socket.next().await.unwrap().unwrap();
            return;
        }
        let (body, encoding) = match way {
            Way::Zstd => (zstd::encode_all(body.as_bytes(), 3).unwrap(), "zstd"),
            Way::Plain | Way::WebSocket => (body.as_bytes().to_vec(), "identity"),
        };
        let head = format!(
            "POST {}/responses HTTP/1.1\r\nHost: {}\r\nContent-Encoding: {encoding}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            route.base,
            route.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&body).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert!(
            answer.starts_with(b"HTTP/1.1 200 "),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    };
    tokio::time::timeout(PATIENCE, sent).await.unwrap();
}

/// Sends a body and gives it together with what arrived of it.
async fn pass(stage: &Stage, way: Way, body: &str) -> Pair {
    let seen = stage.endpoint.journal().requests.len();
    send(&stage.spied(), way, body).await;
    let journal = stage.endpoint.journal();
    let ours = journal.requests[seen..]
        .iter()
        .filter(|it| it.kind != Kind::Upgrade);
    let arrived: Vec<_> = ours.collect();
    assert_eq!(arrived.len(), 1, "{arrived:?}");
    let body = Bytes::copy_from_slice(body.as_bytes());
    Pair {
        sent: Arc::new(Recorded::new(0, 0, Kind::Message, Head::default(), body)),
        arrived: Arc::clone(arrived[0]),
    }
}

async fn odd_json_changes_in_its_instructions_alone(case: Case) {
    let model = Model::default();
    let stage = Stage::with(case, model.clone()).await;
    persona::write(&stage);
    let (mut client, thread) = stage.relay().spied().with_thread().await;
    client.start_turn(&thread, "[hold]").await;
    story::seen(&stage, "turn").await;
    let running = stage.endpoint.model_requests();
    let running = running.iter().find(|it| it.turn().is_some()).unwrap();
    let metadata = running.metadata().unwrap();
    let of_child = {
        let mut metadata = metadata.clone();
        metadata["parent_thread_id"] = json!(thread);
        metadata.to_string()
    };
    let (of_parent, of_child) = (odd_body(&metadata.to_string()), odd_body(&of_child));
    for way in [Way::Plain, Way::Zstd, Way::WebSocket] {
        let pair = pass(&stage, way, &of_parent).await;
        let change = pair.change();
        let change = change.unwrap_or_else(|| panic!("{way:?}: nothing changed"));
        assert_eq!(change.removed, "", "{way:?}");
        let inserted = std::str::from_utf8(&change.inserted).unwrap();
        assert_eq!(inserted.matches(MARKER).count(), 1, "{way:?}");
        let text: String = serde_json::from_str(&format!("\"{inserted}\"")).unwrap();
        assert!(text.starts_with("\n\n"), "{way:?}: {text}");
        let place = format!(r#""instructions":"old \u00e9\t{inserted}","unknown""#);
        assert_eq!(persona::copies(&pair.arrived, &place), 1, "{way:?}");
        assert_eq!(pass(&stage, way, &of_child).await.change(), None, "{way:?}");
    }
    model.held_may_end.give();
    assert!(client.close().await.success());
}
matrix!(odd_json_changes_in_its_instructions_alone: versions);
