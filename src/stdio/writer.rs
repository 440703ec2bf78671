//! The client's end: one task writes to our stdout, others send it whole lines.

use bytes::Bytes;
use tokio::io::{self, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::base::limits::MAX_QUEUED_LINES;

/// Where lines for the client go. Full, the sender waits: codex is slowed, nothing is lost.
pub type LineSender = mpsc::Sender<Bytes>;

/// Makes the queue of lines for the client.
pub fn queue() -> (LineSender, mpsc::Receiver<Bytes>) {
    mpsc::channel(MAX_QUEUED_LINES)
}

/// Writes lines until every sender is gone; an error means that the client reads no more.
pub async fn write_lines<W>(mut lines: mpsc::Receiver<Bytes>, mut to: W) -> io::Result<()>
where
    W: AsyncWrite + Unpin,
{
    while let Some(line) = lines.recv().await {
        to.write_all(&line).await?;
        if lines.is_empty() {
            to.flush().await?;
        }
    }
    to.flush().await
}
