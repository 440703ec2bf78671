//! Codex's stderr, passed through without our secret.

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::stdio::pipe::Pipe;
use crate::wire::redact::StreamRedactor;

/// Passes `from` on to `to` until its end.
///
/// A reader of our stderr that went away doesn't stop codex: the rest is read and dropped.
pub async fn pass<R, W>(mut from: Pipe<R>, mut to: W, mut redactor: StreamRedactor)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = BytesMut::new();
    let mut is_read = true;
    while from.read_into(&mut buffer).await {
        let text = redactor.push(&buffer.split());
        is_read = is_read && to.write_all(&text).await.is_ok() && to.flush().await.is_ok();
    }
    if is_read {
        let _ = to.write_all(&redactor.finish()).await;
        let _ = to.flush().await;
    }
}
