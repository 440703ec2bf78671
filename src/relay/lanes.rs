//! Threads that serve connections: each with a loop of its own, and with its own connections to the
//! upstream, so that a request and its answer never go from one thread to another.

use std::sync::Arc;
use std::thread::{self, available_parallelism};
use std::{io, iter};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::base::limits::MAX_LANES;
use crate::relay::shared::Relay;

/// The lanes of one endpoint; the first is the thread that they are made on. The others begin when
/// several connections are open, and end with the endpoint.
#[derive(Debug)]
pub(super) struct Lanes {
    first: Place,
    further: Vec<Lane>,
    most: usize,
}

#[derive(Debug)]
struct Lane {
    place: Place,
    /// Dropped, it ends the thread.
    _end: oneshot::Sender<()>,
}

/// Where a connection is served; each has a clone as long as it is open.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) loop_of: Handle,
    pub(super) relay: Arc<Relay>,
    open: Arc<()>,
}

impl Lanes {
    /// One lane on this thread, and one for each further processor when they are needed.
    pub(super) fn new(relay: Arc<Relay>) -> Self {
        Self {
            first: Place::new(Handle::current(), relay),
            further: Vec::new(),
            most: available_parallelism().map_or(1, |count| count.get().min(MAX_LANES)),
        }
    }

    /// The lane with the fewest connections.
    pub(super) fn next(&mut self) -> Place {
        let is_busy = self.places().all(|place| place.connections() > 0);
        if is_busy && self.further.len() + 1 < self.most {
            match Lane::begin(self.first.relay.beside()) {
                Ok(lane) => self.further.push(lane),
                Err(error) => {
                    tracing::warn!(%error, "no further thread for connections");
                    self.most = self.further.len() + 1;
                }
            }
        }
        let freest = self.places().min_by_key(|place| place.connections());
        freest.unwrap_or(&self.first).clone()
    }

    fn places(&self) -> impl Iterator<Item = &Place> {
        let further = self.further.iter().map(|lane| &lane.place);
        iter::once(&self.first).chain(further)
    }
}

impl Lane {
    fn begin(relay: Relay) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let place = Place::new(runtime.handle().clone(), Arc::new(relay));
        let (end, ended) = oneshot::channel();
        // It isn't waited for: where it is in the middle of something, that ends with the process.
        thread::Builder::new()
            .name("connections".to_owned())
            .spawn(move || {
                let _ = runtime.block_on(ended);
                runtime.shutdown_background();
            })?;
        Ok(Self { place, _end: end })
    }
}

impl Place {
    fn new(loop_of: Handle, relay: Arc<Relay>) -> Self {
        Self {
            loop_of,
            relay,
            open: Arc::default(),
        }
    }

    fn connections(&self) -> usize {
        Arc::strong_count(&self.open) - 1
    }
}
