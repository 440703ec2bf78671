//! Compressed bodies that get their context while they come, one step at a time beside all other work.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::base::limits::{
    KEPT_BODY_BYTES, MAX_BODY_BYTES, MAX_CONTEXT_BYTES, OVERLAP_FROM_BYTES, REPACK_BYTES,
    TOOLS_KEPT,
};
use crate::budget::share::{Budget, Share};
use crate::exchange::passing::{Passing, Stop};
use crate::exchange::repacking::{Repacking, Tools};
use crate::relay::body::{Begun, Ready};
use crate::wire::compress::content_size;

/// Why a body isn't ready.
#[derive(Debug)]
pub(super) enum Failed {
    /// It must be judged as a whole; so much of it has come.
    Unfit(Begun),
    /// It must not go on, or can't be edited any more. The rest of it is still to come.
    Stopped(Stop),
    /// It ended too early.
    Broken,
}

enum Halt {
    Stopped(Stop),
    Broken,
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Self {
        Self::Stopped(stop)
    }
}

/// Reads `body` and puts its context into it while it comes.
pub(super) async fn repack(
    (budget, kept): (&Budget, &Kept),
    passing: Passing,
    body: &mut Incoming,
) -> Result<Ready, Failed> {
    let mut come = Come::default();
    match try_repack((budget, kept), passing, body, &mut come).await {
        Ok((pieces, shares)) => Ok(Ready {
            pieces,
            trailers: come.begun.trailers,
            shares,
        }),
        Err(Halt::Broken) => Err(Failed::Broken),
        Err(Halt::Stopped(stop)) if come.is_gone => Err(Failed::Stopped(match stop {
            Stop::Unfit => Stop::Late,
            Stop::Late | Stop::Refuse(_) | Stop::TooLarge => stop,
        })),
        Err(Halt::Stopped(_)) => Err(Failed::Unfit(come.begun)),
    }
}

/// What has come of the body.
#[derive(Default)]
struct Come {
    begun: Begun,
    /// Its parts were let go of.
    is_gone: bool,
}

async fn try_repack(
    (budget, kept): (&Budget, &Kept),
    passing: Passing,
    body: &mut Incoming,
    come: &mut Come,
) -> Result<(Vec<Bytes>, Vec<Share>), Halt> {
    let bytes = body.size_hint().exact();
    let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
    let bytes = bytes.filter(|it| *it <= MAX_BODY_BYTES);
    let bytes = bytes.ok_or(Stop::Unfit)?;
    let message = budget.message(Some(bytes)).await;
    let mut message = message.map_err(|_| Stop::Unfit)?;
    // A place among those that are opened is taken once all of a small body is here, or enough of a
    // large one that the rest is on its way.
    let mut size = 0;
    while size < bytes.min(OVERLAP_FROM_BYTES) {
        size += come.next(body).await?.ok_or(Stop::Unfit)?.len();
    }
    let first = come.begun.parts.first().ok_or(Stop::Unfit)?;
    let opens_to = content_size(first);
    let most = bytes + SLACK_BYTES;
    let opening = budget.inflated(most + REPACK_BYTES).await;
    let mut opening = opening.map_err(|_| Stop::Unfit)?;
    let mut tools = kept.take().map_err(|_| Stop::Unfit)?;
    let mut repacking = Repacking::new(&mut tools, passing, opens_to, most)?;
    for part in come.begun.parts.clone() {
        steps(&mut repacking, part).await?;
    }
    loop {
        if bytes > KEPT_BODY_BYTES && repacking.is_settled() {
            come.let_go();
        }
        let Some(part) = come.next(body).await? else {
            break;
        };
        steps(&mut repacking, part).await?;
    }
    let pieces = repacking.finish()?;
    kept.give(tools);
    come.let_go();
    // What it has become takes the place of what came, until it is sent.
    let packed: usize = pieces.iter().map(Bytes::len).sum();
    message.shrink_to(packed);
    opening.shrink_to(packed.saturating_sub(bytes));
    Ok((pieces, vec![message, opening]))
}

impl Come {
    /// The next part of the body.
    async fn next(&mut self, body: &mut Incoming) -> Result<Option<Bytes>, Halt> {
        while let Some(frame) = body.frame().await {
            match frame.map_err(|_| Halt::Broken)?.into_data() {
                Ok(part) => {
                    if !self.is_gone {
                        self.begun.parts.push(part.clone());
                    }
                    return Ok(Some(part));
                }
                Err(other) => self.begun.trailers = other.into_trailers().ok(),
            }
        }
        Ok(None)
    }

    fn let_go(&mut self) {
        self.begun.parts.clear();
        self.is_gone = true;
    }
}

/// Does what there is to do with a part; others have their turn between two steps.
async fn steps(repacking: &mut Repacking<'_>, mut part: Bytes) -> Result<(), Stop> {
    while repacking.step(&mut part)? {
        yield_now().await;
    }
    Ok(())
}

/// The tools that were used last, kept for a while: to make them costs as much as a small body.
#[derive(Debug, Default)]
pub struct Kept {
    tools: Mutex<Option<Tools>>,
    uses: watch::Sender<()>,
}

impl Kept {
    /// Throws them away whenever nobody has wanted them for [`TOOLS_KEPT`].
    pub async fn throw_away_in_time(&self) {
        let mut uses = self.uses.subscribe();
        while uses.changed().await.is_ok() {
            while timeout(TOOLS_KEPT, uses.changed()).await.is_ok() {}
            *self.place() = None;
        }
    }

    fn take(&self) -> io::Result<Tools> {
        let kept = self.place().take();
        kept.map_or_else(Tools::new, Ok)
    }

    fn give(&self, tools: Tools) {
        *self.place() = Some(tools);
        self.uses.send_replace(());
    }

    fn place(&self) -> MutexGuard<'_, Option<Tools>> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a body may gain, compressed: its context, and a little because its blocks are cut elsewhere.
const SLACK_BYTES: usize = MAX_CONTEXT_BYTES + 64 * 1024;
