//! An upstream's front: TLS with a certificate of a private authority, in front of an endpoint.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// A private authority.
#[derive(Debug)]
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate.
    pub(crate) pem: String,
}

impl Authority {
    /// Makes one with a name of its own.
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { issuer, pem }
    }

    /// Writes its certificate into a folder.
    pub(crate) fn file(&self, folder: &Path) -> PathBuf {
        let path = folder.join("authority.pem");
        std::fs::write(&path, &self.pem).unwrap();
        path
    }

    /// What speaks TLS in the name of `name`, with HTTP/1.1.
    pub(crate) fn acceptor(&self, name: &str) -> TlsAcceptor {
        TlsAcceptor::from(Arc::new(self.server(name, 2100)))
    }

    fn server(&self, name: &str, until: i32) -> ServerConfig {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap()
    }
}

/// What stands behind the TLS.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Behind {
    /// An endpoint that speaks HTTP/1.1.
    Endpoint(SocketAddr),
    /// A service that answers with the version of HTTP, and speaks HTTP/2 where it may.
    Versions,
    /// A service that ends each connection after one answer, without a word about it.
    OneAnswer,
    /// A service over HTTP/2 whose answers break off.
    HalfAnswers,
}

/// A running front; dropping it ends its connections.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Front {
    /// Starts a front for `name` whose certificate is good.
    pub(crate) async fn start(authority: &Authority, name: &str, behind: Behind) -> Self {
        Self::until(authority, name, behind, 2100).await
    }

    /// Starts a front whose certificate is good until that year.
    pub(crate) async fn until(
        authority: &Authority,
        name: &str,
        behind: Behind,
        year: i32,
    ) -> Self {
        let mut config = authority.server(name, year);
        let protocols: &[&[u8]] = match behind {
            Behind::Versions | Behind::HalfAnswers => &[b"h2", b"http/1.1"],
            Behind::Endpoint(_) | Behind::OneAnswer => &[b"http/1.1"],
        };
        config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(acceptor.clone(), stream, behind));
            }
        });
        Self {
            address,
            _tasks: tasks,
        }
    }
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream, behind: Behind) {
    let Ok(mut stream) = acceptor.accept(stream).await else {
        return;
    };
    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    match behind {
        Behind::Endpoint(address) => {
            let mut endpoint = TcpStream::connect(address).await.unwrap();
            let _ = copy_bidirectional(&mut stream, &mut endpoint).await;
        }
        Behind::Versions if is_h2 => {
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = builder
                .serve_connection(TokioIo::new(stream), service_fn(version))
                .await;
        }
        Behind::HalfAnswers => {
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = builder
                .serve_connection(TokioIo::new(stream), service_fn(half))
                .await;
        }
        Behind::Versions => {
            let builder = hyper::server::conn::http1::Builder::new();
            let _ = builder
                .serve_connection(TokioIo::new(stream), service_fn(version))
                .await;
        }
        Behind::OneAnswer => {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nHTTP/1.1";
            let _ = stream.write_all(answer).await;
            let _ = stream.flush().await;
            let _ = stream.shutdown().await;
        }
    }
}

async fn version(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let version = format!("{:?}", request.version());
    Ok(Response::new(Full::new(version.into())))
}

async fn half(_: Request<Incoming>) -> Result<Response<Half>, hyper::Error> {
    Ok(Response::new(Half(Some(Bytes::from_static(b"half")))))
}

/// A body that breaks off behind its first part.
struct Half(Option<Bytes>);

impl http_body::Body for Half {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let part = self.0.take().map(Frame::data);
        Poll::Ready(Some(part.ok_or_else(|| std::io::Error::other("half"))))
    }
}
