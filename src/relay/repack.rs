//! Compressed bodies that get their context while they come, one step at a time beside all other work.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::task::{AbortHandle, JoinHandle, yield_now};
use tokio::time::sleep;

use crate::base::limits::{
    MAX_BODY_BYTES, MAX_CONTEXT_BYTES, OVERLAP_FROM_BYTES, REPACK_BYTES, TOOLS_KEPT,
};
use crate::budget::share::{Budget, Share};
use crate::exchange::passing::Passing;
use crate::exchange::repacking::{Repacking, Tools, Unfit};
use crate::relay::body::{Begun, Ready};
use crate::wire::compress::content_size;

/// Why a body isn't ready.
#[derive(Debug)]
pub(super) enum Failed {
    /// It must be judged as a whole; so much of it has come.
    Unfit(Begun),
    /// It ended too early.
    Broken,
}

enum Halt {
    Unfit,
    Broken,
}

impl From<Unfit> for Halt {
    fn from(Unfit: Unfit) -> Self {
        Self::Unfit
    }
}

/// Reads `body` and puts its context into it while it comes.
pub(super) async fn repack(
    (budget, kept): (&Budget, &Kept),
    passing: Passing,
    body: &mut Incoming,
) -> Result<Ready, Failed> {
    let mut begun = Begun::default();
    match try_repack((budget, kept), passing, body, &mut begun).await {
        Ok((pieces, shares)) => Ok(Ready {
            pieces,
            trailers: begun.trailers,
            shares,
        }),
        Err(Halt::Unfit) => Err(Failed::Unfit(begun)),
        Err(Halt::Broken) => Err(Failed::Broken),
    }
}

async fn try_repack(
    (budget, kept): (&Budget, &Kept),
    passing: Passing,
    body: &mut Incoming,
    begun: &mut Begun,
) -> Result<(Vec<Bytes>, Vec<Share>), Halt> {
    let bytes = body.size_hint().exact();
    let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
    let bytes = bytes.filter(|it| *it <= MAX_BODY_BYTES).ok_or(Unfit)?;
    let mut message = budget.message(Some(bytes)).await.map_err(|_| Unfit)?;
    // A place among those that are opened is taken once all of a small body is here, or enough of a
    // large one that the rest is on its way.
    let mut came = 0;
    while came < bytes.min(OVERLAP_FROM_BYTES) {
        let part = next(body, begun).await?;
        came += part.ok_or(Unfit)?.len();
    }
    let first = begun.parts.first().ok_or(Unfit)?;
    let size = content_size(first).ok_or(Unfit)?;
    let most = bytes + SLACK_BYTES;
    let opening = budget.inflated(most + REPACK_BYTES).await;
    let mut opening = opening.map_err(|_| Unfit)?;
    let mut tools = kept.take()?;
    let mut repacking = Repacking::new(&mut tools, passing, size, most)?;
    for part in begun.parts.clone() {
        steps(&mut repacking, part).await?;
    }
    while let Some(part) = next(body, begun).await? {
        steps(&mut repacking, part).await?;
    }
    let pieces = repacking.finish()?;
    kept.give(tools);
    // What came is let go of; what it has become stays until it is sent.
    begun.parts.clear();
    let packed: usize = pieces.iter().map(Bytes::len).sum();
    message.shrink_to(packed);
    opening.shrink_to(packed.saturating_sub(bytes));
    Ok((pieces, vec![message, opening]))
}

/// The next part of the body; it is kept as well.
async fn next(body: &mut Incoming, begun: &mut Begun) -> Result<Option<Bytes>, Halt> {
    while let Some(frame) = body.frame().await {
        match frame.map_err(|_| Halt::Broken)?.into_data() {
            Ok(part) => {
                begun.parts.push(part.clone());
                return Ok(Some(part));
            }
            Err(other) => begun.trailers = other.into_trailers().ok(),
        }
    }
    Ok(None)
}

/// Does what there is to do with a part; others have their turn between two steps.
async fn steps(repacking: &mut Repacking<'_>, mut part: Bytes) -> Result<(), Unfit> {
    while repacking.step(&mut part)? {
        yield_now().await;
    }
    Ok(())
}

/// The tools that were used last, kept for a while: to make them costs as much as a small body.
#[derive(Debug, Default)]
pub struct Kept(Arc<Mutex<Place>>);

#[derive(Debug, Default)]
struct Place {
    tools: Option<Tools>,
    /// The task that throws them away.
    end: Option<End>,
}

/// A task that ends with its owner.
#[derive(Debug)]
struct End(AbortHandle);

impl Drop for End {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Kept {
    fn take(&self) -> Result<Tools, Unfit> {
        let kept = self.with(|place| {
            place.end = None;
            place.tools.take()
        });
        kept.map_or_else(|| Tools::new().map_err(|_| Unfit), Ok)
    }

    fn give(&self, tools: Tools) {
        let place = Arc::downgrade(&self.0);
        let end: JoinHandle<()> = tokio::spawn(async move {
            sleep(TOOLS_KEPT).await;
            if let Some(place) = place.upgrade() {
                place.lock().unwrap_or_else(PoisonError::into_inner).tools = None;
            }
        });
        self.with(|place| {
            place.tools = Some(tools);
            place.end = Some(End(end.abort_handle()));
        });
    }

    fn with<T>(&self, step: impl FnOnce(&mut Place) -> T) -> T {
        step(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a body may gain, compressed: its context, and a little because its blocks are cut elsewhere.
const SLACK_BYTES: usize = MAX_CONTEXT_BYTES + 64 * 1024;
