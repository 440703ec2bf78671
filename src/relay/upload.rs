//! The body of a request on its way up, and what is left of it where the upstream takes no more.

use std::convert::Infallible;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::EXPECT;
use http::request::Parts;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::mpsc;

use crate::relay::body::drain;

/// Where a connection of codex takes what is left of its bodies; among the extensions of its requests.
#[derive(Clone, Debug)]
pub(super) struct Leave {
    rest: mpsc::Sender<Incoming>,
    is_broken: Arc<AtomicBool>,
}

/// What is left of the bodies of one connection.
#[derive(Debug)]
pub(super) struct Leftovers(mpsc::Receiver<Incoming>);

/// Makes both ends for one connection.
pub(super) fn leftovers() -> (Leave, Leftovers) {
    // A connection has one request at a time.
    let (rest, left) = mpsc::channel(1);
    let is_broken = Arc::default();
    (Leave { rest, is_broken }, Leftovers(left))
}

impl Leave {
    /// Whether a body didn't come whole: codex went away, or its framing is wrong.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }
}

impl Leftovers {
    /// Throws away what is left of one body after the other, as long as its connection lasts.
    pub(super) async fn drain(mut self) -> Infallible {
        while let Some(mut rest) = self.0.recv().await {
            drain(&mut rest).await;
        }
        pending().await
    }
}

/// A body that passes by.
///
/// An upstream may answer before it has read all, and hang up. Codex listens only once it has sent
/// everything, and would lose the answer if its own connection were reset: the rest is read all the
/// same, and thrown away.
#[derive(Debug)]
pub(super) struct Upload {
    inner: Option<Incoming>,
    /// Whether codex sends before it is told to.
    is_flowing: bool,
    leave: Option<Leave>,
}

impl Upload {
    /// Passes `body` of the request with these `parts`.
    pub(super) fn new(body: Incoming, parts: &Parts) -> Self {
        Self {
            inner: Some(body),
            is_flowing: !parts.headers.contains_key(EXPECT),
            leave: parts.extensions.get().cloned(),
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(inner) = self.inner.as_mut() else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(inner).poll_frame(context);
        self.is_flowing = true;
        let frame = ready!(polled);
        if !matches!(frame, Some(Ok(_))) {
            self.inner = None;
        }
        if let (Some(Err(_)), Some(leave)) = (&frame, &self.leave) {
            leave.is_broken.store(true, Ordering::Release);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let exact = || SizeHint::with_exact(0);
        self.inner.as_ref().map_or_else(exact, Body::size_hint)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let rest = self.inner.take().filter(|rest| !rest.is_end_stream());
        if let (Some(rest), Some(leave), true) = (rest, &self.leave, self.is_flowing) {
            // It can't be taken only where the connection is gone.
            let _ = leave.rest.try_send(rest);
        }
    }
}
