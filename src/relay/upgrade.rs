//! The handshake of a WebSocket: the upstream is dialled first, then codex is answered.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue, SEC_WEBSOCKET_EXTENSIONS, UPGRADE,
};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;
use tokio::sync::mpsc;

use crate::base::limits::{
    INSERTION_OVERHEAD_BYTES, MAX_REFUSAL_BODY_BYTES, MAX_UPSTREAM_MESSAGE_BYTES,
};
use crate::exchange::classify::Identity;
use crate::exchange::handshake::{Verdict, judge_refusal};
use crate::exchange::refusal::Refusal;
use crate::relay::body::peek;
use crate::relay::listener::Pump;
use crate::relay::onward::{Onward, Outgoing};
use crate::relay::reply::{back, passed_on, refused};
use crate::relay::shared::Relay;
use crate::relay::websocket::pass;
use crate::session::machine::SocketWish;
use crate::upstream::client::{OutBody, Usage, never};
use crate::wire::headers::{MAX_MESSAGE, UPSTREAM_STATUS};

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
        return plain(StatusCode::BAD_REQUEST, "not a handshake");
    };
    let identity = Identity::from_headers(&onward.parts.headers);
    let about = identity.about_messages();
    let wish = match identity.hinted_thread() {
        Some(thread) => relay.session.with(|session| session.socket_wish(thread)),
        None => SocketWish::Insertions { text: 0 },
    };
    let text = match wish {
        SocketWish::Http => return plain(StatusCode::UPGRADE_REQUIRED, TOO_LONG),
        SocketWish::Insertions { text } => text,
    };
    let mut headers = onward.take_headers();
    headers.remove(SEC_WEBSOCKET_EXTENSIONS);
    ask_for_upgrade(&mut headers);
    let answered = onward
        .send(&relay, Outgoing::Nothing, Usage::Upgrade, headers)
        .await;
    let mut response = match answered {
        Ok(response) => response,
        Err(refusal) => return unreachable(&refusal),
    };
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return refusal_of_upstream(response).await;
    }
    let on_upstream = hyper::upgrade::on(&mut response);
    let pump = Box::pin(async move {
        match tokio::try_join!(on_codex, on_upstream) {
            Ok((codex, upstream)) => pass(&relay, codex, upstream, &about).await,
            Err(error) => tracing::debug!(%error, "WebSocket not established"),
        }
    });
    if hand_over.try_send(pump).is_err() {
        tracing::debug!("second handshake on one connection");
    }
    let mut answer = back(response).await;
    // None was offered: one that is claimed all the same would make codex compress.
    answer.headers_mut().remove(SEC_WEBSOCKET_EXTENSIONS);
    ask_for_upgrade(answer.headers_mut());
    announce_room(answer.headers_mut(), text);
    answer
}

/// Passes a handshake for something that the relay doesn't read, and then its bytes both ways.
pub async fn tunnel(
    relay: Arc<Relay>,
    mut onward: Onward,
    hand_over: mpsc::Sender<Pump>,
) -> Response<OutBody> {
    let on_codex = onward.parts.extensions.remove::<OnUpgrade>();
    let asked = onward.parts.headers.get(UPGRADE).cloned();
    let (Some(on_codex), Some(asked)) = (on_codex, asked) else {
        return plain(StatusCode::BAD_REQUEST, "not a handshake");
    };
    let mut headers = onward.take_headers();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, asked.clone());
    let answered = onward
        .send(&relay, Outgoing::Nothing, Usage::Upgrade, headers)
        .await;
    let mut response = match answered {
        Ok(response) => response,
        Err(refusal) => return refused(&refusal),
    };
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return back(response).await;
    }
    let on_upstream = hyper::upgrade::on(&mut response);
    let pump = Box::pin(async move {
        if let Ok((codex, upstream)) = tokio::try_join!(on_codex, on_upstream) {
            let (mut codex, mut upstream) = (TokioIo::new(codex), TokioIo::new(upstream));
            let _ = copy_bidirectional(&mut codex, &mut upstream).await;
        }
    });
    let _ = hand_over.try_send(pump);
    let mut answer = back(response).await;
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, asked);
    answer
}

fn ask_for_upgrade(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
}

/// Tells codex how long its messages may be, so that none is lifted over the upstream's bound by
/// its context: a longer one then goes over HTTP.
fn announce_room(headers: &mut HeaderMap, text: usize) {
    if text == 0 {
        return;
    }
    let room = MAX_UPSTREAM_MESSAGE_BYTES.saturating_sub(text + INSERTION_OVERHEAD_BYTES);
    let theirs = headers
        .get(MAX_MESSAGE)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    let room = theirs.map_or(room, |theirs: usize| {
        room.min(theirs.saturating_sub(text + INSERTION_OVERHEAD_BYTES))
    });
    let name = HeaderName::from_static(MAX_MESSAGE);
    headers.insert(name, HeaderValue::from(room));
}

/// What codex is told when we get no answer: to use HTTP, which may work and says why it doesn't;
/// or, where trying again can't help, the reason at once.
fn unreachable(refusal: &Refusal) -> Response<OutBody> {
    if !refusal.may_pass_later() {
        return refused(refusal);
    }
    tracing::warn!(reason = %refusal.reason(), "WebSocket: {}", refusal.line());
    plain(StatusCode::UPGRADE_REQUIRED, &refusal.line())
}

/// Passes the upstream's refusal on, unless it means that there are no WebSockets there.
async fn refusal_of_upstream(response: Response<Incoming>) -> Response<OutBody> {
    let status = response.status();
    if judge_refusal(status, None) == Verdict::Pass {
        return back(response).await;
    }
    let (parts, body) = response.into_parts();
    let body = peek(body, MAX_REFUSAL_BODY_BYTES).await;
    if judge_refusal(status, Some(&body)) == Verdict::Pass {
        let mut parts = parts;
        parts.headers = passed_on(parts.headers);
        let mut answer = Response::from_parts(parts, Full::new(body).map_err(never).boxed_unsync());
        // What was read is the whole body, or all that codex would look at.
        answer.headers_mut().remove(CONTENT_LENGTH);
        return answer;
    }
    tracing::warn!(%status, "the upstream takes no WebSocket; codex is sent to HTTP");
    let words = format!("codex-relay: the upstream answered {status} to the WebSocket handshake");
    let mut answer = plain(StatusCode::UPGRADE_REQUIRED, &words);
    let name = HeaderName::from_static(UPSTREAM_STATUS);
    let value = HeaderValue::from(status.as_u16());
    answer.headers_mut().insert(name, value);
    answer
}

fn plain(status: StatusCode, words: &str) -> Response<OutBody> {
    let body = Full::new(Bytes::from(words.to_owned()));
    let mut response = Response::new(body.map_err(never).boxed_unsync());
    *response.status_mut() = status;
    response
}

/// Said where a thread needs HTTP.
const TOO_LONG: &str =
    "codex-relay: with its context the messages of this thread are too long for a WebSocket";
