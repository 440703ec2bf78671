//! What a model endpoint saw, and waiting for it to see something.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use crate::commands::witness::{Head, Kind, Recorded};

/// Everything that an endpoint saw so far, in order.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    /// Requests; one over HTTP counts when its body has arrived whole.
    pub requests: Vec<Arc<Recorded>>,
    /// Connections that are over.
    pub ended: Vec<Ended>,
    opened: usize,
}

/// The end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its number.
    pub connection: usize,
    /// Code and reason of the client's close frame, if it sent one.
    pub close: Option<(u16, String)>,
}

impl Journal {
    /// Requests to the model, in order of arrival.
    pub fn model_requests(&self) -> impl Iterator<Item = &Arc<Recorded>> {
        self.requests
            .iter()
            .filter(|request| request.is_model_request())
    }
}

/// Nothing of the kind that was waited for was seen in time.
#[derive(Debug, thiserror::Error)]
#[error("nothing like it within {waited:?}; seen: {seen}")]
pub struct WaitError {
    /// How long it was waited for.
    pub waited: Duration,
    /// What was seen instead.
    pub seen: Summary,
}

/// A line about each request, the last ones first to go if there are many.
#[derive(Debug)]
pub struct Summary(Vec<Arc<Recorded>>);

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        for (at, request) in self.0.iter().take(MAX_LINES).enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            let agent = request.agent().unwrap_or("-");
            let purpose = request.purpose();
            let purpose = purpose.as_deref().unwrap_or("-");
            let (method, transport) = (&request.head.method, request.transport());
            write!(f, "{separator}{method} {transport} {agent} {purpose}")?;
        }
        match self.0.len().checked_sub(MAX_LINES) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, " and {more} more"),
        }
    }
}

/// The writing end of a journal; clones write into the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct Scribe(watch::Sender<Journal>);

impl Scribe {
    /// Numbers a connection.
    pub(super) fn open(&self) -> usize {
        let mut number = 0;
        self.0.send_modify(|journal| {
            number = journal.opened;
            journal.opened += 1;
        });
        number
    }

    /// Writes a request down; nothing if the journal is full.
    pub(super) fn write(
        &self,
        connection: usize,
        kind: Kind,
        head: Head,
        body: Bytes,
    ) -> Option<Arc<Recorded>> {
        let mut written = None;
        self.0.send_if_modified(|journal| {
            let number = journal.requests.len();
            if number >= MAX_REQUESTS {
                return false;
            }
            let request = Arc::new(Recorded::new(number, connection, kind, head, body));
            journal.requests.push(Arc::clone(&request));
            written = Some(request);
            true
        });
        written
    }

    /// Notes that a connection is over.
    pub(super) fn end(&self, connection: usize, close: Option<(u16, String)>) {
        self.0
            .send_modify(|journal| journal.ended.push(Ended { connection, close }));
    }

    /// Copies what was seen so far.
    pub(super) fn so_far(&self) -> Journal {
        self.0.borrow().clone()
    }

    /// Waits until `find` finds something in the journal.
    pub(super) async fn wait_for<T>(
        &self,
        deadline: Duration,
        mut find: impl FnMut(&Journal) -> Option<T>,
    ) -> Result<T, WaitError> {
        let mut journal = self.0.subscribe();
        let mut found = None;
        let seen = journal.wait_for(|journal| {
            found = find(journal);
            found.is_some()
        });
        // An error of the inner wait would mean that the sender is gone, and `self` is one.
        let _ = tokio::time::timeout(deadline, seen)
            .await
            .map(|seen| seen.map(drop));
        found.ok_or_else(|| WaitError {
            waited: deadline,
            seen: Summary(self.so_far().requests),
        })
    }
}

/// Most requests that one journal keeps: far over what a test or a demo makes.
const MAX_REQUESTS: usize = 10_000;

/// Most requests that an error lists.
const MAX_LINES: usize = 30;
