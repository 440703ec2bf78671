//! From a URL to a connection: name, TCP, proxy, TLS, each with its own deadline and its own words.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use http::uri::Scheme;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

use crate::base::chain::Chain;
use crate::base::limits::{CONNECT_DEADLINE, KEEPALIVE};
use crate::upstream::fault::{Fault, Hop, lowest};
use crate::upstream::hearing::Hearing;
use crate::upstream::proxy::{HTTPS_PORT, Kind, Proxies, Proxy, bare};
use crate::upstream::resolve::Resolver;
use crate::upstream::roots::{self, ExtraRoots, TlsError};
use crate::upstream::stream::{Duplex, Stream};
use crate::upstream::tunnel;

/// How the relay leaves this machine.
#[derive(Clone, Debug, Default)]
pub struct WayOut {
    /// Through which proxies.
    pub proxies: Proxies,
    /// Whom to trust beside the system's roots.
    pub roots: ExtraRoots,
    /// Whether upstreams must be on the public net.
    pub public_only: bool,
}

/// Makes connections.
#[derive(Clone, Debug)]
pub struct Dialer {
    inner: Arc<Inner>,
    speaks: Protocols,
}

#[derive(Debug)]
struct Inner {
    way: WayOut,
    tls: OnceCell<Tls>,
}

/// The configuration of TLS, once for each set of protocols that is offered.
#[derive(Clone, Debug)]
struct Tls {
    http1: Arc<ClientConfig>,
    both: Arc<ClientConfig>,
}

/// What is offered in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocols {
    /// HTTP/2, else HTTP/1.1.
    Both,
    /// HTTP/1.1: WebSockets need it.
    Http1,
}

impl Dialer {
    /// Dials by way of `way`.
    pub fn new(way: WayOut) -> Self {
        let tls = OnceCell::new();
        Self {
            inner: Arc::new(Inner { way, tls }),
            speaks: Protocols::Both,
        }
    }

    /// The same dialer for other protocols.
    #[must_use]
    pub fn speaking(&self, speaks: Protocols) -> Self {
        let inner = Arc::clone(&self.inner);
        Self { inner, speaks }
    }

    /// The proxy on the way to `uri`.
    pub fn proxy(&self, uri: &Uri) -> Option<&Proxy> {
        self.inner.way.proxies.choose(uri)
    }

    /// Reads the roots.
    pub async fn warm_up(&self) -> Result<(), Fault> {
        self.inner.tls().await.map(|_| ())
    }

    /// Connects to the host of `uri`.
    pub async fn dial(&self, uri: &Uri) -> Result<Stream, Fault> {
        let way = &self.inner.way;
        match way.proxies.choose(uri) {
            None => {
                let public_only = way.public_only;
                let tcp = tcp(uri, Resolver { public_only }).await?;
                self.secure(Hearing::new(tcp), uri).await
            }
            Some(proxy) => {
                let address = proxy.address();
                let url = proxy.url().ok_or_else(|| not_a_url(&address))?;
                let tcp = tcp(&url, Resolver { public_only: false })
                    .await
                    .map_err(|fault| fault.at_proxy(&address))?;
                self.through(tcp, uri, proxy).await
            }
        }
    }

    /// Goes on through the proxy at the other end of `tcp`.
    async fn through(&self, tcp: TcpStream, uri: &Uri, proxy: &Proxy) -> Result<Stream, Fault> {
        let address = proxy.address();
        let host = uri.host().unwrap_or_default();
        let target = format!("{host}:{}", uri.port_u16().unwrap_or(HTTPS_PORT));
        let late = |_| {
            let words = format!("{address}: no tunnel within {CONNECT_DEADLINE:?}");
            Fault::passing(Hop::Proxy, words)
        };
        match proxy.kind {
            Kind::Socks5 => {
                let asked = tunnel::socks(tcp, uri.clone(), proxy);
                let tcp = timeout(CONNECT_DEADLINE, asked).await.map_err(late)??;
                self.secure(Hearing::new(tcp), uri).await
            }
            Kind::Http => {
                let mut tcp = tcp;
                let asked = tunnel::connect(&mut tcp, &target, proxy);
                timeout(CONNECT_DEADLINE, asked).await.map_err(late)??;
                self.secure(Hearing::new(tcp), uri).await
            }
            Kind::Https => {
                let config = self.inner.tls().await?.http1;
                let mut tls = handshake(Hearing::new(tcp), proxy.host(), config)
                    .await
                    .map_err(|fault| fault.at_proxy(&address))?;
                let asked = tunnel::connect(&mut tls, &target, proxy);
                timeout(CONNECT_DEADLINE, asked).await.map_err(late)??;
                self.secure(tls, uri).await
            }
        }
    }

    /// Speaks TLS with the upstream where its URL says so.
    async fn secure(&self, stream: impl Duplex + 'static, uri: &Uri) -> Result<Stream, Fault> {
        if uri.scheme() != Some(&Scheme::HTTPS) {
            return Ok(Stream::new(stream, false));
        }
        let tls = self.inner.tls().await?;
        let config = match self.speaks {
            Protocols::Both => tls.both,
            Protocols::Http1 => tls.http1,
        };
        let stream = handshake(stream, bare(uri.host().unwrap_or_default()), config).await?;
        let is_h2 = stream.get_ref().1.alpn_protocol() == Some(H2);
        Ok(Stream::new(stream, is_h2))
    }
}

impl Inner {
    async fn tls(&self) -> Result<Tls, Fault> {
        let made = self.tls.get_or_try_init(|| async {
            let extra = self.way.roots.clone();
            let http1 = spawn_blocking(move || roots::config(&extra)).await??;
            let mut both = http1.clone();
            both.alpn_protocols = vec![H2.to_vec(), b"http/1.1".to_vec()];
            Ok(Tls {
                http1: Arc::new(http1),
                both: Arc::new(both),
            })
        });
        made.await
            .cloned()
            .map_err(|error: TlsError| Fault::lasting(Hop::Tls, Chain(&error).to_string()))
    }
}

/// Connects by TCP, to whichever address of the host answers first.
async fn tcp(uri: &Uri, resolver: Resolver) -> Result<TcpStream, Fault> {
    let mut connector = HttpConnector::new_with_resolver(resolver);
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE));
    connector.set_connect_timeout(Some(CONNECT_DEADLINE));
    let connected = timeout(CONNECT_DEADLINE, connector.call(uri.clone())).await;
    match connected {
        Ok(Ok(stream)) => Ok(stream.into_inner()),
        Ok(Err(error)) => Err(said(&error)),
        Err(_) => Err(Fault::passing(
            Hop::Connect,
            format!("no answer within {CONNECT_DEADLINE:?}"),
        )),
    }
}

/// The fault of the resolver, or the one of TCP.
fn said(error: &(dyn std::error::Error + 'static)) -> Fault {
    let fault = Fault::of(error);
    if fault.hop == Hop::Upstream {
        return Fault::passing(Hop::Connect, lowest(error));
    }
    fault
}

async fn handshake<S: Duplex>(
    stream: S,
    host: &str,
    config: Arc<ClientConfig>,
) -> Result<TlsStream<S>, Fault> {
    let name = ServerName::try_from(host.to_owned()).map_err(|_| not_a_url(host))?;
    let shaken = TlsConnector::from(config).connect(name, stream);
    match timeout(CONNECT_DEADLINE, shaken).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(Fault::of_handshake(&error)),
        Err(_) => Err(Fault::passing(
            Hop::Tls,
            format!("no handshake within {CONNECT_DEADLINE:?}"),
        )),
    }
}

fn not_a_url(host: &str) -> Fault {
    Fault::lasting(Hop::Connect, format!("{host} is not the name of a host"))
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<Stream>;
    type Error = Fault;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Fault>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let stream = this.dial(&uri).await?;
            Ok(TokioIo::new(stream))
        })
    }
}

/// HTTP/2 in the handshake.
const H2: &[u8] = b"h2";
