//! Our own standard streams, served as they become ready where they are pipes or sockets.
//!
//! The library has threads for them, since not every stream can be waited for: two wake-ups for each
//! read and write. The flags of a stream are never changed: whoever else holds it shares them. A pipe
//! is opened once more for us instead, and a socket is asked not to wait at each call.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv, send};
use nix::sys::stat::{SFlag, fstat};
#[cfg(target_os = "linux")]
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;

use crate::child::pipe::widen;

/// A stream to read.
pub type Input = Box<dyn AsyncRead + Send + Unpin>;

/// A stream to write.
pub type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// What the client sends. To be called within a runtime, as all of these.
pub fn input() -> Input {
    match kind(io::stdin()) {
        Kind::Pipe => match pipe::OpenOptions::new().open_receiver("/proc/self/fd/0") {
            Ok(pipe) => {
                widen(&pipe);
                Box::new(pipe)
            }
            Err(_) => Box::new(tokio::io::stdin()),
        },
        Kind::Socket(socket) => Box::new(socket),
        Kind::Other => Box::new(tokio::io::stdin()),
    }
}

/// Where the client reads.
pub fn output() -> Output {
    opened(io::stdout(), "/proc/self/fd/1").unwrap_or_else(|| Box::new(tokio::io::stdout()))
}

/// Waits until nobody can read what we write to the client, which a pipe or a socket tells though
/// nothing is written; for ever where the system doesn't.
pub async fn reader_is_gone() {
    #[cfg(target_os = "linux")]
    if let Some(watch) = watch(io::stdout()) {
        // Nothing is asked for but what is always told: that the other end is closed.
        let _ = watch.ready(Interest::WRITABLE).await;
        return;
    }
    std::future::pending::<()>().await;
}

/// Whether nobody can send us anything more, though not all that was sent may be read yet.
pub fn input_is_over() -> bool {
    let input = io::stdin();
    let is_file = fstat(input.as_fd()).is_ok_and(|found| {
        SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG
    });
    let mut asked = [PollFd::new(input.as_fd(), shut())];
    let is_told = poll(&mut asked, PollTimeout::ZERO).is_ok_and(|told| told > 0);
    let [asked] = asked;
    is_file || (is_told && asked.any() == Some(true))
}

/// What a stream tells whose other end sends no more; that it is closed is told unasked.
#[cfg(target_os = "linux")]
fn shut() -> PollFlags {
    PollFlags::from_bits_retain(nix::libc::POLLRDHUP)
}

/// Nothing: this system tells only that the other end is closed.
#[cfg(not(target_os = "linux"))]
fn shut() -> PollFlags {
    PollFlags::empty()
}

/// A descriptor of its own, so that nobody is woken for what concerns only the other.
#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "a descriptor that we own, and that is never given away"
)]
fn watch(stream: impl AsFd) -> Option<AsyncFd<OwnedFd>> {
    if matches!(kind(&stream), Kind::Other) {
        return None;
    }
    let own = stream.as_fd().try_clone_to_owned().ok()?;
    // SAFETY: an owned descriptor is open until it is dropped, and always has the same number.
    let registered = unsafe { AsyncFd::register_with_interest(own, Interest::PRIORITY) };
    registered.ok()
}

/// Where complaints go.
pub fn errors() -> Output {
    opened(io::stderr(), "/proc/self/fd/2").unwrap_or_else(|| Box::new(tokio::io::stderr()))
}

fn opened(stream: impl AsFd, path: &str) -> Option<Output> {
    match kind(stream) {
        // One whose reader is gone can't be opened: the library's own then says so at the first write.
        Kind::Pipe => match pipe::OpenOptions::new().open_sender(path) {
            Ok(pipe) => {
                widen(&pipe);
                Some(Box::new(pipe))
            }
            Err(_) => None,
        },
        Kind::Socket(socket) => Some(Box::new(socket)),
        Kind::Other => None,
    }
}

enum Kind {
    Pipe,
    Socket(Socket),
    /// A file, a terminal, or something that can't be had.
    Other,
}

fn kind(stream: impl AsFd) -> Kind {
    let mode = fstat(stream.as_fd()).map_or(SFlag::empty(), |found| {
        SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT
    });
    if mode == SFlag::S_IFIFO {
        return Kind::Pipe;
    }
    if mode != SFlag::S_IFSOCK {
        return Kind::Other;
    }
    let own = stream.as_fd().try_clone_to_owned().ok();
    own.and_then(Socket::of).map_or(Kind::Other, Kind::Socket)
}

/// A socket that is asked at each call not to wait.
struct Socket(AsyncFd<OwnedFd>);

impl Socket {
    #[expect(
        unsafe_code,
        reason = "a descriptor that we own, and that is never given away"
    )]
    fn of(own: OwnedFd) -> Option<Self> {
        // SAFETY: an owned descriptor is open until it is dropped, and always has the same number.
        let registered = unsafe { AsyncFd::register(own) };
        registered.ok().map(Self)
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            let free = buffer.initialize_unfilled();
            let tried =
                ready.try_io(|socket| Ok(recv(socket.as_raw_fd(), free, MsgFlags::MSG_DONTWAIT)?));
            if let Ok(read) = tried {
                buffer.advance(read?);
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(cx))?;
            let tried =
                ready.try_io(|socket| Ok(send(socket.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT)?));
            if let Ok(written) = tried {
                return Poll::Ready(written);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn socket_is_waited_for_and_its_flags_stay() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (Kind::Socket(mut near), Kind::Socket(mut far)) = (kind(&ours), kind(&theirs)) else {
            panic!("both are sockets");
        };
        // More than fits: neither side may block the one thread that both share.
        let sent = vec![7; 1 << 20];
        let mut got = vec![0; sent.len()];
        let (written, read) = tokio::join!(near.write_all(&sent), far.read_exact(&mut got));
        written.unwrap();
        read.unwrap();
        assert_eq!(got, sent);
        let flags = fcntl(&ours, FcntlArg::F_GETFL).unwrap();
        assert!(!OFlag::from_bits_truncate(flags).contains(OFlag::O_NONBLOCK));
        drop((ours, near));
        assert_eq!(far.read(&mut got).await.unwrap(), 0);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn reader_that_goes_is_noticed_and_one_that_is_only_silent_is_not() {
        let (pipe_read, pipe_write) = io::pipe().unwrap();
        let (socket_read, socket_write) = UnixStream::pair().unwrap();
        let pipe = watch(&pipe_write).unwrap();
        let socket = watch(&socket_write).unwrap();
        // Its client says no more, and still reads.
        socket_read.shutdown(std::net::Shutdown::Write).unwrap();
        for watch in [&pipe, &socket] {
            let moment = std::time::Duration::from_millis(50);
            let gone = tokio::time::timeout(moment, watch.ready(Interest::WRITABLE)).await;
            assert!(gone.is_err());
        }
        drop((pipe_read, socket_read));
        for watch in [&pipe, &socket] {
            let ready = watch.ready(Interest::WRITABLE).await.unwrap();
            assert!(ready.ready().is_write_closed());
        }
    }

    #[test]
    fn file_is_left_to_the_library() {
        assert!(matches!(kind(tempfile::tempfile().unwrap()), Kind::Other));
    }
}
