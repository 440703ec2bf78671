//! One connection to an upstream, whatever it goes through.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::upstream::portion::Portions;

/// A byte stream both ways.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// A connection that is ready for HTTP.
pub struct Stream {
    inner: Portions<Box<dyn Duplex>>,
    is_h2: bool,
    kill: Kill,
}

/// Cuts a connection from outside of the task that owns it.
///
/// The pool has no way to take back a request whose answer nobody waits for any more: its body would
/// still go up, and be paid for.
#[derive(Clone, Debug, Default)]
pub struct Kill(Arc<Killed>);

#[derive(Debug, Default)]
struct Killed {
    is_now: AtomicBool,
    reader: AtomicWaker,
    writer: AtomicWaker,
}

impl Kill {
    /// Cuts the connection: every read and write fails from now on.
    pub fn now(&self) {
        self.0.is_now.store(true, Ordering::Release);
        self.0.reader.wake();
        self.0.writer.wake();
    }

    fn check(&self, waker: &AtomicWaker, cx: &Context<'_>) -> io::Result<()> {
        waker.register(cx.waker());
        if self.0.is_now.load(Ordering::Acquire) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }
}

impl Stream {
    /// Takes a connection; `is_h2` says that both sides agreed on HTTP/2.
    pub fn new(inner: impl Duplex + 'static, is_h2: bool) -> Self {
        Self {
            inner: Portions::of(Box::new(inner)),
            is_h2,
            kill: Kill::default(),
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("is_h2", &self.is_h2)
            .finish_non_exhaustive()
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        let connected = Connected::new().extra(self.kill.clone());
        if self.is_h2 {
            connected.negotiated_h2()
        } else {
            connected
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.kill.check(&self.kill.0.reader, cx)?;
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.kill.check(&self.kill.0.writer, cx)?;
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.kill.check(&self.kill.0.writer, cx)?;
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.kill.check(&self.kill.0.writer, cx)?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
