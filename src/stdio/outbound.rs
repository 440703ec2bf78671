//! Codex's stdout to the client.

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncRead;
use tokio::sync::mpsc;

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
}

impl Outbound {
    /// Passes lines on until `from` ends or the client reads no more.
    pub async fn pump<R: AsyncRead + Unpin>(mut self, mut from: Pipe<R>) {
        let mut framer = LineFramer::new(MAX_LINE_BYTES);
        while from.read_into(framer.buffer()).await {
            while let Some(piece) = framer.next_piece() {
                if self.pass(piece).await.is_none() {
                    return;
                }
            }
            if self.send_batch().await.is_none() {
                return;
            }
        }
        if let Some(last) = framer.finish()
            && self.pass(last).await.is_some()
        {
            let rest = self.long_redactor.finish();
            let _ = self.send(rest).await;
            let _ = self.send_batch().await;
        }
    }

    async fn pass(&mut self, piece: Piece) -> Option<()> {
        match piece {
            Piece::Line(line) => match self.session.with(|session| session.on_codex_line(&line)) {
                CodexVerdict::Keep => Some(()),
                CodexVerdict::Own(answer) => {
                    // Full only of answers that nobody waits for any more.
                    let _ = self.answers.try_send(answer);
                    Some(())
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
                Some(())
            }
        }
    }

    /// Sends a line to the client: a short one together with those that came in the same read.
    async fn send(&mut self, line: Bytes) -> Option<()> {
        if line.len() > PIPE_READ_BYTES / 4 {
            self.send_batch().await?;
            return self.client.send(line).await.ok();
        }
        self.batch.extend_from_slice(&line);
        if self.batch.len() >= PIPE_READ_BYTES {
            self.send_batch().await?;
        }
        Some(())
    }

    async fn send_batch(&mut self) -> Option<()> {
        if self.batch.is_empty() {
            return Some(());
        }
        let batch = self.batch.split().freeze();
        self.client.send(batch).await.ok()
    }
}
