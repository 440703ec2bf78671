//! Request bodies: read within a bound, or counted while they pass.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::base::limits::{CONNECT_DEADLINE, DRAIN_DEADLINE, MAX_BODY_BYTES};
use crate::budget::share::{Budget, Share};
use crate::relay::upload::Upload;

/// Why a body wasn't read.
#[derive(Debug)]
pub enum ReadError {
    /// The peer went away, or broke the framing.
    Broken(hyper::Error),
    /// There is no room for it; all of it was thrown away.
    Busy,
    /// It is over the bound; all of it was thrown away.
    TooLarge {
        /// Its size, as far as it came.
        bytes: u64,
    },
}

/// What has come of a body.
#[derive(Debug, Default)]
pub struct Begun {
    /// Its parts.
    pub parts: Vec<Bytes>,
    /// The fields behind it.
    pub trailers: Option<HeaderMap>,
}

/// A body that is ready to be sent.
#[derive(Debug)]
pub struct Ready {
    /// Its bytes, in order.
    pub pieces: Vec<Bytes>,
    /// The fields behind it, if there are any.
    pub trailers: Option<HeaderMap>,
    /// What it takes of the budget.
    pub shares: Vec<Share>,
}

/// A body that was read.
#[derive(Debug)]
pub struct Whole {
    /// Its bytes.
    pub bytes: Bytes,
    /// The fields behind it, if there are any.
    pub trailers: Option<HeaderMap>,
    /// What it takes of the budget.
    pub share: Share,
}

/// Reads a body of at most [`MAX_BODY_BYTES`], once there is room for it; `begun` is what has
/// come of it.
///
/// One that is longer is read to its end and thrown away: codex listens only then.
pub async fn read(begun: Begun, mut body: Incoming, budget: &Budget) -> Result<Whole, ReadError> {
    let so_far: u64 = begun.parts.iter().map(length).sum();
    let announced = body.size_hint().exact().map(|rest| rest + so_far);
    if let Some(bytes) = announced.filter(|bytes| is_over(*bytes)) {
        drain(&mut body).await;
        return Err(ReadError::TooLarge { bytes });
    }
    let expected = announced.and_then(|bytes| usize::try_from(bytes).ok());
    let Ok(mut share) = budget.message(expected).await else {
        drain(&mut body).await;
        return Err(ReadError::Busy);
    };
    let mut whole = BytesMut::new();
    for part in begun.parts {
        whole.reserve(expected.unwrap_or(0).saturating_sub(whole.len()));
        whole.extend_from_slice(&part);
    }
    let mut trailers = begun.trailers;
    while let Some(frame) = body.frame().await {
        let data = match frame.map_err(ReadError::Broken)?.into_data() {
            Ok(data) => data,
            Err(other) => {
                trailers = other.into_trailers().ok();
                continue;
            }
        };
        if whole.len() + data.len() > MAX_BODY_BYTES {
            let so_far = length(&whole) + length(&data);
            drop(whole);
            let bytes = so_far + drain(&mut body).await;
            return Err(ReadError::TooLarge { bytes });
        }
        if whole.is_empty() {
            if expected == Some(data.len()) {
                // All in one part, as short ones come: nothing is put together.
                return Ok(Whole {
                    bytes: data,
                    trailers,
                    share,
                });
            }
            whole.reserve(expected.unwrap_or(0));
        }
        whole.extend_from_slice(&data);
    }
    share.shrink_to(whole.len());
    Ok(Whole {
        bytes: whole.freeze(),
        trailers,
        share,
    })
}

/// Reads what a short body says: at most `max` bytes, none of one that is longer or doesn't come.
pub async fn peek(mut body: Incoming, max: usize) -> Bytes {
    let mut whole = BytesMut::new();
    let reading = timeout(CONNECT_DEADLINE, async {
        while let Some(Ok(frame)) = body.frame().await {
            if let Ok(data) = frame.into_data() {
                if whole.len() + data.len() > max {
                    return false;
                }
                whole.extend_from_slice(&data);
            }
        }
        true
    });
    if reading.await.unwrap_or(false) {
        return whole.freeze();
    }
    Bytes::new()
}

/// Throws the rest of a body away and says how much it was.
pub async fn drain(body: &mut (impl Body<Data = Bytes> + Unpin)) -> u64 {
    let mut bytes = 0;
    // A sender that stops sending is given up after a while: it hears from us all the same.
    let _ = timeout(DRAIN_DEADLINE, async {
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, length);
        }
    })
    .await;
    bytes
}

fn is_over(bytes: u64) -> bool {
    usize::try_from(bytes).map_or(true, |bytes| bytes > MAX_BODY_BYTES)
}

fn length(data: &(impl AsRef<[u8]> + ?Sized)) -> u64 {
    u64::try_from(data.as_ref().len()).unwrap_or(u64::MAX)
}

/// A body that passes while its bytes are counted.
///
/// Over the bound it fails, which aborts the request to the upstream, and gives the rest of the
/// body to whoever answers codex.
#[derive(Debug)]
pub struct Counted {
    inner: Option<Upload>,
    seen: u64,
    over: Option<oneshot::Sender<(u64, Upload)>>,
}

/// The bound was passed in the middle of a body.
#[derive(Debug, thiserror::Error)]
#[error("request body is over {MAX_BODY_BYTES} bytes")]
pub struct OverTheBound;

impl Counted {
    /// Counts `body`; the receiver gets what is left of one that is too large.
    pub(super) fn new(body: Upload) -> (Self, oneshot::Receiver<(u64, Upload)>) {
        let (over, rest) = oneshot::channel();
        let counted = Self {
            inner: Some(body),
            seen: 0,
            over: Some(over),
        };
        (counted, rest)
    }
}

impl Body for Counted {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(inner) = self.inner.as_mut() else {
            return Poll::Ready(None);
        };
        let Some(frame) = ready!(Pin::new(inner).poll_frame(context)) else {
            return Poll::Ready(None);
        };
        let frame = frame?;
        self.seen += frame.data_ref().map_or(0, length);
        if is_over(self.seen) {
            if let (Some(over), Some(rest)) = (self.over.take(), self.inner.take()) {
                let _ = over.send((self.seen, rest));
            }
            return Poll::Ready(Some(Err(OverTheBound.into())));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

/// A body whose pieces are all there.
#[derive(Debug)]
pub struct Pieces {
    left: VecDeque<Bytes>,
    trailers: Option<HeaderMap>,
    /// Given back when the last piece has gone, or the request has failed.
    _share: Arc<[Share]>,
}

impl Pieces {
    /// Sends `pieces` one after the other, and `trailers` behind them; `share` is what they take of
    /// the budget.
    pub fn new(mut pieces: Vec<Bytes>, trailers: Option<HeaderMap>, share: Arc<[Share]>) -> Self {
        pieces.retain(|piece| !piece.is_empty());
        Self {
            left: pieces.into(),
            trailers,
            _share: share,
        }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        // In parts: a connection takes the next one when it has room, and until then the share
        // stands for what is still here.
        let Some(first) = self.left.front_mut() else {
            let trailers = self.trailers.take();
            return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
        };
        let part = first.split_to(first.len().min(PART_BYTES));
        if first.is_empty() {
            self.left.pop_front();
        }
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.trailers.is_some() {
            // Only chunks can have fields behind them.
            return SizeHint::default();
        }
        SizeHint::with_exact(self.left.iter().map(length).sum())
    }
}

/// The body of a response that has none but says how long it would be: 304 and the like.
#[derive(Debug)]
pub struct Claimed(pub u64);

impl Body for Claimed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0)
    }
}

/// What a connection is given at a time.
const PART_BYTES: usize = 128 * 1024;
