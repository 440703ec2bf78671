//! The private endpoint: loopback alone, a bounded number of connections, each with an owner.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::errno::Errno;
use tokio::io;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use crate::base::limits::{
    ACCEPT_PAUSE, HEAD_DEADLINE, MAX_CONNECTIONS, MAX_HEAD_BYTES, MAX_HEADERS, MAX_STRANGERS,
};
use crate::relay::http;
use crate::relay::lanes::{Lanes, Place};
use crate::relay::peer::Peers;
use crate::relay::shared::Relay;
use crate::relay::upload::leftovers;
use crate::upstream::portion::Portions;

/// What goes on over a connection once its handshake is answered.
pub type Pump = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Binds the endpoint, on a port of the system's choice.
pub async fn bind() -> io::Result<(TcpListener, u16)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}

/// Serves connections until it is dropped, or the socket fails for good; every connection ends with
/// it. Whenever `closed` changes, those that are open end.
///
/// Sockets of other users are dropped unread. Of those that haven't shown the secret yet, the
/// oldest makes room for the newest.
pub async fn serve(listener: TcpListener, relay: Arc<Relay>, mut closed: watch::Receiver<u64>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut peers = Peers::new();
    let mut strangers: VecDeque<(AbortHandle, Arc<Seat>)> = VecDeque::new();
    let mut lanes = Lanes::new(relay);
    let mut connections = JoinSet::new();
    let mut is_failing = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Ok(()) = closed.changed() => {
                connections.abort_all();
                continue;
            }
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_lasting(&error) => {
                tracing::error!(%error, "the private endpoint accepts no more connections");
                return;
            }
            Err(error) => {
                // Out of descriptors, or a peer that is gone already. Strangers hold nobody up.
                if !is_failing {
                    tracing::warn!(%error, "connections wait: one can't be accepted");
                }
                is_failing = true;
                if let Some((oldest, _)) = strangers.pop_front() {
                    oldest.abort();
                }
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        is_failing = false;
        let local = stream.local_addr();
        if !local.is_ok_and(|local| peers.is_ours(peer, local)) {
            tracing::debug!("connection of another user dropped");
            continue;
        }
        while connections.try_join_next().is_some() {}
        strangers.retain(|(task, seat)| !task.is_finished() && !seat.is_taken());
        if strangers.len() >= MAX_STRANGERS
            && let Some((oldest, _)) = strangers.pop_front()
        {
            oldest.abort();
        }
        let Ok(stream) = stream.into_std() else {
            continue;
        };
        let place = lanes.next();
        let seat = Arc::new(Seat::new(&places));
        let loop_of = place.loop_of.clone();
        let serving = connection(stream, place, Arc::clone(&seat));
        let task = connections.spawn_on(serving, &loop_of);
        strangers.push_back((task, seat));
    }
}

/// Whether the socket itself is broken, and not one connection, nor the room for it.
fn is_lasting(error: &io::Error) -> bool {
    let broken = [
        Errno::EBADF,
        Errno::EINVAL,
        Errno::ENOTSOCK,
        Errno::EOPNOTSUPP,
    ];
    let code = error.raw_os_error().map(Errno::from_raw);
    code.is_some_and(|code| broken.contains(&code))
}

/// The place of one connection among those of codex, taken when it shows the secret.
#[derive(Debug)]
struct Seat {
    places: Arc<Semaphore>,
    place: OnceCell<OwnedSemaphorePermit>,
}

impl Seat {
    fn new(places: &Arc<Semaphore>) -> Self {
        Self {
            places: Arc::clone(places),
            place: OnceCell::new(),
        }
    }

    fn is_taken(&self) -> bool {
        self.place.initialized()
    }

    /// Waits for a place, if it isn't taken yet.
    async fn take(&self) {
        let place = || Arc::clone(&self.places).acquire_owned();
        // It can't fail: nobody closes the semaphore.
        let _ = self.place.get_or_try_init(place).await;
    }
}

async fn connection(stream: std::net::TcpStream, place: Place, seat: Arc<Seat>) {
    // Watched by the loop of this thread from here on.
    let Ok(stream) = TcpStream::from_std(stream) else {
        return;
    };
    let _ = stream.set_nodelay(true);
    let (hand_over, mut pumps) = mpsc::channel::<Pump>(1);
    let (leave, left) = leftovers();
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(leave.clone());
        let relay = Arc::clone(&place.relay);
        let hand_over = hand_over.clone();
        let seat = Arc::clone(&seat);
        async move { http::exchange(relay, request, hand_over, seat.take()).await }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .preserve_header_case(true)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(Portions::of(stream)), service)
        .with_upgrades();
    let served = tokio::select! {
        served = serving => served,
        never = left.drain() => match never {},
    };
    if let Err(error) = served {
        tracing::debug!(%error, "connection ended");
    }
    drop(hand_over);
    if let Some(pump) = pumps.recv().await {
        pump.await;
    }
}
