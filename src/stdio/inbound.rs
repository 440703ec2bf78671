//! The client's lines to codex's stdin.

use std::io;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufWriter};

use crate::base::chain::Chain;
use crate::base::ids::{Generation, RequestId, ThreadId};
use crate::base::limits::{LEAD_BYTES, MAX_LINE_BYTES, PIPE_READ_BYTES};
use crate::budget::share::{Budget, LineShare};
use crate::context::orders::Orders;
use crate::exchange::refusal;
use crate::feed::history::has_section;
use crate::feed::orders::OrdersFeed;
use crate::feed::source::Feed;
use crate::session::intercept::{ClientVerdict, Prepare};
use crate::session::machine::{Denial, Remark, Session};
use crate::session::methods::OWN_NAMES;
use crate::session::reading::ClientLine;
use crate::session::shared::SharedSession;
use crate::session::turnstile::Turnstile;
use crate::stdio::aside::read_aside;
use crate::stdio::outbound::OwnEnd;
use crate::stdio::waiting::{Event, WaitingLines};
use crate::stdio::writer::OwnLines;
use crate::upstream::calls::Calls;
use crate::wire::edit::pieces;
use crate::wire::envelope::error_line;
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
    /// Which lines stay behind others.
    pub turnstile: Turnstile,
    /// The lines that wait for codex.
    pub waiting: WaitingLines,
}

/// What comes of the client.
#[derive(Debug)]
struct Reading {
    framer: LineFramer,
    /// A part of a long line that must wait.
    next: Option<Piece>,
    long: LongLine,
    share: LineShare,
    is_mid_line: bool,
    /// The client sends no more.
    is_over: bool,
}

impl Reading {
    fn new() -> Self {
        Self {
            framer: LineFramer::new(MAX_LINE_BYTES + 1),
            next: None,
            long: LongLine::Passed,
            share: LineShare::default(),
            is_mid_line: false,
            is_over: false,
        }
    }

    /// Reads more; false at the end.
    async fn read<R: AsyncRead + Unpin>(&mut self, from: &mut R) -> bool {
        self.framer.buffer().reserve(PIPE_READ_BYTES);
        let read = from.read_buf(self.framer.buffer()).await;
        read.is_ok_and(|count| count > 0)
    }

    fn take(&mut self) -> Option<Piece> {
        let piece = self.next.take().or_else(|| self.framer.next_piece());
        if piece.is_none() && self.is_over {
            return self.framer.finish();
        }
        piece
    }
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
        let mut to = BufWriter::with_capacity(PIPE_READ_BYTES, to);
        let mut reading = Reading::new();
        while self.pass_all(&mut reading, &mut to).await.is_ok() {
            if reading.is_over && self.waiting.is_empty() {
                self.end_long_line(&mut reading.long).await;
                let _ = to.shutdown().await;
                return Side::Client;
            }
            if to.flush().await.is_err() {
                return Side::Codex;
            }
            let is_full = self.turnstile.is_full() || reading.next.is_some();
            if !is_full && !reading.is_over {
                let held = reading.framer.held();
                self.budget.line(&mut reading.share, held).await;
            }
            let gone = tokio::select! {
                read = reading.read(&mut from), if !is_full && !reading.is_over => {
                    reading.is_over = !read;
                    Ok(())
                }
                // Nothing may stand in the middle of a line that passes in parts.
                Some(errand) = self.own.errands.recv(), if !reading.is_mid_line => {
                    write_line(&mut to, &errand.question).await
                }
                event = self.waiting.event(&mut self.own.answers, &mut self.own.openings) => {
                    self.go_on(event, &mut to).await
                }
            };
            if gone.is_err() {
                return Side::Codex;
            }
        }
        Side::Codex
    }

    /// Passes on what has been read and need not wait.
    async fn pass_all<W: AsyncWrite + Unpin>(
        &mut self,
        reading: &mut Reading,
        to: &mut W,
    ) -> io::Result<()> {
        loop {
            while let Some(line) = self.turnstile.take() {
                self.run_errands(to).await?;
                self.session.with(|session| session.release(&line));
                self.pass_line(line, to).await?;
            }
            if self.turnstile.is_full() {
                return Ok(());
            }
            let Some(piece) = reading.take() else {
                return Ok(());
            };
            if !matches!(piece, Piece::Line(_)) && !self.turnstile.is_idle() {
                // A line that passes in parts waits for all that waits, and is overtaken by none.
                reading.next = Some(piece);
                return Ok(());
            }
            if !reading.is_mid_line {
                self.run_errands(to).await?;
            }
            reading.is_mid_line = match &piece {
                Piece::Line(_) => false,
                Piece::LongHead(part) | Piece::LongRest(part) => !part.ends_with(b"\n"),
            };
            self.pass(piece, &mut reading.long, to).await?;
            if !self.turnstile.is_full() {
                reading.share = LineShare::default();
            }
        }
    }

    /// Goes on with a line that has waited long enough.
    async fn go_on<W: AsyncWrite + Unpin>(&mut self, event: Event, to: &mut W) -> io::Result<()> {
        match event {
            Event::Again(question) => write_line(to, &question).await,
            Event::Answered {
                ticket,
                line,
                ask,
                answer,
            } => {
                self.turnstile.done(ticket);
                let answer = answer.as_ref();
                let verdict = self
                    .session
                    .with(|session| session.on_own_answer(&line, *ask, answer));
                self.settle(line, verdict, to).await
            }
            Event::Opened {
                ticket,
                line,
                opening,
            } => {
                self.turnstile.done(ticket);
                let verdict = self
                    .session
                    .with(|session| session.on_opened(&line, *opening));
                self.settle(line, verdict, to).await
            }
            Event::Passed => {
                let is_opening =
                    |thread: &ThreadId| self.session.with(|session| session.is_opening(thread));
                self.waiting.notice(is_opening);
                Ok(())
            }
        }
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
            Piece::Line(line) => {
                if let Some(line) = self.turnstile.enter(line) {
                    return self.pass_line(line, to).await;
                }
                if let Some(line) = self.turnstile.newest() {
                    self.session.with(|session| session.hold(line));
                }
                return Ok(());
            }
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

    /// Judges a line that nothing holds.
    async fn pass_line<W: AsyncWrite + Unpin>(
        &mut self,
        line: Bytes,
        to: &mut W,
    ) -> io::Result<()> {
        let (line, read) = read_aside(line.len(), move || ClientLine::read(line)).await?;
        let verdict = self.session.with(|session| session.on_client(&line, read));
        self.settle(line, verdict, to).await
    }

    /// Does what was decided on a line, until it has gone or waits.
    async fn settle<W: AsyncWrite + Unpin>(
        &mut self,
        mut line: Bytes,
        mut verdict: ClientVerdict,
        to: &mut W,
    ) -> io::Result<()> {
        loop {
            self.log_remarks();
            verdict = match verdict {
                ClientVerdict::Bare { line: bare, member } => {
                    line = bare;
                    let held = line.clone();
                    let read = move || ClientLine::read_bare(&held);
                    let read = read_aside(line.len(), read).await?;
                    self.session
                        .with(|session| session.on_bare(&line, read, member))
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
                ClientVerdict::Wait(opening) => {
                    let thread = Some(opening.thread.clone());
                    let ticket = self.turnstile.wait(&line, thread);
                    self.waiting.open(ticket, line, opening);
                    return Ok(());
                }
                ClientVerdict::Prepare(prepare) => {
                    // Lines that wait in the buffer must not wait for the disk.
                    to.flush().await?;
                    self.prepare(&line, prepare).await
                }
                ClientVerdict::Ask(ask) => {
                    write_line(to, &ask.question).await?;
                    let ticket = self.turnstile.wait(&line, ask.thread.clone());
                    self.waiting.ask(ticket, line, ask);
                    return Ok(());
                }
            };
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

    async fn orders(&self, prepare: &Prepare) -> Result<Orders, String> {
        let folder = prepare.wish.folder.clone();
        let here = || std::env::current_dir().ok();
        let folder = folder.or_else(|| prepare.begins_here().then(here)?);
        let orders = self.orders.read(folder.as_deref()).await;
        orders.map_err(|error| {
            let fault = Chain(&error).to_string();
            tracing::warn!("no developer policy: {fault}");
            fault
        })
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

/// The line that answers a request of the client with an error.
fn answer(id: &RequestId, denial: &Denial) -> Bytes {
    error_line(id, &refusal::error(denial))
}

#[cfg(test)]
#[path = "inbound_tests.rs"]
mod tests;
