//! Requests to the upstream over pooled connections.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::base::limits::{IDLE_UPSTREAM, KEEPALIVE, MAX_HEADERS, MAX_IDLE_UPSTREAM};
use crate::upstream::dial::{Dialer, Protocols, WayOut};
use crate::upstream::proxy::Proxy;
use crate::upstream::stream::Kill;

/// A request body on its way to the upstream.
pub type OutBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// The way out: one pool for requests, HTTP/2 where the upstream speaks it, and one of HTTP/1.1
/// connections for WebSockets, which need them.
#[derive(Clone, Debug)]
pub struct Upstream {
    dialer: Dialer,
    exchange: Client<Dialer, OutBody>,
    upgrade: Client<Dialer, OutBody>,
}

/// Whether a request asks for another protocol on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// A request with its response.
    Exchange,
    /// A WebSocket handshake.
    Upgrade,
}

impl Upstream {
    /// Goes out by `way`.
    pub fn new(way: WayOut) -> Self {
        Self::over(Dialer::new(way))
    }

    /// The same way out, with connections of its own.
    #[must_use]
    pub fn beside(&self) -> Self {
        Self::over(self.dialer.clone())
    }

    fn over(dialer: Dialer) -> Self {
        Self {
            exchange: client(dialer.speaking(Protocols::Both)),
            upgrade: client(dialer.speaking(Protocols::Http1)),
            dialer,
        }
    }

    /// Sends `request` to the host of its URL and gives the head of the response.
    ///
    /// A request that may have reached the upstream is never sent twice. There is no deadline on
    /// the response: a model may be silent for minutes. Dropped before the response is there, it
    /// takes the request's connection with it, so that no more of the body goes up.
    ///
    /// # Errors
    /// [`Fault::of`](crate::upstream::fault::Fault::of) says where it failed.
    pub async fn send(
        &self,
        mut request: Request<OutBody>,
        usage: Usage,
    ) -> Result<Response<Incoming>, Error> {
        let client = match usage {
            Usage::Exchange => &self.exchange,
            Usage::Upgrade => &self.upgrade,
        };
        let mut hang_up = HangUp(Some(capture_connection(&mut request)));
        let response = client.request(request).await;
        hang_up.0 = None;
        response
    }

    /// The proxy on the way to `uri`, without its credentials.
    pub fn proxy(&self, uri: &Uri) -> Option<String> {
        self.dialer.proxy(uri).map(Proxy::address)
    }

    /// Reads the roots before the first request needs them.
    pub async fn warm_up(&self) {
        if let Err(fault) = self.dialer.warm_up().await {
            tracing::debug!(%fault, "TLS isn't ready");
        }
    }
}

/// Cuts the connection of a request whose response nobody waits for any more.
struct HangUp(Option<CaptureConnection>);

impl Drop for HangUp {
    fn drop(&mut self) {
        let Some(captured) = &self.0 else {
            return;
        };
        // A stream of HTTP/2 is reset by itself; the connection has others.
        if let Some(connected) = captured.connection_metadata().as_ref()
            && !connected.is_negotiated_h2()
        {
            let mut extras = http::Extensions::new();
            connected.get_extras(&mut extras);
            if let Some(kill) = extras.get::<Kill>() {
                kill.now();
            }
        }
    }
}

fn client(dialer: Dialer) -> Client<Dialer, OutBody> {
    Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_UPSTREAM)
        .pool_max_idle_per_host(MAX_IDLE_UPSTREAM)
        // A model may be silent, its machine answers all the same: a dead connection is noticed.
        .http2_keep_alive_interval(KEEPALIVE)
        .http2_keep_alive_timeout(KEEPALIVE)
        .http1_preserve_header_case(true)
        // Who passes such heads on mends them (RFC 9112, sections 5.1 and 5.2).
        .http1_allow_obsolete_multiline_headers_in_responses(true)
        .http1_allow_spaces_after_header_name_in_responses(true)
        .http1_max_headers(MAX_HEADERS)
        .build(dialer)
}

/// Lifts the error of a body that can't fail into the one of [`OutBody`].
pub fn never(error: Infallible) -> Box<dyn std::error::Error + Send + Sync> {
    match error {}
}
