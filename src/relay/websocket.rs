//! One WebSocket: frames both ways until one leg ends.

use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, split};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::base::ids::ThreadId;
use crate::base::limits::{CLOSE_GRACE, MAX_QUEUED_PINGS, MAX_QUEUED_REFUSALS};
use crate::exchange::refusal::Refusal;
use crate::relay::down::Down;
use crate::relay::shared::Relay;
use crate::relay::up::{End, Up};
use crate::session::parent::tally::About;
use crate::upstream::calls::Call;

/// What the relay itself says to codex, between the messages of the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// The end of the connection.
    Close {
        /// Why, as a number (RFC 6455, section 7.4.1).
        code: u16,
        /// Why, in at most 123 bytes.
        reason: String,
    },
    /// One text message.
    Text(String),
}

/// Codex's side of pings that it can't answer, because it is in the middle of a frame that it
/// sends: a pong would have to wait for its end.
#[derive(Debug)]
pub struct Stuck<'a> {
    /// Told to the other pump.
    pub is_mid_frame: &'a AtomicBool,
    /// The payloads of pings to answer in codex's place.
    pub pings: mpsc::Receiver<Bytes>,
}

/// The upstream's side of the same.
#[derive(Debug)]
pub struct Answering<'a> {
    /// Whether codex can't answer.
    pub is_mid_frame: &'a AtomicBool,
    /// Where pings go then.
    pub pings: mpsc::Sender<Bytes>,
}

/// Passes frames both ways until one leg ends, or the turn that waits for an answer is interrupted.
///
/// `about` is what its handshake says of the messages that will come.
pub async fn pass(relay: &Relay, codex: Upgraded, upstream: Upgraded, about: &About) {
    let (mut from_codex, mut to_codex) = split(TokioIo::new(codex));
    let call = relay.calls.idle();
    let ended = {
        let legs = (&mut from_codex, &mut to_codex);
        let pumps = pump(relay, legs, upstream, (&call, about));
        tokio::pin!(pumps);
        tokio::select! {
            ended = &mut pumps => ended,
            () = call.is_cut() => Ended::Interrupted,
        }
    };
    match ended {
        // The upstream's end is closed. Codex ends its own when it has read the interrupt; a word
        // before that would make it ask again.
        Ended::Interrupted => {
            let _ = timeout(CLOSE_GRACE, from_codex.read(&mut [0])).await;
        }
        // What it still sends is read: a connection that is shut with something unread in it may
        // take our last word back.
        Ended::Broken => {
            let mut unread = [0; 4096];
            let rest = async { while from_codex.read(&mut unread).await.is_ok_and(|it| it > 0) {} };
            let _ = timeout(CLOSE_GRACE, rest).await;
        }
        Ended::Leg => {}
    }
}

/// Why a WebSocket is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// Codex broke the protocol.
    Broken,
    Interrupted,
    Leg,
}

async fn pump(
    relay: &Relay,
    (from_codex, to_codex): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
    upstream: Upgraded,
    (call, about): (&Call, &About),
) -> Ended {
    let (from_upstream, to_upstream) = split(TokioIo::new(upstream));
    let (say, words) = mpsc::channel(MAX_QUEUED_REFUSALS);
    let (ping, pings) = mpsc::channel::<Bytes>(MAX_QUEUED_PINGS);
    let is_mid_frame = AtomicBool::new(false);
    let stuck = Stuck {
        is_mid_frame: &is_mid_frame,
        pings,
    };
    let answering = Answering {
        is_mid_frame: &is_mid_frame,
        pings: ping,
    };
    let last_word = say.clone();
    let up = Up::new(relay, from_codex, to_upstream, say, stuck, (call, about));
    let down = Down::new(from_upstream, to_codex, words, answering, call);
    let (up, down) = (up.run(), down.run());
    tokio::pin!(up, down);
    let ended = tokio::select! {
        end = &mut up => Some(end),
        () = &mut down => None,
    };
    match ended {
        // The upstream hears of it by the end of its connection.
        Some(End::CodexGone) => {}
        Some(End::Broken(breach)) => {
            tracing::warn!("codex broke the WebSocket protocol: {breach}");
            let close = Word::Close {
                code: breach.close_code(),
                reason: format!("codex-relay: {breach}"),
            };
            let said = async {
                if last_word.send(close).await.is_ok() {
                    down.await;
                }
            };
            let _ = timeout(CLOSE_GRACE, said).await;
            return Ended::Broken;
        }
        // It takes no more, but what it said before that is still delivered.
        Some(End::UpstreamGone) => {
            let _ = timeout(CLOSE_GRACE, down).await;
        }
        // Codex answers a close, then it ends the connection.
        None => {
            let _ = timeout(CLOSE_GRACE, up).await;
        }
    }
    Ended::Leg
}

/// "Message too big": codex then goes over HTTP.
pub(super) const TOO_BIG: u16 = 1009;

/// Ends a socket whose message only its context makes too long for one.
pub(super) async fn point_to_http(
    relay: &Relay,
    to: &mpsc::Sender<Word>,
    (size, thread): (usize, &ThreadId),
) -> Result<(), End> {
    tracing::info!(size, "message too long for a WebSocket with its context");
    relay.session.with(|session| session.note_http(thread));
    let close = Word::Close {
        code: TOO_BIG,
        reason: "codex-relay: use HTTP for messages of this size".to_owned(),
    };
    let _ = to.send(close).await;
    Err(End::UpstreamGone)
}

/// Tells codex, on the other pump, that its message goes no further.
pub(super) async fn refuse(to: &mpsc::Sender<Word>, refusal: &Refusal) -> Result<(), End> {
    tracing::warn!(reason = %refusal.reason(), "{}", refusal.line());
    let sent = to.send(Word::Text(refusal.event())).await;
    sent.map_err(|_| End::UpstreamGone)
}
