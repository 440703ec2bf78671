//! The WebSocket side of the model endpoint.

use std::collections::VecDeque;
use std::future::pending;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use super::reply::Step;
use super::server::{Desk, MAX_BODY_BYTES};
use crate::commands::witness::{Head, Kind};

/// Serves one WebSocket until it ends; returns the client's close frame, if there was one.
pub(super) async fn serve(
    desk: &Desk,
    connection: usize,
    head: Head,
    stream: TokioIo<Upgraded>,
) -> Option<(u16, String)> {
    let limits = WebSocketConfig::default()
        .max_message_size(Some(MAX_BODY_BYTES))
        .max_frame_size(Some(MAX_BODY_BYTES));
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(limits)).await;
    let mut waiting = VecDeque::new();
    let mut close = None;
    loop {
        tokio::select! {
            biased;
            message = socket.next() => {
                let payload = match message {
                    Some(Ok(Message::Text(text))) => Bytes::from(text),
                    Some(Ok(Message::Binary(bytes))) => bytes,
                    Some(Ok(Message::Close(frame))) => {
                        close = frame.map(|frame| (frame.code.into(), frame.reason.to_string()));
                        continue;
                    }
                    Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
                    Some(Err(_)) | None => return close,
                };
                let seen = desk.scribe.write(connection, Kind::Message, head.clone(), payload);
                let Some(seen) = seen else { return close };
                let reply = desk.script.reply(&seen);
                if reply.supersedes {
                    waiting.clear();
                }
                waiting.extend(reply.steps);
            }
            step = next_step(&mut waiting) => {
                let Some(message) = message_of(step) else { return close };
                if socket.send(message).await.is_err() {
                    return close;
                }
            }
        }
    }
}

/// Takes the next step that can be done; may be dropped and asked again without loss.
async fn next_step(waiting: &mut VecDeque<Step>) -> Step {
    loop {
        let signal = match waiting.front() {
            None => return pending().await,
            Some(Step::Await(signal)) => signal,
            Some(_) => match waiting.pop_front() {
                Some(step) => return step,
                None => continue,
            },
        };
        signal.given().await;
        waiting.pop_front();
    }
}

/// The message that a step sends; none where the connection is to be dropped.
fn message_of(step: Step) -> Option<Message> {
    match step {
        Step::Await(_) | Step::Drop => None,
        Step::Close { code, reason } => Some(Message::Close(Some(CloseFrame {
            code: CloseCode::from(code),
            reason: reason.into(),
        }))),
        Step::Event(event) => Some(Message::text(event.to_string())),
        Step::Raw(bytes) => Some(match Utf8Bytes::try_from(bytes.clone()) {
            Ok(text) => Message::Text(text),
            Err(_) => Message::Binary(bytes),
        }),
    }
}
