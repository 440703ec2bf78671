//! Reads in portions: a buffer that grows with what comes would leave the processor's cache, and be
//! asked of the system anew each time.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, Take};

use crate::base::limits::CONNECTION_READ_BYTES;

/// A stream of which each read takes no more than [`CONNECTION_READ_BYTES`].
#[derive(Debug)]
pub struct Portions<T>(Take<T>);

impl<T: AsyncRead> Portions<T> {
    /// Reads `inner` in portions; what is written isn't cut.
    pub fn of(inner: T) -> Self {
        Self(inner.take(CONNECTION_READ_BYTES))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Portions<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The limit is one for all reads: each gets it in full.
        self.0.set_limit(CONNECTION_READ_BYTES);
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Portions<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.0.get_mut()).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.0.get_mut()).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.get_ref().is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.0.get_mut()).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.0.get_mut()).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn long_streams_come_whole_in_portions() {
        let sent = vec![7; 300_000];
        let mut portions = Portions::of(&sent[..]);
        let mut got = Vec::with_capacity(sent.len());
        let mut most = 0;
        loop {
            let count = portions.read_buf(&mut got).await.unwrap();
            most = most.max(count);
            if count == 0 {
                break;
            }
        }
        assert_eq!(got, sent);
        assert_eq!(u64::try_from(most).unwrap(), CONNECTION_READ_BYTES);
    }
}
