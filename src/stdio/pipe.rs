//! Reading a pipe of codex to its end, also when somebody else holds it open.

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::base::limits::{PIPE_READ_BYTES, PIPE_SILENCE};

/// One pipe of codex.
#[derive(Debug)]
pub struct Pipe<R> {
    reader: R,
    /// Turns true when codex has ended.
    codex_gone: watch::Receiver<bool>,
}

impl<R: AsyncRead + Unpin> Pipe<R> {
    /// Reads `reader` until its end, or until it is silent after codex has ended.
    pub fn new(reader: R, codex_gone: watch::Receiver<bool>) -> Self {
        Self { reader, codex_gone }
    }

    /// Appends what comes next to `buffer`; false at the end.
    ///
    /// What codex wrote before it ended is in the pipe then: silence means that nothing of it is
    /// left, though a tool that inherited the pipe may keep it open.
    pub async fn read_into(&mut self, buffer: &mut BytesMut) -> bool {
        buffer.reserve(PIPE_READ_BYTES);
        if !*self.codex_gone.borrow() {
            tokio::select! {
                biased;
                read = self.reader.read_buf(buffer) => return read.is_ok_and(|count| count > 0),
                _ = self.codex_gone.wait_for(|gone| *gone) => {}
            }
        }
        let read = timeout(PIPE_SILENCE, self.reader.read_buf(buffer)).await;
        matches!(read, Ok(Ok(count)) if count > 0)
    }
}
