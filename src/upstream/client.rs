//! Requests to the upstream over pooled connections.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

use crate::base::limits::{CONNECT_DEADLINE, IDLE_UPSTREAM, MAX_IDLE_UPSTREAM};
use crate::upstream::tls::{self, TlsError};

/// A request body on its way to the upstream.
pub type OutBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// The way out: one pool for requests, HTTP/2 where the upstream speaks it, and one of HTTP/1.1
/// connections for WebSockets, which need them.
#[derive(Debug, Default)]
pub struct Upstream {
    tls: OnceCell<Arc<Clients>>,
    plain: OnceCell<Arc<Clients>>,
}

/// Whether a request asks for another protocol on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// A request with its response.
    Exchange,
    /// A WebSocket handshake.
    Upgrade,
}

/// Why a request got no response.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The connection, or the upstream on it.
    #[error("request failed")]
    Request(#[from] Error),
    /// TLS can't be set up on this machine.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The thread that reads the roots failed.
    #[error("reading the root certificates failed")]
    Roots(#[from] tokio::task::JoinError),
}

#[derive(Debug)]
struct Clients {
    exchange: Client<HttpsConnector<HttpConnector>, OutBody>,
    upgrade: Client<HttpsConnector<HttpConnector>, OutBody>,
}

impl Upstream {
    /// Sends `request` to the host of its URL and gives the head of the response.
    ///
    /// A request that may have reached the upstream is never sent twice. There is no deadline on
    /// the response: a model may be silent for minutes.
    pub async fn send(
        &self,
        request: Request<OutBody>,
        usage: Usage,
    ) -> Result<Response<Incoming>, SendError> {
        let is_tls = request.uri().scheme() == Some(&http::uri::Scheme::HTTPS);
        let clients = self.clients(is_tls).await?;
        let client = match usage {
            Usage::Exchange => &clients.exchange,
            Usage::Upgrade => &clients.upgrade,
        };
        Ok(client.request(request).await?)
    }

    /// Reads the roots before the first request needs them.
    pub async fn warm_up(&self) {
        if let Err(error) = self.clients(true).await {
            tracing::debug!(%error, "TLS isn't ready");
        }
    }

    async fn clients(&self, is_tls: bool) -> Result<Arc<Clients>, SendError> {
        if is_tls {
            let made = self.tls.get_or_try_init(|| async {
                let config = spawn_blocking(tls::config).await??;
                Ok::<_, SendError>(Arc::new(Clients::new(config)))
            });
            return made.await.map(Arc::clone);
        }
        // Loopback without TLS: the connector wants a configuration that it will not use.
        let made = self.plain.get_or_try_init(|| async {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(TlsError::from)?
                .with_root_certificates(RootCertStore::empty())
                .with_no_client_auth();
            Ok::<_, SendError>(Arc::new(Clients::new(config)))
        });
        made.await.map(Arc::clone)
    }
}

impl Clients {
    fn new(tls: ClientConfig) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_DEADLINE));
        let both = HttpsConnectorBuilder::new()
            .with_tls_config(tls.clone())
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(tcp.clone());
        let http1 = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        Self {
            exchange: client(both),
            upgrade: client(http1),
        }
    }
}

fn client(
    connector: HttpsConnector<HttpConnector>,
) -> Client<HttpsConnector<HttpConnector>, OutBody> {
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_UPSTREAM)
        .pool_max_idle_per_host(MAX_IDLE_UPSTREAM)
        .http1_preserve_header_case(true)
        .http1_max_headers(crate::base::limits::MAX_HEADERS)
        .build(connector)
}

/// Lifts the error of a body that can't fail into the one of [`OutBody`].
pub fn never(error: Infallible) -> Box<dyn std::error::Error + Send + Sync> {
    match error {}
}
