//! The client's lines to codex's stdin.

use std::io;

use bytes::Bytes;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufWriter};
use tokio::time::{sleep, timeout};

use crate::base::chain::Chain;
use crate::base::ids::{Generation, RequestId, ThreadId};
use crate::base::limits::{
    LEAD_BYTES, MAX_LINE_BYTES, OPTIONAL_ANSWER_DEADLINE, OVERLOAD_PAUSE, OWN_ANSWER_DEADLINE,
    PIPE_READ_BYTES, RENEWAL_DEADLINE,
};
use crate::budget::share::{Budget, LineShare};
use crate::context::orders::Orders;
use crate::exchange::refusal;
use crate::feed::history::has_section;
use crate::feed::orders::OrdersFeed;
use crate::feed::source::Feed;
use crate::session::intercept::{Ask, ClientVerdict, Patience, Prepare};
use crate::session::machine::{Denial, Remark, Session};
use crate::session::methods::OWN_NAMES;
use crate::session::own::OwnId;
use crate::session::shared::SharedSession;
use crate::stdio::outbound::OwnEnd;
use crate::stdio::writer::OwnLines;
use crate::upstream::calls::Calls;
use crate::wire::edit::pieces;
use crate::wire::envelope::member;
use crate::wire::lead::Lead;
use crate::wire::lines::{LineFramer, Piece};

/// What the pump needs.
#[derive(Debug)]
pub struct Inbound {
    /// The session that decides.
    pub session: SharedSession,
    /// Where contexts come from.
    pub feed: Feed,
    /// What turns have asked the model for.
    pub calls: Calls,
    /// Where developer policies come from.
    pub orders: OrdersFeed,
    /// The client, for answers of our own.
    pub client: OwnLines,
    /// What is to be known and sent of requests of our own.
    pub own: OwnEnd,
    /// The memory for messages in flight.
    pub budget: Budget,
}

/// Who ended a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client sends no more.
    Client,
    /// Codex reads no more.
    Codex,
}

/// What becomes of the parts of a line over the bound.
#[derive(Debug)]
enum LongLine {
    Passed,
    /// They are thrown away but for the id.
    Refused(Lead),
}

impl Inbound {
    /// Passes lines on until `from` ends or codex reads no more; then codex's stdin is closed.
    pub async fn pump<R, W>(mut self, mut from: R, to: W) -> Side
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut framer = LineFramer::new(MAX_LINE_BYTES + 1);
        let mut to = BufWriter::with_capacity(PIPE_READ_BYTES, to);
        let mut long = LongLine::Passed;
        let mut share = LineShare::default();
        let mut is_mid_line = false;
        loop {
            framer.buffer().reserve(PIPE_READ_BYTES);
            let read = tokio::select! {
                read = from.read_buf(framer.buffer()) => read,
                // Nothing may stand in the middle of a line that passes in parts.
                Some(errand) = self.own.errands.recv(), if !is_mid_line => {
                    if write_line(&mut to, &errand.question).await.is_err() {
                        return Side::Codex;
                    }
                    continue;
                }
            };
            let count = read.unwrap_or(0);
            while let Some(piece) = framer.next_piece() {
                if !is_mid_line && self.run_errands(&mut to).await.is_err() {
                    return Side::Codex;
                }
                is_mid_line = match &piece {
                    Piece::Line(_) => false,
                    Piece::LongHead(part) | Piece::LongRest(part) => !part.ends_with(b"\n"),
                };
                if self.pass(piece, &mut long, &mut to).await.is_err() {
                    return Side::Codex;
                }
                share = LineShare::default();
            }
            if count == 0 {
                break;
            }
            if to.flush().await.is_err() {
                return Side::Codex;
            }
            self.budget.line(&mut share, framer.held()).await;
        }
        if let Some(last) = framer.finish() {
            let _ = self.pass(last, &mut long, &mut to).await;
        }
        self.end_long_line(&mut long).await;
        let _ = to.shutdown().await;
        Side::Client
    }

    /// Sends what waits to be sent: a turn goes by what was sent before it.
    async fn run_errands<W: AsyncWrite + Unpin>(&mut self, to: &mut W) -> io::Result<()> {
        while let Ok(errand) = self.own.errands.try_recv() {
            to.write_all(&errand.question).await?;
        }
        Ok(())
    }

    async fn pass<W: AsyncWrite + Unpin>(
        &mut self,
        piece: Piece,
        long: &mut LongLine,
        to: &mut W,
    ) -> io::Result<()> {
        let part = match piece {
            Piece::Line(line) => return self.pass_line(line, to).await,
            Piece::LongHead(part) => {
                *long = self.judge_long_line(&part);
                part
            }
            Piece::LongRest(part) => part,
        };
        match long {
            LongLine::Passed => to.write_all(&part).await,
            LongLine::Refused(lead) => {
                lead.push(&part);
                if part.ends_with(b"\n") {
                    self.end_long_line(long).await;
                }
                Ok(())
            }
        }
    }

    fn judge_long_line(&self, head: &[u8]) -> LongLine {
        let mut lead = Lead::default();
        lead.push(head.get(..LEAD_BYTES).unwrap_or(head));
        let must_read = |method: String| self.session.with(|session| session.must_read(&method));
        if lead.method_begins_with(OWN_NAMES) || lead.method().is_some_and(must_read) {
            LongLine::Refused(Lead::default())
        } else {
            LongLine::Passed
        }
    }

    /// Answers a long line that was thrown away, at its end.
    async fn end_long_line(&self, long: &mut LongLine) {
        if let LongLine::Refused(lead) = std::mem::replace(long, LongLine::Passed)
            && let Some(id) = lead.id()
        {
            let limit = MAX_LINE_BYTES;
            let denial = Denial::LineTooLong { limit };
            let _ = self.client.send(answer(&id, &denial)).await;
        }
    }

    async fn pass_line<W: AsyncWrite + Unpin>(
        &mut self,
        mut line: Bytes,
        to: &mut W,
    ) -> io::Result<()> {
        let mut verdict = self.session.with(|session| session.on_client_line(&line));
        loop {
            self.log_remarks();
            verdict = match verdict {
                ClientVerdict::Bare { line: bare, member } => {
                    line = bare;
                    self.session
                        .with(|session| session.on_bare_line(&line, member))
                }
                ClientVerdict::Drop => return Ok(()),
                ClientVerdict::Pass => return to.write_all(&line).await,
                ClientVerdict::Answer(line) => {
                    // The client may have stopped reading: then there is nobody to tell.
                    let _ = self.client.send(line).await;
                    return Ok(());
                }
                ClientVerdict::Interrupt { thread, turn } => {
                    // Codex first: what it asks meanwhile would be cut and asked again.
                    to.write_all(&line).await?;
                    to.flush().await?;
                    self.calls.cut(thread.as_str(), turn.as_str());
                    return Ok(());
                }
                ClientVerdict::Rewrite(edits) => {
                    for piece in pieces(&line, edits) {
                        to.write_all(&piece).await?;
                    }
                    return Ok(());
                }
                ClientVerdict::Refuse { id, denial } => {
                    // The client may have stopped reading: then there is nobody to tell.
                    let _ = self.client.send(answer(&id, &denial)).await;
                    return Ok(());
                }
                ClientVerdict::Wait(waiting) => {
                    to.flush().await?;
                    self.wait_for(&waiting.thread).await;
                    self.session
                        .with(|session| session.on_opened(&line, waiting))
                }
                ClientVerdict::Prepare(prepare) => {
                    // Lines that wait in the buffer must not wait for the disk.
                    to.flush().await?;
                    self.prepare(&line, prepare).await
                }
                ClientVerdict::Ask(ask) => {
                    let answer = self.ask(&ask, to).await?;
                    self.session
                        .with(|session| session.on_own_answer(&line, ask, answer.as_ref()))
                }
            };
        }
    }

    /// Waits until codex has answered for the resume of a thread, or for too long.
    async fn wait_for(&mut self, thread: &ThreadId) {
        let opened = async {
            while self.session.with(|session| session.is_opening(thread)) {
                // Without codex's stdout nothing comes any more.
                if self.own.openings.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = timeout(OWN_ANSWER_DEADLINE, opened).await;
    }

    /// Asks codex; where it is overloaded, again after a pause that grows. `None` where it doesn't
    /// answer in time.
    async fn ask<W: AsyncWrite + Unpin>(
        &mut self,
        ask: &Ask,
        to: &mut W,
    ) -> io::Result<Option<Bytes>> {
        let mut pause = OVERLOAD_PAUSE;
        let mut last = None;
        let asked = async {
            loop {
                to.write_all(&ask.question).await?;
                to.flush().await?;
                last = self.answer_to(ask.id).await;
                if !last.as_ref().is_some_and(is_overloaded) {
                    return Ok::<(), io::Error>(());
                }
                sleep(pause).await;
                pause *= 2;
            }
        };
        // Too late, its last word stands.
        let deadline = match ask.patience {
            Patience::Long => OWN_ANSWER_DEADLINE,
            Patience::Renewal => RENEWAL_DEADLINE,
            Patience::Short => OPTIONAL_ANSWER_DEADLINE,
        };
        timeout(deadline, asked).await.unwrap_or(Ok(()))?;
        Ok(last)
    }

    /// Waits for the answer to a request of our own; `None` where codex's stdout has ended.
    async fn answer_to(&mut self, id: OwnId) -> Option<Bytes> {
        loop {
            let answer = self.own.answers.recv().await?;
            // An answer that came too late for its own line is passed over.
            if answer.id == id {
                return Some(answer.line);
            }
        }
    }

    async fn prepare(&self, line: &Bytes, mut prepare: Prepare) -> ClientVerdict {
        prepare.orders = self.orders(&prepare).await;
        if let Some(history) = prepare.history.take() {
            prepare.has_section = has_section(history).await;
        }
        let mut prepared = match self.feed.prepare(&prepare.wish).await {
            Ok(prepared) => Some(prepared),
            Err(error) => {
                tracing::warn!("no context for this turn: {}", Chain(&error));
                None
            }
        };
        let mut bits = [0; 16];
        if let Err(error) = getrandom::fill(&mut bits) {
            tracing::error!(%error, "the system has no random numbers");
            prepared = None;
        }
        let fresh = Generation::from_random(bits);
        self.session
            .with(|session| session.on_context(line, prepare, prepared, fresh))
    }

    async fn orders(&self, prepare: &Prepare) -> Option<Orders> {
        let folder = prepare.wish.folder.clone();
        let here = || std::env::current_dir().ok();
        let folder = folder.or_else(|| prepare.begins_here().then(here)?);
        match self.orders.read(folder.as_deref()).await {
            Ok(orders) => Some(orders),
            Err(error) => {
                tracing::warn!("no developer policy: {}", Chain(&error));
                None
            }
        }
    }

    fn log_remarks(&self) {
        for remark in self.session.with(Session::take_remarks) {
            match remark {
                Remark::ContextChanged { thread, change } => tracing::info!(
                    %thread,
                    bytes_before = change.before,
                    bytes = change.now,
                    "context changed: the provider's prompt cache starts anew for this thread"
                ),
                Remark::NotDelivered { thread, files, why } => tracing::warn!(
                    %thread,
                    "{} not shown to the thread, tried again at its next turn: {why}",
                    files.join(", ")
                ),
            }
        }
    }
}

async fn write_line<W: AsyncWrite + Unpin>(to: &mut W, line: &[u8]) -> io::Result<()> {
    to.write_all(line).await?;
    to.flush().await
}

/// Whether codex says that it has too much to do.
fn is_overloaded(answer: &Bytes) -> bool {
    let whole = 0..answer.len();
    let code = member(answer, &whole, &["error", "code"]);
    code.is_some_and(|code| answer.get(code) == Some(b"-32001"))
}

/// The line that answers a request of the client with an error.
fn answer(id: &RequestId, denial: &Denial) -> Bytes {
    let error: Value = refusal::error(denial);
    let id = String::from_utf8_lossy(id.as_bytes());
    Bytes::from(format!("{{\"id\":{id},\"error\":{error}}}\n"))
}

#[cfg(test)]
#[path = "inbound_tests.rs"]
mod tests;
