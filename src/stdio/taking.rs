//! Whether the reader of a stream takes what is written to it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::base::limits::UNREAD_GRACE;

/// A stream that notes whether a write has to wait.
#[derive(Debug)]
pub struct Noted<W> {
    to: W,
    waits: watch::Sender<bool>,
}

/// Says whether a write has to wait.
#[derive(Debug)]
pub struct Taking {
    waits: watch::Receiver<bool>,
}

/// Notes of each write to `to` whether it has to wait.
pub fn noted<W>(to: W) -> (Noted<W>, Taking) {
    let (waits, waiting) = watch::channel(false);
    (Noted { to, waits }, Taking { waits: waiting })
}

/// Says now and then whether the reader is behind.
#[derive(Debug)]
pub struct Behind(watch::Receiver<bool>);

impl Behind {
    /// Whether the reader leaves something, or has done so since this was asked last. One that is given
    /// up isn't behind.
    pub fn is_so(&mut self) -> bool {
        let Ok(has_changed) = self.0.has_changed() else {
            return false;
        };
        *self.0.borrow_and_update() || has_changed
    }
}

impl Taking {
    /// Says the same to somebody else.
    pub fn behind(&self) -> Behind {
        Behind(self.waits.clone())
    }

    /// Waits until nothing was taken for [`UNREAD_GRACE`], though there is something, and the client
    /// `is_gone` for all that it sends.
    pub async fn has_stopped(mut self, is_gone: impl Fn() -> bool) {
        loop {
            if self.waits.wait_for(|waits| *waits).await.is_err() {
                // Nothing more is written.
                return std::future::pending().await;
            }
            let has_taken = timeout(UNREAD_GRACE, self.waits.changed()).await;
            if has_taken.is_err() && is_gone() {
                return;
            }
        }
    }
}

impl<W> Noted<W> {
    fn note<T>(&self, polled: Poll<T>) -> Poll<T> {
        let waits = polled.is_pending();
        self.waits
            .send_if_modified(|known| std::mem::replace(known, waits) != waits);
        polled
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Noted<W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.to).poll_write(cx, bytes);
        self.note(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.to).poll_flush(cx);
        self.note(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.to).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::sleep;

    use super::*;

    const MOMENT: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn reader_that_takes_a_little_now_and_then_has_not_stopped() {
        let (near, mut far) = duplex(4);
        let (mut near, taking) = noted(near);
        let reading = async {
            for _ in 0..10 {
                sleep(UNREAD_GRACE.checked_sub(MOMENT).unwrap()).await;
                far.read_exact(&mut [0; 4]).await.unwrap();
            }
            // Now there is nothing to take.
            sleep(UNREAD_GRACE * 3).await;
        };
        let all = async { tokio::join!(near.write_all(&[7; 40]), reading) };
        tokio::select! {
            () = taking.has_stopped(|| true) => panic!("it reads"),
            (written, ()) = all => written.unwrap(),
        }
    }

    #[tokio::test]
    async fn reader_is_behind_while_it_leaves_something_and_just_after() {
        let (near, mut far) = duplex(4);
        let (mut near, taking) = noted(near);
        let mut behind = taking.behind();
        assert!(!behind.is_so());
        near.write_all(&[7; 4]).await.unwrap();
        assert!(!behind.is_so());
        {
            let writing = near.write_all(&[7; 4]);
            tokio::pin!(writing);
            assert!(writing.as_mut().now_or_never().is_none());
            assert!(behind.is_so() && behind.is_so());
            far.read_exact(&mut [0; 4]).await.unwrap();
            writing.await.unwrap();
        }
        assert!(behind.is_so());
        assert!(!behind.is_so());
        drop(near);
        assert!(!behind.is_so());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_given_up_while_the_client_may_send() {
        for is_gone in [false, true] {
            let (near, _far) = duplex(4);
            let (mut near, taking) = noted(near);
            let has_stopped = tokio::select! {
                () = taking.has_stopped(|| is_gone) => true,
                _ = timeout(UNREAD_GRACE * 10, near.write_all(&[7; 40])) => false,
            };
            assert_eq!(has_stopped, is_gone);
        }
    }
}
