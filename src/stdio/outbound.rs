//! Codex's stdout to the client.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncRead;
use tokio::sync::{mpsc, watch};

use crate::base::limits::{
    LIGHT_LINE_BYTES, MAX_ERRANDS, MAX_LINE_BYTES, MAX_OWN_ANSWERS, PIPE_READ_BYTES,
};
use crate::base::secret::Secret;
use crate::budget::share::Budget;
use crate::session::instructions::errands::Errand;
use crate::session::observe::CodexVerdict;
use crate::session::own::OwnAnswer;
use crate::session::reading::CodexLine;
use crate::session::shared::SharedSession;
use crate::stdio::aside::read_aside;
use crate::stdio::pipe::Pipe;
use crate::stdio::writer::{CodexLines, Load};
use crate::wire::edit::{Edit, apply, pieces};
use crate::wire::lines::{LineFramer, Piece};
use crate::wire::redact::{Redactor, StreamRedactor};

/// Who has to do with requests of our own.
#[derive(Debug)]
pub struct Own {
    /// Whoever waits for their answers.
    pub answers: mpsc::Sender<OwnAnswer>,
    /// Whoever sends those that nobody waits for.
    pub errands: mpsc::Sender<Errand>,
    /// Told how often codex has answered for the opening of a thread.
    pub openings: watch::Sender<u64>,
}

/// What comes of that for whoever sends requests of our own.
#[derive(Debug)]
pub struct OwnEnd {
    /// Their answers.
    pub answers: mpsc::Receiver<OwnAnswer>,
    /// Those that nobody waits for.
    pub errands: mpsc::Receiver<Errand>,
    /// Changes when codex has answered for the opening of a thread.
    pub openings: watch::Receiver<u64>,
}

impl Own {
    /// Makes both ends.
    pub fn new() -> (Self, OwnEnd) {
        let (answer, answers) = mpsc::channel(MAX_OWN_ANSWERS);
        let (errand, errands) = mpsc::channel(MAX_ERRANDS);
        let (opening, openings) = watch::channel(0);
        let own = Self {
            answers: answer,
            errands: errand,
            openings: opening,
        };
        let end = OwnEnd {
            answers,
            errands,
            openings,
        };
        (own, end)
    }
}

/// The pump.
#[derive(Debug)]
pub struct Outbound {
    /// The session that learns.
    session: SharedSession,
    /// Takes our secret out of lines.
    redactor: Arc<Redactor>,
    /// Takes our secret out of lines that come in parts.
    long_redactor: StreamRedactor,
    client: CodexLines,
    own: Own,
    /// Short lines on their way to the client.
    batch: BytesMut,
    /// The memory for messages in flight.
    budget: Budget,
    /// What the long line that is being read takes.
    load: Option<Load>,
    /// Tells the private endpoint how often what runs had to end.
    closings: watch::Sender<u64>,
}

/// Why the pump ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboundEnd {
    /// There are no more lines, or nobody who reads them.
    Over,
    /// Codex is a version that the relay must not serve; the client knows.
    TooOld,
}

impl Outbound {
    /// Makes a pump to `client`: `session` learns from each line, requests of our own and their
    /// answers go to `own`, `secret` is taken out, and `closings` is told how often routes were closed.
    pub fn new(
        session: SharedSession,
        secret: &Secret,
        client: CodexLines,
        own: Own,
        budget: Budget,
        closings: watch::Sender<u64>,
    ) -> Self {
        Self {
            session,
            redactor: Arc::new(Redactor::new(secret)),
            long_redactor: StreamRedactor::new(secret),
            client,
            own,
            batch: BytesMut::new(),
            budget,
            load: None,
            closings,
        }
    }

    /// Passes lines on until `from` ends or the client reads no more.
    pub async fn pump<R: AsyncRead + Unpin>(mut self, mut from: Pipe<R>) -> OutboundEnd {
        let mut framer = LineFramer::new(MAX_LINE_BYTES + 1);
        while from.read_into(framer.buffer()).await {
            while let Some(piece) = framer.next_piece() {
                if let Err(end) = self.pass(piece).await {
                    return end;
                }
            }
            if let Err(end) = self.send_batch().await {
                return end;
            }
            self.make_room(framer.held()).await;
        }
        if let Some(last) = framer.finish() {
            if let Err(end) = self.pass(last).await {
                return end;
            }
            let rest = self.long_redactor.finish();
            let _ = self.send(rest).await;
            let _ = self.send_batch().await;
        }
        OutboundEnd::Over
    }

    async fn pass(&mut self, piece: Piece) -> Result<(), OutboundEnd> {
        match piece {
            Piece::Line(line) => self.pass_line(line).await,
            Piece::LongHead(head) => {
                // Its memory is counted until all of it has gone.
                let load = self.load.take();
                for part in head.chunks(PIPE_READ_BYTES) {
                    let part = self.long_redactor.push(part);
                    self.send(part).await?;
                }
                drop(load);
                Ok(())
            }
            Piece::LongRest(part) => {
                let is_last = part.ends_with(b"\n");
                let part = self.long_redactor.push(&part);
                self.send(part).await?;
                if is_last {
                    let rest = self.long_redactor.finish();
                    self.send(rest).await?;
                }
                Ok(())
            }
        }
    }

    async fn pass_line(&mut self, line: Bytes) -> Result<(), OutboundEnd> {
        let (held, redactor) = (line.clone(), Arc::clone(&self.redactor));
        let read = move || (CodexLine::read(&held), redactor.edits(&held));
        let Ok((read, edits)) = read_aside(line.len(), read).await else {
            return Err(OutboundEnd::Over);
        };
        match self.learn(&line, read) {
            CodexVerdict::Keep => Ok(()),
            CodexVerdict::Own(answer) => {
                // Full only of answers that nobody waits for any more.
                let _ = self.own.answers.try_send(answer);
                Ok(())
            }
            CodexVerdict::TooOld(answer) => {
                self.send(answer).await?;
                self.send_batch().await?;
                Err(OutboundEnd::TooOld)
            }
            CodexVerdict::Pass => self.send_edited(line, edits).await,
        }
    }

    fn learn(&self, line: &Bytes, read: Option<CodexLine>) -> CodexVerdict {
        let (verdict, counts, errands) = self.session.with(|session| {
            let verdict = session.on_codex(line, read);
            let errands = session.take_errands();
            let counts = (session.routes().closings(), session.openings());
            (verdict, counts, errands)
        });
        for errand in errands {
            // Waiting here could wait for itself: codex may not read before it is read.
            if let Err(error) = self.own.errands.try_send(errand) {
                let errand = error.into_inner();
                self.session.with(|session| session.errand_failed(&errand));
            }
        }
        tell(&self.closings, counts.0);
        tell(&self.own.openings, counts.1);
        verdict
    }

    /// Waits for the memory of a line that has grown to `bytes`; first until the client has the long
    /// line before it, which may be for ever.
    async fn make_room(&mut self, bytes: usize) {
        if bytes <= LIGHT_LINE_BYTES {
            return;
        }
        let mut load = match self.load.take() {
            Some(load) => load,
            None => self.client.load().await,
        };
        self.budget.line(&mut load.share, bytes).await;
        self.load = Some(load);
    }

    /// Sends a line with its edits: a long one in parts that share its memory.
    async fn send_edited(&mut self, line: Bytes, edits: Vec<Edit>) -> Result<(), OutboundEnd> {
        if line.len() <= LIGHT_LINE_BYTES {
            return self.send(apply(&line, edits)).await;
        }
        self.send_batch().await?;
        let mut load = self.load.take();
        if let Some(load) = &mut load {
            load.share.shrink_to(line.len());
        }
        let mut parts = pieces(&line, edits).into_iter().peekable();
        drop(line);
        while let Some(part) = parts.next() {
            // The memory is there until the last of them is gone.
            let load = load.take_if(|_| parts.peek().is_none());
            let pushed = self.client.send(part, load).await;
            pushed.map_err(|_| OutboundEnd::Over)?;
        }
        Ok(())
    }

    /// Sends a line to the client: a short one together with those that came in the same read.
    async fn send(&mut self, line: Bytes) -> Result<(), OutboundEnd> {
        if line.len() > PIPE_READ_BYTES / 4 {
            self.send_batch().await?;
            let mut load = self.load.take_if(|_| line.len() > LIGHT_LINE_BYTES);
            if let Some(load) = &mut load {
                load.share.shrink_to(line.len());
            }
            let pushed = self.client.send(line, load).await;
            return pushed.map_err(|_| OutboundEnd::Over);
        }
        self.batch.extend_from_slice(&line);
        if self.batch.len() >= PIPE_READ_BYTES {
            self.send_batch().await?;
        }
        Ok(())
    }

    async fn send_batch(&mut self) -> Result<(), OutboundEnd> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = self.batch.split().freeze();
        let pushed = self.client.send(batch, None).await;
        pushed.map_err(|_| OutboundEnd::Over)
    }
}

/// Tells a count where it is another than before.
fn tell(to: &watch::Sender<u64>, count: u64) {
    to.send_if_modified(|known| {
        let is_new = *known != count;
        *known = count;
        is_new
    });
}
