//! The private endpoint: loopback alone, a bounded number of connections, each with an owner.

use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::errno::Errno;
use tokio::io;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::base::limits::{
    ACCEPT_PAUSE, HEAD_DEADLINE, MAX_CONNECTIONS, MAX_HEAD_BYTES, MAX_HEADERS,
};
use crate::exchange::admission::Gate;
use crate::exchange::plan::OnUnrecognized;
use crate::feed::source::Feed;
use crate::relay::budget::Budget;
use crate::relay::http;
use crate::session::shared::SharedSession;
use crate::upstream::client::Upstream;
use crate::upstream::destination::Destination;

/// What every exchange shares.
#[derive(Debug)]
pub struct Relay {
    /// Who may speak.
    pub gate: Gate,
    /// Which requests get which text.
    pub session: SharedSession,
    /// Where contexts come from.
    pub feed: Feed,
    /// How an upstream is chosen.
    pub destination: Destination,
    /// The way there.
    pub upstream: Upstream,
    /// What happens to requests that can't be read.
    pub on_unrecognized: OnUnrecognized,
    /// The memory for messages in flight.
    pub budget: Budget,
}

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
pub async fn serve(listener: TcpListener, relay: Arc<Relay>, mut closed: watch::Receiver<u64>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        // Over the bound a connection waits in the system's backlog.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Ok(()) = closed.changed() => {
                connections.abort_all();
                continue;
            }
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) if is_lasting(&error) => {
                tracing::error!(%error, "the private endpoint accepts no more connections");
                return;
            }
            Err(error) => {
                // Out of descriptors, or a peer that is gone already: others may end meanwhile.
                tracing::warn!(%error, "connection not accepted");
                drop(place);
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        let relay = Arc::clone(&relay);
        connections.spawn(async move {
            connection(stream, relay).await;
            drop(place);
        });
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

async fn connection(stream: TcpStream, relay: Arc<Relay>) {
    let _ = stream.set_nodelay(true);
    let (hand_over, mut pumps) = mpsc::channel::<Pump>(1);
    let service = service_fn(move |request| {
        let relay = Arc::clone(&relay);
        let hand_over = hand_over.clone();
        async move { http::exchange(relay, request, hand_over).await }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .preserve_header_case(true)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "connection ended");
    }
    if let Some(pump) = pumps.recv().await {
        pump.await;
    }
}
