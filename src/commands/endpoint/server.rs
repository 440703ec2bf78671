//! A small model endpoint on loopback that writes down what arrives and answers from a script.
//!
//! It serves `codex-relay demo` and the tests on the real codex. HTTP is hyper's, the WebSocket is
//! tungstenite's: neither shares code with the relay's own paths, so it is a witness of them.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::journal::{Journal, Scribe, WaitError};
use super::reply::{Reply, Script, Step, Upgrade};
use super::sockets;
use crate::commands::witness::{Head, Kind, Recorded};

/// A running endpoint; dropping it ends its connections.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    scribe: Scribe,
    _tasks: JoinSet<()>,
}

impl Endpoint {
    /// Starts an endpoint on a port of the system's choice on 127.0.0.1.
    pub async fn start(script: impl Script) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let scribe = Scribe::default();
        let desk = Arc::new(Desk {
            script: Box::new(script),
            scribe: scribe.clone(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, desk));
        Ok(Self {
            address,
            scribe,
            _tasks: tasks,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL that codex or the relay is given.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Everything seen so far.
    pub fn journal(&self) -> Journal {
        self.scribe.so_far()
    }

    /// Requests to the model seen so far.
    pub fn model_requests(&self) -> Vec<Arc<Recorded>> {
        self.journal().model_requests().cloned().collect()
    }

    /// Waits until `find` finds something in the journal; it is asked anew after each arrival.
    pub async fn wait_for<T>(
        &self,
        deadline: Duration,
        find: impl FnMut(&Journal) -> Option<T>,
    ) -> Result<T, WaitError> {
        self.scribe.wait_for(deadline, find).await
    }
}

/// What the connections of one endpoint share.
pub(super) struct Desk {
    pub(super) script: Box<dyn Script>,
    pub(super) scribe: Scribe,
}

/// An accepted upgrade that waits for its connection to be handed over.
type Pending = Mutex<Option<(OnUpgrade, Head)>>;

type Body = BoxBody<Bytes, Dropped>;

/// The script wants the connection dropped, or the request can't be served.
#[derive(Debug, thiserror::Error)]
#[error("connection dropped")]
struct Dropped;

async fn accept(listener: TcpListener, desk: Arc<Desk>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                // A connection that died while it waited is no reason to stop.
                let Ok((stream, _)) = accepted else { continue };
                let number = desk.scribe.open();
                connections.spawn(serve(Arc::clone(&desk), stream, number));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(desk: Arc<Desk>, stream: TcpStream, connection: usize) {
    let pending = Pending::default();
    let service = service_fn(|request| exchange(&desk, connection, &pending, request));
    let served = http1::Builder::new()
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
    let upgraded = pending
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let close = match (served, upgraded) {
        (Ok(()), Some((upgrade, head))) => match upgrade.await {
            Ok(stream) => sockets::serve(&desk, connection, head, TokioIo::new(stream)).await,
            Err(_) => None,
        },
        _ => None,
    };
    desk.scribe.end(connection, close);
}

async fn exchange(
    desk: &Desk,
    connection: usize,
    pending: &Pending,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Dropped> {
    let head = head_of(&request);
    if head.is_upgrade() {
        let seen = desk
            .scribe
            .write(connection, Kind::Upgrade, head.clone(), Bytes::new());
        let headers = match desk.script.upgrade(&*seen.ok_or(Dropped)?) {
            Upgrade::Refuse(reply) => return answer(reply).await,
            Upgrade::Accept(headers) => headers,
            Upgrade::AcceptAfter(signal) => {
                signal.given().await;
                Vec::new()
            }
        };
        let upgrade = hyper::upgrade::on(&mut request);
        let switch = switch(&head, headers).ok_or(Dropped)?;
        *pending.lock().unwrap_or_else(PoisonError::into_inner) = Some((upgrade, head));
        return Ok(switch);
    }
    let body = read(request.into_body()).await?;
    let seen = desk.scribe.write(connection, Kind::Http, head, body);
    let seen = seen.ok_or(Dropped)?;
    if seen.is_model_request() {
        answer(desk.script.reply(&seen)).await
    } else {
        answer(desk.script.other(&seen)).await
    }
}

fn head_of(request: &Request<Incoming>) -> Head {
    let headers = request.headers().iter();
    Head {
        method: request.method().as_str().to_owned(),
        target: request.uri().to_string(),
        headers: headers
            .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
            .collect(),
    }
}

async fn read(mut body: Incoming) -> Result<Bytes, Dropped> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(|_| Dropped)?.into_data() else {
            continue;
        };
        if whole.len().saturating_add(piece.len()) > MAX_BODY_BYTES {
            return Err(Dropped);
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

fn switch(head: &Head, headers: Vec<(String, String)>) -> Option<Response<Body>> {
    let key = head.header("sec-websocket-key")?;
    let mut response = Response::new(Full::default().map_err(never).boxed());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let fixed = response.headers_mut();
    fixed.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    fixed.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    let accept = HeaderValue::try_from(derive_accept_key(key)).ok()?;
    fixed.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    add(&mut response, headers)?;
    Some(response)
}

async fn answer(reply: Reply) -> Result<Response<Body>, Dropped> {
    let mut steps = reply.steps.into_iter().peekable();
    while let Some(Step::Await(signal)) = steps.next_if(|step| matches!(step, Step::Await(_))) {
        signal.given().await;
    }
    if matches!(steps.peek(), Some(Step::Drop | Step::Close { .. })) {
        return Err(Dropped);
    }
    let mut steps: Vec<_> = steps.collect();
    let body = match steps.as_mut_slice() {
        [] => Full::default().map_err(never).boxed(),
        [Step::Raw(only)] => Full::new(std::mem::take(only)).map_err(never).boxed(),
        _ => BodyExt::boxed(StreamBody::new(stream::unfold(
            steps.into_iter(),
            next_frame,
        ))),
    };
    let mut response = Response::new(body);
    *response.status_mut() = reply.status;
    add(&mut response, reply.headers).ok_or(Dropped)?;
    Ok(response)
}

async fn next_frame(
    mut steps: std::vec::IntoIter<Step>,
) -> Option<(Result<Frame<Bytes>, Dropped>, std::vec::IntoIter<Step>)> {
    loop {
        let frame = match steps.next()? {
            Step::Await(signal) => {
                signal.given().await;
                continue;
            }
            Step::Close { .. } | Step::Drop => Err(Dropped),
            Step::Event(event) => Ok(Frame::data(event_text(&event).into())),
            Step::Raw(bytes) => Ok(Frame::data(bytes)),
        };
        return Some((frame, steps));
    }
}

fn event_text(event: &serde_json::Value) -> String {
    let name = event.get("type").and_then(serde_json::Value::as_str);
    format!("event: {}\ndata: {event}\n\n", name.unwrap_or("message"))
}

fn add(response: &mut Response<Body>, headers: Vec<(String, String)>) -> Option<()> {
    for (name, value) in headers {
        let name = HeaderName::try_from(name).ok()?;
        let value = HeaderValue::try_from(value).ok()?;
        response.headers_mut().append(name, value);
    }
    Some(())
}

fn never(impossible: Infallible) -> Dropped {
    match impossible {}
}

/// Most connections that are served at once; others wait to be accepted.
const MAX_CONNECTIONS: usize = 256;

/// Longest head of a request: codex's metadata header can grow with its workspaces.
const MAX_HEAD_BYTES: usize = 4 << 20;

/// Longest body or message: well over what codex was seen to send (73 MB).
pub(super) const MAX_BODY_BYTES: usize = 160 << 20;

#[cfg(test)]
mod tests {
    use futures_util::{SinkExt, StreamExt};
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_tungstenite::client_async;
    use tokio_tungstenite::tungstenite::Message;

    use super::super::reply::{OverHttp, Signal};
    use super::*;

    const GENEROUS: Duration = Duration::from_secs(30);

    async fn post(endpoint: &Endpoint, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(endpoint.address()).await.unwrap();
        let length = body.len();
        let head = format!(
            "POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all((head + body).as_bytes()).await.unwrap();
        stream
    }

    #[tokio::test]
    async fn answer_is_held_back_until_its_signal() {
        let signal = Signal::new();
        let held = signal.clone();
        let reply = move |_: &Recorded| Reply::events([json!({"type": "a"})]).after(&held);
        let endpoint = Endpoint::start(OverHttp(reply)).await.unwrap();
        let mut stream = post(&endpoint, "{\"n\":1e400}").await;
        let seen = endpoint
            .wait_for(GENEROUS, |journal| journal.requests.first().cloned())
            .await
            .unwrap();
        assert_eq!(seen.body, b"{\"n\":1e400}"[..]);
        assert_eq!(
            stream.try_read(&mut [0]).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        signal.give();
        let mut answer = vec![0; 4096];
        let mut filled = 0;
        while !answer[..filled].ends_with(b"\r\n0\r\n\r\n") {
            let read = stream.read(&mut answer[filled..]).await.unwrap();
            assert_ne!(read, 0);
            filled += read;
        }
        let answer = String::from_utf8_lossy(&answer[..filled]);
        assert!(
            answer.contains("event: a\ndata: {\"type\":\"a\"}\n\n"),
            "{answer}"
        );
    }

    #[tokio::test]
    async fn message_on_a_socket_is_written_down_and_answered() {
        let reply = |request: &Recorded| match &request.body[..] {
            b"one" => Reply::events([json!({"type": "a"})]).then([Step::Await(Signal::new())]),
            _ => Reply::steps([Step::Close {
                code: 1009,
                reason: "big".to_owned(),
            }])
            .superseding(),
        };
        let endpoint = Endpoint::start(reply).await.unwrap();
        let stream = TcpStream::connect(endpoint.address()).await.unwrap();
        let url = format!("ws://{}/v1/responses", endpoint.address());
        let (mut socket, _) = client_async(url, stream).await.unwrap();
        socket.send(Message::text("one")).await.unwrap();
        assert_eq!(
            socket.next().await.unwrap().unwrap(),
            Message::text("{\"type\":\"a\"}")
        );
        socket.send(Message::text("two")).await.unwrap();
        assert!(socket.next().await.unwrap().unwrap().is_close());
        drop(socket);
        let journal = endpoint
            .wait_for(GENEROUS, |journal| {
                journal.ended.first().map(|_| journal.clone())
            })
            .await
            .unwrap();
        let kinds: Vec<_> = journal.requests.iter().map(|seen| seen.kind).collect();
        assert_eq!(kinds, [Kind::Upgrade, Kind::Message, Kind::Message]);
        assert_eq!(journal.requests[2].body, b"two"[..]);
        assert_eq!(journal.requests[2].head.target, "/v1/responses");
    }
}
