//! The memory for messages in flight: one budget for all, over which senders wait.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::base::limits::{
    BUDGET_DEADLINE, INFLATED_BUDGET_BYTES, MAX_BODY_BYTES, MESSAGES_BUDGET_BYTES,
};

/// Two pools, always taken in this order: messages as they come, then what they inflate to.
///
/// A message takes its share before its first byte is read, all of it at once: nobody holds a part
/// and waits for the rest, so somebody always goes on.
#[derive(Debug)]
pub struct Budget {
    messages: Arc<Semaphore>,
    inflated: Arc<Semaphore>,
}

/// A share of the budget, given back when it is dropped.
#[derive(Debug)]
pub struct Share(OwnedSemaphorePermit);

/// Nothing was given back for [`BUDGET_DEADLINE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the budget for messages in flight is used up")]
pub struct Busy;

impl Budget {
    /// Starts with everything free.
    pub fn new() -> Self {
        let pool = |bytes: usize| Arc::new(Semaphore::new(bytes / UNIT_BYTES));
        Self {
            messages: pool(MESSAGES_BUDGET_BYTES),
            inflated: pool(INFLATED_BUDGET_BYTES),
        }
    }

    /// Waits for the share of a message whose size is known, or may be anything up to the limit.
    pub async fn message(&self, bytes: Option<usize>) -> Result<Share, Busy> {
        take(&self.messages, bytes.unwrap_or(MAX_BODY_BYTES)).await
    }

    /// Waits for the share of what a compressed body may inflate to.
    pub async fn inflated(&self) -> Result<Share, Busy> {
        take(&self.inflated, MAX_BODY_BYTES).await
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::new()
    }
}

impl Share {
    /// Gives back all but what `bytes` need.
    pub fn shrink_to(&mut self, bytes: usize) {
        let spare = self.0.num_permits().saturating_sub(units(bytes));
        drop(self.0.split(spare));
    }
}

async fn take(pool: &Arc<Semaphore>, bytes: usize) -> Result<Share, Busy> {
    let wanted = u32::try_from(units(bytes.min(MAX_BODY_BYTES))).unwrap_or(u32::MAX);
    let waiting = Arc::clone(pool).acquire_many_owned(wanted);
    match timeout(BUDGET_DEADLINE, waiting).await {
        Ok(Ok(permit)) => Ok(Share(permit)),
        Ok(Err(_)) | Err(_) => Err(Busy),
    }
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT_BYTES)
}

/// Permits count KiB.
const UNIT_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn over_the_budget_senders_wait_until_something_is_given_back() {
        let budget = Budget::new();
        let mut first = budget.message(None).await.unwrap();
        let _second = budget.message(None).await.unwrap();
        assert_eq!(budget.message(None).await.err(), Some(Busy));
        first.shrink_to(1);
        assert!(budget.message(None).await.is_ok());
        assert!(budget.inflated().await.is_ok());
    }
}
