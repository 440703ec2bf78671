//! A large plain body that gets its context on its way: never held, read and sent at once.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderValue};
use http::{HeaderMap, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::oneshot;

use crate::base::limits::{
    CONFIRMED_METADATA_BYTES, HELD_BODY_BYTES, MAX_BODY_BYTES, PASSING_FROM_BYTES,
};
use crate::base::reason::Reason;
use crate::budget::share::Share;
use crate::exchange::classify::Identity;
use crate::exchange::passing::{Passing, Stop};
use crate::exchange::plan::OnUnrecognized;
use crate::exchange::refusal::{Measured, Refusal};
use crate::relay::body::{Begun, drain};
use crate::relay::onward::{Onward, Outgoing};
use crate::relay::reply::back;
use crate::relay::shared::Relay;
use crate::relay::upload::Upload;
use crate::session::parent::decide::Decision;
use crate::upstream::client::{OutBody, Usage};
use crate::wire::headers::TURN_METADATA;

/// Begins with a body that can be edited in passing: plain, large, of a known length, and with headers
/// that say all that decides; gives the size of its text as well. Others are read whole.
pub(super) fn begin(
    relay: &Relay,
    headers: &HeaderMap,
    identity: &Identity,
    body: &Incoming,
) -> Option<(Passing, usize)> {
    let bytes = body.size_hint().exact()?;
    let is_fit = bytes >= PASSING_FROM_BYTES
        && usize::try_from(bytes).is_ok_and(|bytes| bytes <= MAX_BODY_BYTES)
        && !headers.contains_key(CONTENT_ENCODING)
        // Behind a 401 to our own credential the body is sent again.
        && relay.bearer.is_none();
    is_fit.then(|| claimed(relay, headers, identity)).flatten()
}

/// The same for a compressed body: it is held, compressed, until all of it is edited.
pub(super) fn claimed(
    relay: &Relay,
    headers: &HeaderMap,
    identity: &Identity,
) -> Option<(Passing, usize)> {
    let is_fit = headers.contains_key(CONTENT_LENGTH)
        && relay.on_unrecognized == OnUnrecognized::Refuse
        && !relay.reads_whole.load(Ordering::Relaxed)
        && headers
            .get(TURN_METADATA)
            .is_some_and(|it| it.len() <= CONFIRMED_METADATA_BYTES / 4);
    let request = is_fit.then(|| identity.claimed()).flatten()?;
    let decision = relay.session.with(|session| {
        session.note_request(&request);
        session.decide(&request)
    });
    match decision {
        Decision::Inject(snapshot) if !snapshot.is_empty() => {
            let text = snapshot.text().len();
            Some((Passing::new(identity.clone(), request, snapshot), text))
        }
        Decision::Inject(_)
        | Decision::Prepare(_)
        | Decision::Refuse(_)
        | Decision::RefuseOwnTurn
        | Decision::Untouched => None,
    }
}

impl Relay {
    /// What codex is told of a body that stopped. One that came in another order than codex's is asked
    /// for again, and none is taken for codex's from then on.
    pub(super) fn refusal_of(&self, stop: Stop) -> Refusal {
        match stop {
            Stop::Refuse(reason) => Refusal::new(reason),
            Stop::TooLarge => Refusal::inflates_too_large_with_context(),
            // Its beginning was fit.
            Stop::Unfit => Refusal::new(Reason::BodyInvalid),
            Stop::Late => {
                self.reads_whole.store(true, Ordering::Relaxed);
                Refusal::read_again()
            }
        }
    }
}

/// A body whose beginning has come.
pub(super) enum Held {
    /// It can go on with its edit.
    Fit(Box<Ready>),
    /// It must be read whole; this much of it has come.
    Unfit(Begun),
}

/// A body that knows its edit.
pub(super) struct Ready {
    passing: Passing,
    out: VecDeque<Bytes>,
    /// Its size with the edit.
    size: u64,
    share: Share,
}

/// Reads `body` until it is known what it gains, or that it can't be edited in passing.
///
/// # Errors
/// Where it must not go on; all of it was thrown away then.
pub(super) async fn hold(
    relay: &Relay,
    body: &mut Incoming,
    mut passing: Passing,
) -> Result<Held, Refusal> {
    let bytes = body.size_hint().exact().unwrap_or_default();
    let held = HELD_BODY_BYTES + CONFIRMED_METADATA_BYTES;
    let Ok(share) = relay.budget.message(Some(held)).await else {
        drain(body).await;
        return Err(Refusal::new(Reason::Busy));
    };
    let mut out = VecDeque::new();
    let growth = loop {
        if let Some(growth) = passing.growth() {
            break u64::try_from(growth).unwrap_or(u64::MAX);
        }
        let Some(Ok(frame)) = body.frame().await else {
            return Err(Refusal::broken_off());
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        match passing.push(data, &mut out) {
            Ok(()) => {}
            Err(Stop::Unfit) => {
                let parts = passing.into_held();
                let trailers = None;
                return Ok(Held::Unfit(Begun { parts, trailers }));
            }
            Err(stop @ (Stop::Refuse(_) | Stop::TooLarge | Stop::Late)) => {
                drain(body).await;
                return Err(relay.refusal_of(stop));
            }
        }
    };
    let size = bytes.saturating_add(growth);
    if usize::try_from(size).map_or(true, |size| size > MAX_BODY_BYTES) {
        drain(body).await;
        return Err(Refusal::too_large(Measured::BodyAfterInjection, size));
    }
    tracing::debug!(from = bytes, to = size, "model request injected");
    Ok(Held::Fit(Box::new(Ready {
        passing,
        out,
        size,
        share,
    })))
}

/// Passes `body` on with its edit.
pub(super) async fn pass(
    relay: &Relay,
    mut onward: Onward,
    body: Incoming,
    ready: Ready,
) -> Result<Response<OutBody>, Refusal> {
    let inner = Some(Upload::new(body, &onward.parts));
    let mut headers = onward.take_headers();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(ready.size));
    let (stopped, mut stop) = oneshot::channel();
    let spliced = Spliced {
        inner,
        passing: ready.passing,
        out: ready.out,
        left: ready.size,
        stopped: Some(stopped),
        _share: ready.share,
    };
    let body = Outgoing::Once(spliced.boxed_unsync());
    let sent = onward.send(relay, body, Usage::Exchange, headers);
    let result = sent.await;
    if let Ok((stop, mut rest)) = stop.try_recv() {
        drain(&mut rest).await;
        return Err(relay.refusal_of(stop));
    }
    Ok(back(result?).await)
}

/// The body as the upstream gets it.
///
/// Where it stops it fails, which aborts the request to the upstream, and the rest goes to whoever
/// answers codex.
struct Spliced {
    inner: Option<Upload>,
    passing: Passing,
    out: VecDeque<Bytes>,
    left: u64,
    stopped: Option<oneshot::Sender<(Stop, Upload)>>,
    _share: Share,
}

/// The body isn't what its headers said.
#[derive(Debug, thiserror::Error)]
#[error("request body stopped")]
struct Stopped;

impl Spliced {
    fn stop(&mut self, stop: Stop) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let (Some(stopped), Some(rest)) = (self.stopped.take(), self.inner.take()) {
            let _ = stopped.send((stop, rest));
        }
        self.out.clear();
        Poll::Ready(Some(Err(Stopped.into())))
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Body for Spliced {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        loop {
            if let Some(piece) = this.out.pop_front() {
                let bytes = u64::try_from(piece.len()).unwrap_or(u64::MAX);
                this.left = this.left.saturating_sub(bytes);
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            let Some(inner) = this.inner.as_mut() else {
                return Poll::Ready(None);
            };
            let frame = ready!(Pin::new(inner).poll_frame(context)).transpose()?;
            let part = frame.map(|frame| frame.into_data().unwrap_or_default());
            let is_last = part.is_none();
            let moved = match part {
                Some(part) => this.passing.push(part, &mut this.out),
                None => this.passing.finish(&mut this.out),
            };
            if let Err(stop) = moved {
                return this.stop(stop);
            }
            if is_last {
                this.inner = None;
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_none() && self.out.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
