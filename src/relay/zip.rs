//! Compressed bodies, opened and closed where they hold nobody up.

use bytes::Bytes;
use tokio::task::spawn_blocking;

use crate::base::limits::MAX_BODY_BYTES;
use crate::base::reason::Reason;
use crate::budget::share::{Budget, Busy, Share};
use crate::exchange::refusal::Refusal;
use crate::wire::compress::{InflateError, deflate, inflate};

/// Inflates a body, once there is room for it.
pub(super) async fn open(wire: Bytes, budget: &Budget) -> Result<(Bytes, Share), Refusal> {
    let waiting = budget.inflated(MAX_BODY_BYTES).await;
    let mut share = waiting.map_err(|Busy| Refusal::new(Reason::Busy))?;
    let opened = spawn_blocking(move || inflate(&wire, MAX_BODY_BYTES)).await;
    match opened {
        Ok(Ok(plain)) => {
            share.shrink_to(plain.len());
            Ok((plain.into(), share))
        }
        Ok(Err(InflateError::TooLarge { .. })) => Err(Refusal::inflates_too_large()),
        Ok(Err(InflateError::Zstd(_))) | Err(_) => Err(Refusal::new(Reason::BodyInvalid)),
    }
}

/// Compresses a body.
pub(super) async fn close(pieces: Vec<Bytes>) -> Result<Vec<Bytes>, Refusal> {
    match spawn_blocking(move || deflate(&pieces)).await {
        Ok(Ok(packed)) => Ok(packed),
        Ok(Err(_)) | Err(_) => Err(Refusal::new(Reason::BodyInvalid)),
    }
}
