//! Threads that serve connections: each with a loop of its own, and with its own connections to the
//! upstream, so that a request and its answer never go from one thread to another.

use std::io;
use std::sync::Arc;
use std::thread::{self, available_parallelism};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::base::limits::MAX_LANES;
use crate::relay::shared::Relay;

/// The lanes of one endpoint; the first is the thread that they are made on. The others begin when
/// there is more than one connection, and end with it.
#[derive(Debug)]
pub(super) struct Lanes {
    all: Vec<Lane>,
    most: usize,
}

#[derive(Debug)]
struct Lane {
    loop_of: Handle,
    relay: Arc<Relay>,
    /// Each connection has a clone.
    open: Arc<()>,
    /// Dropped, it ends the thread.
    _end: Option<oneshot::Sender<()>>,
}

/// Where a connection is to be served.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) loop_of: Handle,
    pub(super) relay: Arc<Relay>,
    /// Kept as long as the connection is open.
    pub(super) open: Arc<()>,
}

impl Lanes {
    /// One lane on this thread, and one for each further processor when they are needed.
    pub(super) fn new(relay: Arc<Relay>) -> Self {
        let first = Lane {
            loop_of: Handle::current(),
            relay,
            open: Arc::default(),
            _end: None,
        };
        Self {
            all: vec![first],
            most: available_parallelism().map_or(1, |count| count.get().min(MAX_LANES)),
        }
    }

    /// The lane with the fewest connections.
    pub(super) fn next(&mut self) -> Option<Place> {
        let is_busy = self.all.iter().all(|lane| lane.connections() > 0);
        if is_busy && self.all.len() < self.most {
            match self.begin() {
                Ok(lane) => self.all.push(lane),
                Err(error) => {
                    tracing::warn!(%error, "no further thread for connections");
                    self.most = self.all.len();
                }
            }
        }
        let lane = self.all.iter().min_by_key(|lane| lane.connections())?;
        Some(Place {
            loop_of: lane.loop_of.clone(),
            relay: Arc::clone(&lane.relay),
            open: Arc::clone(&lane.open),
        })
    }

    fn begin(&self) -> io::Result<Lane> {
        let relay = self.all.first().map(|lane| lane.relay.beside());
        let relay = relay.ok_or(io::ErrorKind::NotFound)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let loop_of = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        // It isn't waited for: where it is in the middle of something, that ends with the process.
        thread::Builder::new()
            .name("connections".to_owned())
            .spawn(move || {
                let _ = runtime.block_on(ended);
                runtime.shutdown_background();
            })?;
        Ok(Lane {
            loop_of,
            relay: Arc::new(relay),
            open: Arc::default(),
            _end: Some(end),
        })
    }
}

impl Lane {
    fn connections(&self) -> usize {
        Arc::strong_count(&self.open) - 1
    }
}
