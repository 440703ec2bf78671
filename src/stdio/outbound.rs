//! Codex's stdout to the client.

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncRead;
use tokio::sync::{mpsc, watch};

use crate::base::limits::{MAX_LINE_BYTES, PIPE_READ_BYTES};
use crate::session::observe::CodexVerdict;
use crate::session::own::OwnAnswer;
use crate::session::shared::SharedSession;
use crate::stdio::pipe::Pipe;
use crate::stdio::writer::LineSender;
use crate::wire::edit::apply;
use crate::wire::lines::{LineFramer, Piece};
use crate::wire::redact::{Redactor, StreamRedactor};

/// What the pump needs.
#[derive(Debug)]
pub struct Outbound {
    /// The session that learns.
    pub session: SharedSession,
    /// Takes our secret out of lines.
    pub redactor: Redactor,
    /// Takes our secret out of lines that come in parts.
    pub long_redactor: StreamRedactor,
    /// The client.
    pub client: LineSender,
    /// Whoever waits for answers to requests of our own.
    pub answers: mpsc::Sender<OwnAnswer>,
    /// Short lines on their way to the client; empty at first.
    pub batch: BytesMut,
    /// Tells the private endpoint how often what runs had to end.
    pub closings: watch::Sender<u64>,
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
            Piece::Line(line) => match self.learn(&line) {
                CodexVerdict::Keep => Ok(()),
                CodexVerdict::Own(answer) => {
                    // Full only of answers that nobody waits for any more.
                    let _ = self.answers.try_send(answer);
                    Ok(())
                }
                CodexVerdict::TooOld(answer) => {
                    self.send(answer).await?;
                    self.send_batch().await?;
                    Err(OutboundEnd::TooOld)
                }
                CodexVerdict::Pass => {
                    let edits = self.redactor.edits(&line);
                    self.send(apply(&line, edits)).await
                }
            },
            Piece::LongHead(part) => {
                let part = self.long_redactor.push(&part);
                self.send(part).await
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

    fn learn(&self, line: &Bytes) -> CodexVerdict {
        let (verdict, closings) = self.session.with(|session| {
            let verdict = session.on_codex_line(line);
            (verdict, session.routes().closings())
        });
        self.closings.send_if_modified(|known| {
            let is_new = *known != closings;
            *known = closings;
            is_new
        });
        verdict
    }

    /// Sends a line to the client: a short one together with those that came in the same read.
    async fn send(&mut self, line: Bytes) -> Result<(), OutboundEnd> {
        if line.len() > PIPE_READ_BYTES / 4 {
            self.send_batch().await?;
            return self.client.send(line).await.map_err(|_| OutboundEnd::Over);
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
        self.client.send(batch).await.map_err(|_| OutboundEnd::Over)
    }
}
