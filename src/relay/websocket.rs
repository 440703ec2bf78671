//! One WebSocket: the upstream is dialled first, then codex is answered, then frames pass.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_EXTENSIONS, UPGRADE};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::split;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::base::limits::{CLOSE_GRACE, MAX_QUEUED_REFUSALS};
use crate::relay::down::Down;
use crate::relay::http::{Onward, back, refused};
use crate::relay::listener::{Pump, Relay};
use crate::relay::up::{End, Up};
use crate::upstream::client::{OutBody, Usage, never};
use crate::wire::headers::end_to_end;

/// Answers a handshake of codex with what the upstream answers to it.
///
/// Codex's own key goes on, so the upstream's proof is valid for codex and its headers come back as
/// they are. Extensions are not offered: frames must be readable.
pub async fn upgrade(
    relay: Arc<Relay>,
    mut onward: Onward,
    hand_over: mpsc::Sender<Pump>,
) -> Response<OutBody> {
    let Some(on_codex) = onward.parts.extensions.remove::<OnUpgrade>() else {
        let mut response = Response::new(Empty::new().map_err(never).boxed_unsync());
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return response;
    };
    let mut headers = end_to_end(&onward.parts.headers);
    headers.remove(SEC_WEBSOCKET_EXTENSIONS);
    ask_for_upgrade(&mut |name, value| {
        headers.insert(name, value);
    });
    let body = Empty::<Bytes>::new().map_err(never).boxed_unsync();
    let answered = onward.send(&relay, body, Usage::Upgrade, headers).await;
    let mut response = match answered {
        Ok(response) => response,
        Err(refusal) => return refused(&refusal),
    };
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return back(response);
    }
    let on_upstream = hyper::upgrade::on(&mut response);
    let pump = Box::pin(async move {
        let (codex, upstream) = match tokio::try_join!(on_codex, on_upstream) {
            Ok(both) => both,
            Err(error) => {
                tracing::debug!(%error, "WebSocket not established");
                return;
            }
        };
        pass(&relay, codex, upstream).await;
    });
    if hand_over.try_send(pump).is_err() {
        tracing::debug!("second handshake on one connection");
    }
    let mut answer = back(response);
    ask_for_upgrade(&mut |name, value| {
        answer.headers_mut().insert(name, value);
    });
    answer
}

fn ask_for_upgrade(insert: &mut dyn FnMut(HeaderName, HeaderValue)) {
    insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    insert(UPGRADE, HeaderValue::from_static("websocket"));
}

/// Passes frames both ways until one leg ends.
async fn pass(relay: &Relay, codex: Upgraded, upstream: Upgraded) {
    let (from_codex, to_codex) = split(TokioIo::new(codex));
    let (from_upstream, to_upstream) = split(TokioIo::new(upstream));
    let (refuse, refusals) = mpsc::channel(MAX_QUEUED_REFUSALS);
    let up = Up::new(relay, from_codex, to_upstream, refuse).run();
    let down = Down::new(from_upstream, to_codex, refusals).run();
    tokio::pin!(up, down);
    let ended = tokio::select! {
        end = &mut up => Some(end),
        () = &mut down => None,
    };
    match ended {
        // The upstream hears of it by the end of its connection.
        Some(End::CodexGone) => {}
        // It takes no more, but what it said before that is still delivered.
        Some(End::UpstreamGone) => {
            let _ = timeout(CLOSE_GRACE, down).await;
        }
        // Codex answers a close, then it ends the connection.
        None => {
            let _ = timeout(CLOSE_GRACE, up).await;
        }
    }
}
