//! From the upstream to codex: frames as they come, counted; words of our own between messages.

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::base::limits::{FRAME_READ_BYTES, MAX_MESSAGE_BYTES};
use crate::relay::websocket::Word;
use crate::wire::frames::{FrameHead, OpCode, Parsed};

/// The pump towards codex.
#[derive(Debug)]
pub struct Down<R, W> {
    from: R,
    to: W,
    words: mpsc::Receiver<Word>,
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
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Down<R, W> {
    /// Passes frames of `from` on to `to`.
    pub fn new(from: R, to: W, words: mpsc::Receiver<Word>) -> Self {
        Self {
            from,
            to,
            words,
            buffer: BytesMut::new(),
            track: Track::default(),
        }
    }

    /// Runs until the upstream ends or codex takes no more.
    pub async fn run(mut self) {
        loop {
            self.buffer.reserve(FRAME_READ_BYTES);
            let may_speak = self.track.at_boundary() && self.buffer.is_empty();
            tokio::select! {
                read = self.from.read_buf(&mut self.buffer) => {
                    if !read.is_ok_and(|count| count > 0) {
                        break;
                    }
                    let whole = self.track.advance(&self.buffer);
                    let passing = self.buffer.split_to(whole);
                    if self.to.write_all(&passing).await.is_err() || self.to.flush().await.is_err() {
                        return;
                    }
                    if self.track.is_over {
                        return self.close(OVER_THE_BOUND).await;
                    }
                }
                Some(word) = self.words.recv(), if may_speak => {
                    let text = match word {
                        Word::Close(reason) => return self.close(reason).await,
                        Word::Text(text) => text,
                    };
                    let frame = text_frame(&text);
                    if self.to.write_all(&frame).await.is_err() || self.to.flush().await.is_err() {
                        return;
                    }
                }
            }
        }
        // The upstream has ended in the middle of a head: that is what it said.
        let _ = self.to.write_all(&self.buffer).await;
        let _ = self.to.shutdown().await;
    }

    /// Ends the connection with a close of our own, behind which no data may come.
    async fn close(mut self, reason: &str) {
        let _ = self.to.write_all(&close_frame(reason)).await;
        let _ = self.to.shutdown().await;
    }
}

impl Track {
    /// Whether the last byte that passed was the last of a whole message.
    fn at_boundary(&self) -> bool {
        self.left == 0 && !self.is_open
    }

    /// Follows the frames in `bytes` and says how many bytes may pass: all but a head that isn't
    /// whole, and none of a message that is over the bound.
    fn advance(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let here = usize::try_from(self.left).map_or(rest.len(), |left| left.min(rest.len()));
            at += here;
            self.left -= u64::try_from(here).unwrap_or(0);
            if self.left > 0 {
                return at;
            }
            let rest = bytes.get(at..).unwrap_or_default();
            let Parsed::Head { head, size } = FrameHead::parse(rest) else {
                // Nonsense is codex's to judge; it passes as it is.
                return at;
            };
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
            at += size;
            self.left = head.length;
        }
    }
}

fn text_frame(text: &str) -> Vec<u8> {
    let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
    let mut frame = Vec::with_capacity(text.len() + 14);
    FrameHead::last(OpCode::Text, length).encode(&mut frame);
    frame.extend_from_slice(text.as_bytes());
    frame
}

/// The close frame of a connection whose messages are too long (RFC 6455, section 7.4.1).
fn close_frame(reason: &str) -> Vec<u8> {
    let length = u64::try_from(reason.len() + 2).unwrap_or(2);
    let mut frame = Vec::new();
    FrameHead::last(OpCode::Close, length).encode(&mut frame);
    frame.extend_from_slice(&TOO_BIG.to_be_bytes());
    frame.extend_from_slice(reason.as_bytes());
    frame
}

/// Said of a message of the upstream.
const OVER_THE_BOUND: &str = "codex-relay: message over 33554432 bytes";

/// "Message too big".
const TOO_BIG: u16 = 1009;

#[cfg(test)]
#[path = "down_tests.rs"]
mod tests;
