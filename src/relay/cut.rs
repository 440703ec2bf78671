//! A response that ends at the upstream when its turn is interrupted.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::{Sleep, sleep};

use crate::base::limits::CLOSE_GRACE;
use crate::upstream::calls::Call;
use crate::upstream::client::OutBody;

/// The body of a response on its way to codex.
///
/// Codex hears nothing of the cut, which would make it ask again: it hangs up by itself as soon as it
/// has read the interrupt. If it doesn't, the body fails after [`CLOSE_GRACE`].
struct Cuttable {
    inner: Option<OutBody>,
    cut: Pin<Box<dyn Future<Output = ()> + Send>>,
    grace: Option<Pin<Box<Sleep>>>,
}

/// The turn was interrupted, and codex waits for its answer all the same.
#[derive(Debug, thiserror::Error)]
#[error("the turn was interrupted")]
struct Interrupted;

/// Has `response` end when `call` is cut, and `call` end with it.
pub(super) fn cuttable(response: Response<OutBody>, call: Call) -> Response<OutBody> {
    response.map(|inner| {
        let body = Cuttable {
            inner: Some(inner),
            cut: Box::pin(async move { call.is_cut().await }),
            grace: None,
        };
        body.boxed_unsync()
    })
}

impl fmt::Debug for Cuttable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuttable")
            .field("is_cut", &self.grace.is_some())
            .finish_non_exhaustive()
    }
}

impl Body for Cuttable {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.grace.is_none() && self.cut.as_mut().poll(context).is_ready() {
            self.inner = None;
            self.grace = Some(Box::pin(sleep(CLOSE_GRACE)));
        }
        if let Some(grace) = &mut self.grace {
            ready!(grace.as_mut().poll(context));
            return Poll::Ready(Some(Err(Interrupted.into())));
        }
        match &mut self.inner {
            Some(inner) => Pin::new(inner).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}
