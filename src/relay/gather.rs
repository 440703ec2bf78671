//! What of an answer is here already goes to codex in one piece.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::base::limits::GATHERED_BYTES;
use crate::upstream::client::OutBody;

/// The body of an answer; its beginning has come.
struct Gathered {
    come: VecDeque<Result<Frame<Bytes>, hyper::Error>>,
    /// Those of them that are data, in bytes.
    bytes: u64,
    rest: Option<Incoming>,
    /// Told next.
    failed: Option<hyper::Error>,
    /// Its length was told.
    is_exact: bool,
}

/// Takes what has come of `body`. Nothing is waited for: others have their turn once, the task that
/// reads from the upstream among them.
///
/// A short answer then needs one write and one packet, its end included.
pub(super) async fn gathered(mut body: Incoming) -> OutBody {
    if body.is_end_stream() {
        return body.map_err(Into::into).boxed_unsync();
    }
    let mut gathered = Gathered {
        come: VecDeque::new(),
        bytes: 0,
        is_exact: body.size_hint().exact().is_some(),
        rest: None,
        failed: None,
    };
    let mut has_waited = false;
    while gathered.bytes < GATHERED_BYTES {
        let Some(frame) = body.frame().now_or_never() else {
            if has_waited {
                break;
            }
            has_waited = true;
            others_first().await;
            continue;
        };
        let Some(frame) = frame else {
            return gathered.map_err(Into::into).boxed_unsync();
        };
        has_waited = false;
        let is_failed = frame.is_err();
        gathered.bytes += length_of(&frame);
        gathered.come.push_back(frame);
        if is_failed {
            break;
        }
    }
    gathered.rest = Some(body);
    gathered.map_err(Into::into).boxed_unsync()
}

/// Has the tasks that are ready run once. The runtime's own yielding would also ask the system for news,
/// which costs more than all of this.
async fn others_first() {
    let mut had_their_turn = false;
    poll_fn(|context| {
        if std::mem::replace(&mut had_their_turn, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn length_of(frame: &Result<Frame<Bytes>, hyper::Error>) -> u64 {
    let data = frame.as_ref().ok().and_then(Frame::data_ref);
    let length = data.map_or(0, Bytes::len);
    u64::try_from(length).unwrap_or(u64::MAX)
}

impl Body for Gathered {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let come = self.come.pop_front();
        self.bytes -= come.as_ref().map_or(0, length_of);
        let frame = match (come, &mut self.rest) {
            (Some(frame), _) => Some(frame),
            (None, Some(rest)) => ready!(Pin::new(rest).poll_frame(context)),
            (None, None) => None,
        };
        match frame {
            Some(Err(error)) => {
                // The connection to codex is cut then. What has been passed on so far, the head for
                // one, is sent when there is nothing more for now.
                self.failed = Some(error);
                context.waker().wake_by_ref();
                Poll::Pending
            }
            frame => Poll::Ready(frame),
        }
    }

    fn is_end_stream(&self) -> bool {
        // An empty body in chunks still has its last chunk.
        self.is_exact
            && self.failed.is_none()
            && self.come.is_empty()
            && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        if !self.is_exact {
            return SizeHint::default();
        }
        let rest = self.rest.as_ref().and_then(|rest| rest.size_hint().exact());
        SizeHint::with_exact(self.bytes + rest.unwrap_or(0))
    }
}
