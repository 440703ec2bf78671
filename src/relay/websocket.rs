//! One WebSocket: frames both ways until one leg ends.

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::split;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::base::limits::{CLOSE_GRACE, MAX_QUEUED_REFUSALS};
use crate::relay::down::Down;
use crate::relay::listener::Relay;
use crate::relay::up::{End, Up};

/// What the relay itself says to codex, between the messages of the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// The end of the connection: codex then goes over HTTP (close code 1009).
    Close(&'static str),
    /// One text message.
    Text(String),
}

/// Passes frames both ways until one leg ends.
pub async fn pass(relay: &Relay, codex: Upgraded, upstream: Upgraded) {
    let (from_codex, to_codex) = split(TokioIo::new(codex));
    let (from_upstream, to_upstream) = split(TokioIo::new(upstream));
    let (say, words) = mpsc::channel(MAX_QUEUED_REFUSALS);
    let up = Up::new(relay, from_codex, to_upstream, say).run();
    let down = Down::new(from_upstream, to_codex, words).run();
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
