//! From codex to the upstream: messages are read whole and judged, control frames pass at once.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::base::limits::{
    CLOSE_GRACE, FRAGMENT_BYTES, FRAME_READ_BYTES, MAX_MESSAGE_BYTES, MAX_UPSTREAM_MESSAGE_BYTES,
};
use crate::base::reason::Reason;
use crate::budget::share::Share;
use crate::exchange::body::Body;
use crate::exchange::classify::Identity;
use crate::exchange::refusal::{Measured, Refusal};
use crate::relay::judge::{Judged, judge};
use crate::relay::masking::{fill, pong};
use crate::relay::shared::Relay;
use crate::relay::websocket::{Stuck, Word, point_to_http, refuse};
use crate::session::parent::tally::{About, Outcome};
use crate::upstream::calls::Call;
use crate::wire::frames::{
    Breach, FrameHead, MAX_HEAD_BYTES, OpCode, Parsed, Sender, apply_mask, check_close,
};

/// The pump towards the upstream.
#[derive(Debug)]
pub struct Up<'a, R, W> {
    relay: &'a Relay,
    from: R,
    to: W,
    say: mpsc::Sender<Word>,
    stuck: Stuck<'a>,
    call: &'a Call,
    /// What is known of a message that isn't read.
    about: &'a About,
    buffer: BytesMut,
    message: Message,
}

/// How the pump ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Codex broke the protocol.
    Broken(Breach),
    /// Codex ended its side.
    CodexGone,
    /// The upstream takes no more.
    UpstreamGone,
}

/// The data message that codex is sending.
#[derive(Debug, Default)]
struct Message {
    /// Its text so far, unmasked; empty once it is over the bound.
    text: BytesMut,
    /// Its size so far.
    size: u64,
    /// What its first fragment said; none between messages.
    opcode: Option<OpCode>,
    /// What it takes of the budget.
    share: Option<Share>,
}

impl<'a, R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Up<'a, R, W> {
    /// Passes frames of `from` on to `to`; what codex must hear goes to `say`.
    pub fn new(
        relay: &'a Relay,
        from: R,
        to: W,
        say: mpsc::Sender<Word>,
        stuck: Stuck<'a>,
        (call, about): (&'a Call, &'a About),
    ) -> Self {
        Self {
            relay,
            from,
            to,
            say,
            stuck,
            call,
            about,
            buffer: BytesMut::new(),
            message: Message::default(),
        }
    }

    /// Runs until one side ends.
    pub async fn run(mut self) -> End {
        loop {
            match self.frame().await {
                Ok(()) => {}
                Err(end) => return end,
            }
        }
    }

    async fn frame(&mut self) -> Result<(), End> {
        let (head, raw) = self.head().await?;
        let is_open = self.message.opcode.is_some();
        head.check(Sender::Client, is_open).map_err(End::Broken)?;
        if head.opcode == OpCode::Close {
            return self.pass_close(&head, raw).await;
        }
        if head.opcode.is_control() {
            return self.pass_frame(&head, raw).await;
        }
        let opcode = self.message.opcode.unwrap_or(head.opcode);
        self.message.opcode = Some(opcode);
        self.is_mid_frame(true);
        self.collect(&head).await?;
        self.is_mid_frame(false);
        if head.fin {
            return self.judge(opcode).await;
        }
        Ok(())
    }

    /// Reads the next head, and its bytes as they came.
    async fn head(&mut self) -> Result<(FrameHead, Bytes), End> {
        loop {
            match FrameHead::parse(&self.buffer) {
                Parsed::Head { head, size } => {
                    return Ok((head, self.buffer.split_to(size).freeze()));
                }
                Parsed::Invalid => return Err(End::Broken(Breach::Length)),
                Parsed::Incomplete => self.read().await?,
            }
        }
    }

    async fn read(&mut self) -> Result<(), End> {
        self.buffer.reserve(FRAME_READ_BYTES);
        match self.from.read_buf(&mut self.buffer).await {
            Ok(count) if count > 0 => Ok(()),
            Ok(_) | Err(_) => Err(End::CodexGone),
        }
    }

    /// Waits for `work` between two frames to the upstream, and answers its pings meanwhile.
    async fn answering<T>(
        to: &mut W,
        pings: &mut mpsc::Receiver<Bytes>,
        work: impl Future<Output = T>,
    ) -> Result<T, End> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                Some(payload) = pings.recv() => {
                    let written = async {
                        to.write_all(&pong(&payload)).await?;
                        to.flush().await
                    };
                    written.await.map_err(|_| End::UpstreamGone)?;
                }
            }
        }
    }

    /// Answers the pings that wait.
    async fn answer_pings(&mut self) -> Result<(), End> {
        while let Ok(payload) = self.stuck.pings.try_recv() {
            self.write(&pong(&payload)).await?;
        }
        Ok(())
    }

    fn is_mid_frame(&self, is_it: bool) {
        self.stuck.is_mid_frame.store(is_it, Ordering::Relaxed);
    }

    /// Takes up to `left` bytes of payload, at least one.
    async fn payload(&mut self, left: u64) -> Result<BytesMut, End> {
        if self.buffer.is_empty() {
            self.read().await?;
        }
        let count =
            usize::try_from(left).map_or(self.buffer.len(), |left| left.min(self.buffer.len()));
        Ok(self.buffer.split_to(count))
    }

    /// Passes a close on as it came, if it is one.
    async fn pass_close(&mut self, head: &FrameHead, raw: Bytes) -> Result<(), End> {
        let length = usize::try_from(head.length).unwrap_or(0);
        while self.buffer.len() < length {
            self.read().await?;
        }
        let payload = self.buffer.get(..length).unwrap_or_default();
        let mut plain = payload.to_vec();
        apply_mask(&mut plain, head.mask.unwrap_or_default(), 0);
        check_close(&plain).map_err(End::Broken)?;
        self.pass_frame(head, raw).await
    }

    /// Passes a frame on as it came, masked bytes and all.
    async fn pass_frame(&mut self, head: &FrameHead, raw: Bytes) -> Result<(), End> {
        self.write(&raw).await?;
        let mut left = head.length;
        while left > 0 {
            let part = self.payload(left).await?;
            left -= u64::try_from(part.len()).unwrap_or(0);
            self.write(&part).await?;
        }
        self.flush().await
    }

    /// Adds a fragment to the message; over the bound it is only counted.
    async fn collect(&mut self, head: &FrameHead) -> Result<(), End> {
        let key = head.mask.unwrap_or_default();
        self.message.size = self.message.size.saturating_add(head.length);
        let fits = usize::try_from(self.message.size).is_ok_and(|size| size <= MAX_MESSAGE_BYTES);
        if fits {
            self.reserve(head).await?;
        } else {
            self.message.text = BytesMut::new();
        }
        let mut offset = 0;
        let mut left = head.length;
        while left > 0 {
            if fits && self.buffer.is_empty() && left >= STRAIGHT_BYTES {
                let count = self.read_straight(left).await?;
                left -= u64::try_from(count).unwrap_or(0);
                let read = self.message.text.len() - count;
                apply_mask(
                    self.message.text.get_mut(read..).unwrap_or_default(),
                    key,
                    offset,
                );
                offset += count;
                continue;
            }
            if self.buffer.is_empty() {
                self.buffer.reserve(FRAME_READ_BYTES);
                let reading = self.from.read_buf(&mut self.buffer);
                let read = Self::answering(&mut self.to, &mut self.stuck.pings, reading).await?;
                if !read.is_ok_and(|count| count > 0) {
                    return Err(End::CodexGone);
                }
            }
            let mut part = self.payload(left).await?;
            left -= u64::try_from(part.len()).unwrap_or(0);
            if fits {
                apply_mask(&mut part, key, offset);
                offset += part.len();
                self.message.text.extend_from_slice(&part);
            }
        }
        Ok(())
    }

    /// Reads up to `left` bytes of payload to where they belong, at least one, and says how many.
    async fn read_straight(&mut self, left: u64) -> Result<usize, End> {
        let mut text = (&mut self.message.text).limit(usize::try_from(left).unwrap_or(usize::MAX));
        let reading = self.from.read_buf(&mut text);
        let read = Self::answering(&mut self.to, &mut self.stuck.pings, reading).await?;
        read.ok().filter(|count| *count > 0).ok_or(End::CodexGone)
    }

    /// Makes room for a fragment, once the budget has it. A fragmented message takes the most that
    /// it may become, so that it never waits with a part in its hands.
    async fn reserve(&mut self, head: &FrameHead) -> Result<(), End> {
        let length = usize::try_from(head.length).unwrap_or(MAX_MESSAGE_BYTES);
        if self.message.share.is_none() {
            let size = head.fin.then_some(length);
            let waiting = self.relay.budget.message(size);
            let share = Self::answering(&mut self.to, &mut self.stuck.pings, waiting).await?;
            let Ok(share) = share else {
                let refusal = Refusal::new(Reason::Busy);
                self.relay.note_refused(self.about, &refusal);
                refuse(&self.say, &refusal).await?;
                return Err(End::UpstreamGone);
            };
            self.message.share = Some(share);
        }
        self.message.text.reserve(length);
        Ok(())
    }

    /// Decides on a whole message; a binary one only has a bound.
    async fn judge(&mut self, opcode: OpCode) -> Result<(), End> {
        let Message {
            text, size, share, ..
        } = std::mem::take(&mut self.message);
        // Held until the message has gone.
        let _share = share.map(|mut share| {
            share.shrink_to(text.len());
            share
        });
        if usize::try_from(size).map_or(true, |size| size > MAX_MESSAGE_BYTES) {
            let refusal = Refusal::too_large(Measured::Message, size);
            self.relay.note_refused(self.about, &refusal);
            return refuse(&self.say, &refusal).await;
        }
        let text = text.freeze();
        if opcode == OpCode::Binary {
            return self.send(vec![text], opcode).await;
        }
        let body = Body::read(&text);
        if !body.is_create {
            return self.send(vec![text], opcode).await;
        }
        if self.relay.passes_unread() {
            self.relay.note(self.about, Outcome::Untouched);
            return self.send(vec![text], opcode).await;
        }
        let judged = judge(
            self.relay,
            (&text, &body),
            Identity::default(),
            self.call,
            Measured::MessageAfterInjection,
        );
        match judged.await {
            Judged::Forward => {
                tracing::debug!(bytes = text.len(), "model message passed");
                self.send(vec![text], opcode).await
            }
            Judged::Inject {
                pieces,
                size,
                thread,
                ..
            } => {
                let is_lifted =
                    size > MAX_UPSTREAM_MESSAGE_BYTES && text.len() <= MAX_UPSTREAM_MESSAGE_BYTES;
                if is_lifted {
                    return point_to_http(self.relay, &self.say, (size, &thread)).await;
                }
                tracing::debug!(from = text.len(), to = size, "model message injected");
                self.send(pieces, opcode).await
            }
            Judged::Refuse(refusal) => refuse(&self.say, &refusal).await,
        }
    }

    /// Sends a message in fragments, masked anew.
    async fn send(&mut self, pieces: Vec<Bytes>, mut opcode: OpCode) -> Result<(), End> {
        let mut left: usize = pieces.iter().map(Bytes::len).sum();
        let mut pieces = VecDeque::from(pieces);
        // Masked in parts that stay in the processor's cache, in one place for all of them.
        let mut part = Vec::with_capacity(left.min(PART_BYTES) + MAX_HEAD_BYTES);
        loop {
            let size = left.min(FRAGMENT_BYTES);
            left -= size;
            let mut key = [0; 4];
            // A mask hides nothing from the upstream: without random numbers zeros serve.
            let _ = getrandom::fill(&mut key);
            part.clear();
            FrameHead {
                fin: left == 0,
                reserved: 0,
                opcode,
                mask: Some(key),
                length: u64::try_from(size).unwrap_or(u64::MAX),
            }
            .encode(&mut part);
            let mut offset = 0;
            loop {
                let start = part.len();
                let end = start + PART_BYTES.min(size - offset);
                fill(&mut part, end, &mut pieces);
                apply_mask(part.get_mut(start..).unwrap_or_default(), key, offset);
                offset += end - start;
                self.write_watching(&part, left == 0).await?;
                part.clear();
                if offset == size {
                    break;
                }
            }
            if left == 0 {
                self.is_mid_frame(false);
                return self.flush().await;
            }
            self.pass_control_frames().await?;
            // Codex may be in the middle of its next message, which isn't read yet.
            self.is_mid_frame(!self.buffer.is_empty());
            self.answer_pings().await?;
            opcode = OpCode::Continuation;
        }
    }

    /// Writes a frame while codex is listened to: that it is gone must show before a slow upstream
    /// has taken the rest. The last frame of a message is still sent then.
    async fn write_watching(&mut self, frame: &[u8], is_last: bool) -> Result<(), End> {
        let (from, to, buffer) = (&mut self.from, &mut self.to, &mut self.buffer);
        let writing = to.write_all(frame);
        tokio::pin!(writing);
        loop {
            let has_room = buffer.len() < FRAME_READ_BYTES;
            if has_room {
                buffer.reserve(FRAME_READ_BYTES);
            }
            tokio::select! {
                // Codex first: an upstream that takes everything at once must not hide its end.
                biased;
                read = from.read_buf(buffer), if has_room => match read {
                    Ok(count) if count > 0 => {}
                    Ok(_) | Err(_) if is_last => {
                        let written = timeout(CLOSE_GRACE, writing).await;
                        return written.map_or(Err(End::CodexGone), |written| {
                            written.map_err(|_| End::UpstreamGone)
                        });
                    }
                    Ok(_) | Err(_) => return Err(End::CodexGone),
                },
                written = &mut writing => return written.map_err(|_| End::UpstreamGone),
            }
        }
    }

    /// Passes the control frames that codex sent meanwhile: a pong must not wait for the message.
    async fn pass_control_frames(&mut self) -> Result<(), End> {
        loop {
            let Parsed::Head { head, size } = FrameHead::parse(&self.buffer) else {
                return Ok(());
            };
            let whole = usize::try_from(head.length).map_or(usize::MAX, |length| size + length);
            // Behind a close nothing more of the message could come: it waits for its end.
            let may_pass = matches!(head.opcode, OpCode::Ping | OpCode::Pong)
                && head.check(Sender::Client, true).is_ok();
            if !may_pass || self.buffer.len() < whole {
                return Ok(());
            }
            let frame = self.buffer.split_to(whole);
            self.write(&frame).await?;
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), End> {
        self.to
            .write_all(bytes)
            .await
            .map_err(|_| End::UpstreamGone)
    }

    async fn flush(&mut self) -> Result<(), End> {
        self.to.flush().await.map_err(|_| End::UpstreamGone)
    }
}

/// From so many bytes of payload on, reads go to where they belong.
const STRAIGHT_BYTES: u64 = 32 * 1024;

/// What is masked and written at a time.
const PART_BYTES: usize = 64 * 1024;
