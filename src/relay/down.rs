//! From the upstream to codex: frames as they come, counted; words of our own between messages.
//!
//! A ping that comes while codex is in the middle of a frame doesn't go to it: the other pump answers.

use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use tokio::io::{self, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::base::limits::{FRAME_READ_BYTES, MAX_MESSAGE_BYTES};
use crate::relay::websocket::{Answering, TOO_BIG, Word};
use crate::upstream::calls::Call;
use crate::wire::frames::{Breach, FrameHead, OpCode, Parsed, Sender};

/// The pump towards codex.
#[derive(Debug)]
pub struct Down<'a, R, W> {
    from: R,
    to: W,
    words: mpsc::Receiver<Word>,
    /// One that waits for the end of a fragmented message.
    held: Option<String>,
    answering: Answering<'a>,
    call: &'a Call,
    buffer: BytesMut,
    track: Track,
}

/// Where in the stream of frames we stand.
#[derive(Debug, Default)]
struct Track {
    /// Payload bytes of the current frame that are still to come.
    left: u64,
    /// Bytes of the current message so far, its open fragments included.
    message: u64,
    /// Whether a fragmented message is open: nothing of ours may come between.
    is_open: bool,
    is_over: bool,
    /// How the upstream broke the protocol.
    breach: Option<Breach>,
    lead: Lead,
}

/// How messages begin: enough to see which of them end a response.
#[derive(Debug, Default)]
struct Lead {
    /// The first bytes of the current message.
    bytes: Vec<u8>,
    /// Whether the current frame belongs to it; control frames may come between.
    is_in_message: bool,
    /// A message has said that a response is over.
    is_answered: bool,
}

impl Lead {
    fn begin(&mut self, head: &FrameHead) {
        self.is_in_message = !head.opcode.is_control();
        if matches!(head.opcode, OpCode::Text | OpCode::Binary) {
            self.bytes.clear();
        }
    }

    fn push(&mut self, payload: &[u8]) {
        if self.is_in_message {
            let room = LEAD_BYTES.saturating_sub(self.bytes.len());
            self.bytes.extend(payload.iter().take(room));
        }
    }

    /// Notes the end of a frame, with `is_last` of a whole message.
    fn end(&mut self, is_last: bool) {
        if std::mem::take(&mut self.is_in_message) && is_last {
            let says = |word: &&[u8]| memchr::memmem::find(&self.bytes, word).is_some();
            self.is_answered |= ENDS.iter().any(says);
            self.bytes.clear();
        }
    }
}

impl<'a, R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Down<'a, R, W> {
    /// Passes frames of `from` on to `to`.
    pub fn new(
        from: R,
        to: W,
        words: mpsc::Receiver<Word>,
        answering: Answering<'a>,
        call: &'a Call,
    ) -> Self {
        Self {
            from,
            to,
            words,
            held: None,
            answering,
            call,
            buffer: BytesMut::new(),
            track: Track::default(),
        }
    }

    /// Runs until the upstream ends or codex takes no more.
    pub async fn run(mut self) {
        loop {
            self.buffer.reserve(FRAME_READ_BYTES);
            if self.track.at_boundary()
                && self.buffer.is_empty()
                && let Some(text) = self.held.take()
            {
                let frame = text_frame(&text);
                if self.to.write_all(&frame).await.is_err() || self.to.flush().await.is_err() {
                    return;
                }
            }
            // Between two frames, where a close may stand, also within a message.
            let may_speak = self.track.left == 0 && self.held.is_none();
            tokio::select! {
                read = self.from.read_buf(&mut self.buffer) => {
                    if !read.is_ok_and(|count| count > 0) {
                        break;
                    }
                    if self.pass_on().await.is_err() {
                        return;
                    }
                    if self.track.is_over {
                        return self.close(TOO_BIG, OVER_THE_BOUND).await;
                    }
                    if let Some(breach) = self.track.breach {
                        tracing::warn!("the upstream broke the WebSocket protocol: {breach}");
                        let reason = format!("codex-relay: the upstream sent {breach}");
                        return self.close(UNEXPECTED, &reason).await;
                    }
                }
                Some(word) = self.words.recv(), if may_speak => {
                    match word {
                        Word::Close { code, reason } => return self.close(code, &reason).await,
                        Word::Text(text) => self.held = Some(text),
                    }
                }
            }
        }
        // The upstream has ended in the middle of a head: that is what it said.
        let _ = self.to.write_all(&self.buffer).await;
        let _ = self.to.shutdown().await;
    }

    /// Passes what may pass of the buffer.
    async fn pass_on(&mut self) -> io::Result<()> {
        loop {
            let is_stuck = self.answering.is_mid_frame.load(Ordering::Relaxed);
            let pings = if is_stuck { Pings::Held } else { Pings::Passed };
            let whole = self.track.advance(&self.buffer, pings);
            if std::mem::take(&mut self.track.lead.is_answered) {
                self.call.end();
            }
            let passing = self.buffer.split_to(whole);
            self.to.write_all(&passing).await?;
            let Some((size, payload)) = held_ping(&self.buffer).filter(|_| is_stuck) else {
                return self.to.flush().await;
            };
            let ping = self.buffer.split_to(size);
            let payload = Bytes::copy_from_slice(ping.get(payload..).unwrap_or_default());
            if self.answering.pings.try_send(payload).is_err() {
                // Between two frames of the upstream, where control frames may stand.
                self.to.write_all(&ping).await?;
            }
        }
    }

    /// Ends the connection with a close of our own, behind which no data may come.
    async fn close(mut self, code: u16, reason: &str) {
        let _ = self.to.write_all(&close_frame(code, reason)).await;
        let _ = self.to.shutdown().await;
    }
}

impl Track {
    /// Whether the last byte that passed was the last of a whole message.
    fn at_boundary(&self) -> bool {
        self.left == 0 && !self.is_open
    }

    /// Follows the frames in `bytes` and says how many bytes may pass: all but a head that isn't
    /// whole, none of a message that is over the bound, and no ping that is held.
    fn advance(&mut self, bytes: &[u8], pings: Pings) -> usize {
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let here = usize::try_from(self.left).map_or(rest.len(), |left| left.min(rest.len()));
            self.lead.push(rest.get(..here).unwrap_or_default());
            at += here;
            self.left -= u64::try_from(here).unwrap_or(0);
            if self.left > 0 {
                return at;
            }
            self.lead.end(!self.is_open);
            let rest = bytes.get(at..).unwrap_or_default();
            let (head, size) = match FrameHead::parse(rest) {
                Parsed::Head { head, size } => (head, size),
                Parsed::Incomplete => return at,
                Parsed::Invalid => {
                    self.breach = Some(Breach::Length);
                    return at;
                }
            };
            self.breach = head.check(Sender::Server, self.is_open).err();
            if self.breach.is_some() {
                return at;
            }
            if !head.opcode.is_control() {
                if head.opcode != OpCode::Continuation {
                    self.message = 0;
                }
                self.message = self.message.saturating_add(head.length);
                self.is_open = !head.fin;
                if usize::try_from(self.message).map_or(true, |bytes| bytes > MAX_MESSAGE_BYTES) {
                    self.is_over = true;
                    return at;
                }
            }
            if is_answerable(&head) && pings == Pings::Held {
                return at;
            }
            at += size;
            self.left = head.length;
            self.lead.begin(&head);
        }
    }
}

/// What becomes of pings of the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pings {
    /// They stop the stream until they are taken out.
    Held,
    Passed,
}

/// The size of the ping that `bytes` begin with, and where its payload starts; `None` where it isn't
/// whole, or no ping that codex would take.
fn held_ping(bytes: &[u8]) -> Option<(usize, usize)> {
    let Parsed::Head { head, size } = FrameHead::parse(bytes) else {
        return None;
    };
    let whole = size.checked_add(usize::try_from(head.length).ok()?)?;
    (is_answerable(&head) && bytes.len() >= whole).then_some((whole, size))
}

/// Whether it is a ping as servers send it.
fn is_answerable(head: &FrameHead) -> bool {
    head.opcode == OpCode::Ping && head.check(Sender::Server, true).is_ok()
}

fn text_frame(text: &str) -> Vec<u8> {
    let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
    let mut frame = Vec::with_capacity(text.len() + 14);
    FrameHead::last(OpCode::Text, length).encode(&mut frame);
    frame.extend_from_slice(text.as_bytes());
    frame
}

/// A close frame of our own (RFC 6455, section 5.5.1).
fn close_frame(code: u16, reason: &str) -> Vec<u8> {
    let length = u64::try_from(reason.len() + 2).unwrap_or(2);
    let mut frame = Vec::new();
    FrameHead::last(OpCode::Close, length).encode(&mut frame);
    frame.extend_from_slice(&code.to_be_bytes());
    frame.extend_from_slice(reason.as_bytes());
    frame
}

/// What is looked at of a message: its type, which upstreams write first.
const LEAD_BYTES: usize = 64;

/// Events behind which nothing of a response comes.
const ENDS: [&[u8]; 4] = [
    b"\"response.completed\"",
    b"\"response.failed\"",
    b"\"response.incomplete\"",
    b"\"type\":\"error\"",
];

/// Said of a message of the upstream.
const OVER_THE_BOUND: &str = "codex-relay: message over 33554432 bytes";

/// "Unexpected condition": codex takes it for a failure and tries again. 1014, which is for gateways, is
/// none that its library (tungstenite) takes.
const UNEXPECTED: u16 = 1011;

#[cfg(test)]
#[path = "down_tests.rs"]
mod tests;
