//! The memory for messages in flight: one budget for all, over which senders wait.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use crate::base::limits::{
    BUDGET_DEADLINE, INFLATED_BUDGET_BYTES, LIGHT_BUDGET_BYTES, LIGHT_LINE_BYTES,
    LINE_BUDGET_DEADLINE, MAX_BODY_BYTES, MAX_LINE_SHARE_BYTES, MESSAGES_BUDGET_BYTES,
};

/// Two pools, always taken in this order: messages as they come, then what they inflate to.
///
/// A message takes its share before its first byte is read, all of it at once: nobody holds a part
/// and waits for the rest, so somebody always goes on. A line of JSON-RPC can't say its size: it takes
/// more as it grows, and goes on without when it has waited long enough.
#[derive(Clone, Debug)]
pub struct Budget {
    messages: Arc<Semaphore>,
    /// For small messages while large ones wait.
    light: Arc<Semaphore>,
    inflated: Arc<Semaphore>,
    /// Lines that have a share: one in each direction, and one that the client doesn't read.
    lines: Arc<Semaphore>,
    /// Told of the end of each large message.
    over: watch::Sender<()>,
}

/// A share of the budget, given back when it is dropped.
#[derive(Debug)]
pub struct Share {
    permit: OwnedSemaphorePermit,
    /// Told of the end of a large message.
    over: Option<watch::Sender<()>>,
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some(over) = &self.over {
            over.send_replace(());
        }
    }
}

/// What a line of JSON-RPC takes of the budget while it grows and until it has gone on.
#[derive(Debug, Default)]
pub struct LineShare {
    held: Option<OwnedSemaphorePermit>,
    /// Counted by the budget.
    mark: Option<OwnedSemaphorePermit>,
    /// It has waited long enough for more.
    is_given_up: bool,
}

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
            light: pool(LIGHT_BUDGET_BYTES),
            inflated: pool(INFLATED_BUDGET_BYTES),
            lines: Arc::new(Semaphore::new(MAX_LINES)),
            over: watch::Sender::new(()),
        }
    }

    /// Changes whenever a large message is over, and its memory free.
    pub fn large_ones(&self) -> watch::Receiver<()> {
        self.over.subscribe()
    }

    /// Waits for the share of a message whose size is known, or may be anything up to the limit.
    pub async fn message(&self, bytes: Option<usize>) -> Result<Share, Busy> {
        let bytes = bytes.unwrap_or(MAX_BODY_BYTES);
        if bytes > LIGHT_LINE_BYTES {
            return self.take(&self.messages, bytes).await;
        }
        tokio::select! {
            biased;
            share = self.take(&self.messages, bytes) => share,
            share = self.take(&self.light, bytes) => share,
        }
    }

    /// Waits for the share of a compressed body that takes `bytes` while it is opened and closed.
    pub async fn inflated(&self, bytes: usize) -> Result<Share, Busy> {
        self.take(&self.inflated, bytes).await
    }

    /// Makes room for a line that has grown to `bytes`, in steps of twice its size.
    ///
    /// Behind [`BUDGET_DEADLINE`], or [`LINE_BUDGET_DEADLINE`] where another line has a share, it goes
    /// on without: both ends of a stream may wait for each other, and a line is never refused for
    /// want of memory.
    pub async fn line(&self, share: &mut LineShare, bytes: usize) {
        if bytes <= LIGHT_LINE_BYTES || share.is_given_up {
            return;
        }
        let wanted = units(bytes.next_power_of_two().min(MAX_LINE_SHARE_BYTES));
        let held = share.held.as_ref();
        let held = held.map_or(0, OwnedSemaphorePermit::num_permits);
        let more = u32::try_from(wanted.saturating_sub(held)).unwrap_or(0);
        if more == 0 {
            return;
        }
        if share.mark.is_none() {
            share.mark = Arc::clone(&self.lines).try_acquire_owned().ok();
        }
        let own = usize::from(share.mark.is_some());
        let deadline = if self.lines.available_permits() + own < MAX_LINES {
            LINE_BUDGET_DEADLINE
        } else {
            BUDGET_DEADLINE
        };
        let waiting = Arc::clone(&self.messages).acquire_many_owned(more);
        match (timeout(deadline, waiting).await, &mut share.held) {
            (Ok(Ok(permit)), Some(held)) => held.merge(permit),
            (Ok(Ok(permit)), held @ None) => *held = Some(permit),
            (Ok(Err(_)) | Err(_), _) => share.is_given_up = true,
        }
    }
}

impl Budget {
    async fn take(&self, pool: &Arc<Semaphore>, bytes: usize) -> Result<Share, Busy> {
        let wanted = u32::try_from(units(bytes.min(MAX_BODY_BYTES))).unwrap_or(u32::MAX);
        let waiting = Arc::clone(pool).acquire_many_owned(wanted);
        let permit = timeout(BUDGET_DEADLINE, waiting).await;
        let permit = permit.map_err(|_| Busy)?.map_err(|_| Busy)?;
        let over = (bytes > LIGHT_LINE_BYTES).then(|| self.over.clone());
        Ok(Share { permit, over })
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
        let spare = self.permit.num_permits().saturating_sub(units(bytes));
        drop(self.permit.split(spare));
    }
}

impl LineShare {
    /// Gives back all but what `bytes` need.
    pub fn shrink_to(&mut self, bytes: usize) {
        if let Some(held) = &mut self.held {
            let spare = held.num_permits().saturating_sub(units(bytes));
            drop(held.split(spare));
        }
    }
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT_BYTES)
}

const MAX_LINES: usize = 3;

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
        assert!(budget.inflated(MAX_BODY_BYTES).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn small_message_waits_behind_no_large_one() {
        let budget = Budget::new();
        let _first = budget.message(None).await.unwrap();
        let _second = budget.message(None).await.unwrap();
        let third = budget.message(None);
        tokio::pin!(third);
        tokio::select! {
            _ = &mut third => panic!("there is no place for it"),
            small = budget.message(Some(2048)) => assert!(small.is_ok()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn long_line_takes_its_share_and_waits_for_no_one_for_ever() {
        let budget = Budget::new();
        let mut line = LineShare::default();
        budget.line(&mut line, LIGHT_LINE_BYTES).await;
        assert!(line.held.is_none());
        budget.line(&mut line, MAX_LINE_SHARE_BYTES * 2).await;
        // Beside it there is room for one message, not for two.
        let first = budget.message(None).await.unwrap();
        assert_eq!(budget.message(None).await.err(), Some(Busy));
        let mut other = LineShare::default();
        budget.line(&mut other, MAX_LINE_SHARE_BYTES).await;
        assert!(other.held.is_none());
        drop(first);
        line.shrink_to(1024);
        budget.line(&mut other, MAX_LINE_SHARE_BYTES).await;
        assert!(other.held.is_none());
        let mut next = LineShare::default();
        budget.line(&mut next, MAX_LINE_SHARE_BYTES).await;
        assert!(next.held.is_some());
    }
}
