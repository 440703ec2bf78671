//! The way to an exec-server, with everything written down that passes.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::{accept_hdr_async, client_async};

use super::far::Door;

/// A WebSocket server here that leads to the one there, message by message.
#[derive(Debug)]
pub(crate) struct Bridge {
    address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Shared {
    door: Mutex<Option<Door>>,
    record: Mutex<Record>,
    /// No message passes while it says so.
    is_held: watch::Sender<bool>,
    /// Counts the cuts: connections that see it change end.
    cuts: watch::Sender<usize>,
}

/// What has passed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// The heads of the requests that opened connections.
    pub(crate) heads: Vec<String>,
    /// The messages, both ways, in order.
    pub(crate) messages: Vec<Vec<u8>>,
}

impl Bridge {
    /// Builds it on a port of the system's choice, leading nowhere.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::<Shared>::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        Self {
            address,
            shared,
            _tasks: tasks,
        }
    }

    /// What codex is given for the exec-server.
    pub(crate) fn url(&self) -> String {
        format!("ws://{}", self.address)
    }

    /// Leads to a server from now on; nothing: whoever comes is sent away.
    pub(crate) fn lead(&self, door: Option<Door>) {
        *self.shared.door.lock().unwrap() = door;
    }

    /// Ends all connections, without a word to either side.
    pub(crate) fn cut(&self) {
        self.shared.cuts.send_modify(|it| *it += 1);
    }

    /// Lets no message pass, or lets them pass again; they are written down as they come.
    pub(crate) fn hold(&self, is_held: bool) {
        self.shared.is_held.send_replace(is_held);
    }

    /// What has passed so far.
    pub(crate) fn record(&self) -> Record {
        self.shared.record.lock().unwrap().clone()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((near, _)) = accepted else { continue };
                let shared = Arc::clone(&shared);
                connections.spawn(async move { connect(near, &shared).await });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connect(near: TcpStream, shared: &Shared) {
    let mut cuts = shared.cuts.subscribe();
    cuts.mark_unchanged();
    let door = shared.door.lock().unwrap().clone();
    let way = async {
        match door {
            Some(door) => pass(near, door.connect().await.ok()?, &door, shared).await,
            None => send_away(near).await,
        }
    };
    tokio::select! {
        _ = way => {}
        _ = cuts.changed() => {}
    }
}

/// Answers that there is nobody.
async fn send_away(mut near: TcpStream) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(near.read_u8().await.ok()?);
    }
    let answer =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    near.write_all(answer.as_bytes()).await.ok()
}

/// Passes messages until either side ends.
#[expect(clippy::result_large_err, reason = "the library's own callback type")]
async fn pass(near: TcpStream, far: TcpStream, door: &Door, shared: &Shared) -> Option<()> {
    let note = |request: &Request, response: Response| {
        let head = format!("{} {:?}", request.uri(), request.headers());
        shared.record.lock().unwrap().heads.push(head);
        Ok(response)
    };
    let mut near = accept_hdr_async(near, note).await.ok()?;
    let (mut far, _) = client_async(door.url(), far).await.ok()?;
    let mut is_held = shared.is_held.subscribe();
    loop {
        let (message, is_outward) = tokio::select! {
            message = near.next() => (message?.ok()?, true),
            message = far.next() => (message?.ok()?, false),
        };
        write_down(shared, &message);
        is_held.wait_for(|it| !it).await.ok()?;
        let to = if is_outward { &mut far } else { &mut near };
        to.send(message).await.ok()?;
    }
}

fn write_down(shared: &Shared, message: &Message) {
    if matches!(message, Message::Text(_) | Message::Binary(_)) {
        let bytes = message.clone().into_data().to_vec();
        shared.record.lock().unwrap().messages.push(bytes);
    }
}
