//! An upstream that takes no more is still heard to its end.

use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A connection whose peer may answer before it has the whole request, and then reset it.
///
/// What it said is here by then, and Linux keeps it; but who gives up at the first write that fails
/// never reads it. So what can't be written any more counts as written, and the end of the connection
/// is told by reading: as a reset where it was one, also if all of the answer has come.
#[derive(Debug)]
pub struct Hearing {
    tcp: TcpStream,
    peer: Peer,
}

/// What is known of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Takes,
    /// It had ended its own side in order before it was written to in vain.
    Ended,
    Reset,
}

impl Hearing {
    /// Hears what comes over `tcp`.
    pub fn new(tcp: TcpStream) -> Self {
        let peer = Peer::Takes;
        Self { tcp, peer }
    }

    /// What becomes of a write of `count` bytes that ended as `written`.
    fn judge(
        &mut self,
        written: io::Result<usize>,
        count: usize,
        cx: &Context<'_>,
    ) -> io::Result<usize> {
        let error = match written {
            Ok(count) => return Ok(count),
            Err(error) => error,
        };
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "the kinds are endless; the others are faults of this side, or of the net"
        )]
        let peer = match error.kind() {
            // The system says so behind the end of what came (tcp_reset in CLOSE_WAIT).
            io::ErrorKind::BrokenPipe => Peer::Ended,
            io::ErrorKind::ConnectionReset => Peer::Reset,
            _ => return Err(error),
        };
        self.peer = peer;
        // Who waits for bytes to come must look: the runtime may not know yet that there are some.
        cx.waker().wake_by_ref();
        Ok(count)
    }

    /// Reads without asking the runtime, which may not know yet: nothing more comes, so that nobody
    /// has to wait.
    fn read_rest(&self, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
        let room = buffer.initialize_unfilled();
        let is_open = !room.is_empty();
        let read = recv(self.tcp.as_raw_fd(), room, MsgFlags::MSG_DONTWAIT);
        match read {
            Ok(0) if is_open && self.peer == Peer::Reset => {
                Err(io::ErrorKind::ConnectionReset.into())
            }
            Ok(count) => {
                buffer.advance(count);
                Ok(())
            }
            // It would have to wait for bytes that can't come.
            Err(Errno::EAGAIN) => Err(io::ErrorKind::ConnectionReset.into()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsyncRead for Hearing {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.peer == Peer::Takes {
            return Pin::new(&mut self.tcp).poll_read(cx, buffer);
        }
        Poll::Ready(self.read_rest(buffer))
    }
}

impl AsyncWrite for Hearing {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.peer != Peer::Takes {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut self.tcp).poll_write(cx, bytes);
        written.map(|written| self.judge(written, bytes.len(), cx))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let count = slices.iter().map(|slice| slice.len()).sum();
        if self.peer != Peer::Takes {
            return Poll::Ready(Ok(count));
        }
        let written = Pin::new(&mut self.tcp).poll_write_vectored(cx, slices);
        written.map(|written| self.judge(written, count, cx))
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.peer != Peer::Takes {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (Hearing, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let near = TcpStream::connect(address).await.unwrap();
        (Hearing::new(near), listener.accept().await.unwrap().0)
    }

    /// Writes until the peer takes no more, and then some.
    async fn write_in_vain(near: &mut Hearing) {
        while near.peer == Peer::Takes {
            near.write_all(&[0; 1000]).await.unwrap();
        }
        near.write_all(&vec![0; 10_000_000]).await.unwrap();
        let slices = [IoSlice::new(b"a"), IoSlice::new(b"bc")];
        assert_eq!(near.write_vectored(&slices).await.unwrap(), 3);
        near.flush().await.unwrap();
    }

    async fn read_all(near: &mut Hearing) -> (Vec<u8>, io::Result<()>) {
        let mut bytes = Vec::new();
        loop {
            match near.read_buf(&mut bytes).await {
                Ok(0) => return (bytes, Ok(())),
                Ok(_) => {}
                Err(error) => return (bytes, Err(error)),
            }
        }
    }

    #[tokio::test]
    async fn answer_before_a_reset_is_read_and_the_reset_is_told() {
        let (mut near, mut peer) = pair().await;
        near.write_all(b"unread").await.unwrap();
        peer.readable().await.unwrap();
        peer.write_all(b"answer").await.unwrap();
        // With unread bytes in it, a dropped socket is reset.
        drop(peer);
        write_in_vain(&mut near).await;
        let (answer, end) = read_all(&mut near).await;
        assert_eq!(answer, b"answer");
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        near.shutdown().await.unwrap();
    }

    #[tokio::test]
    async fn end_in_order_stays_one() {
        let (mut near, mut peer) = pair().await;
        peer.write_all(b"answer").await.unwrap();
        peer.shutdown().await.unwrap();
        // The end is here before the reset.
        let mut first = [0];
        near.read_exact(&mut first).await.unwrap();
        drop(peer);
        write_in_vain(&mut near).await;
        let (rest, end) = read_all(&mut near).await;
        assert_eq!(rest, b"nswer");
        end.unwrap();
    }
}
