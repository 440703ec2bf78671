//! An upstream that can die at any moment: it keeps what arrived whole, and streams its answers.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A running upstream.
#[derive(Debug)]
pub(crate) struct FragileUpstream {
    pub(crate) address: SocketAddr,
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
    deaths: watch::Sender<u64>,
    _server: JoinSet<()>,
}

impl FragileUpstream {
    /// Starts it.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let bodies: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let deaths = watch::Sender::new(0);
        let mut server = JoinSet::new();
        server.spawn(serve(listener, Arc::clone(&bodies), deaths.subscribe()));
        Self {
            address,
            bodies,
            deaths,
            _server: server,
        }
    }

    /// Cuts every connection that is open.
    pub(crate) fn die(&self) {
        self.deaths.send_modify(|count| *count += 1);
    }

    /// Takes the bodies that arrived whole.
    pub(crate) fn take_bodies(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.bodies.lock().unwrap())
    }
}

async fn serve(
    listener: TcpListener,
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
    deaths: watch::Receiver<u64>,
) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            return;
        };
        let bodies = Arc::clone(&bodies);
        let mut deaths = deaths.clone();
        deaths.mark_unchanged();
        while connections.try_join_next().is_some() {}
        connections.spawn(async move {
            tokio::select! {
                _ = deaths.changed() => {}
                _ = answer_all(stream, &bodies) => {}
            }
        });
    }
}

/// Answers requests with a stream of ten events each; nothing when the connection ends.
async fn answer_all(mut stream: TcpStream, bodies: &Mutex<Vec<Vec<u8>>>) -> Option<()> {
    let mut buffer = Vec::new();
    loop {
        let head = loop {
            if let Some(at) = memchr::memmem::find(&buffer, b"\r\n\r\n") {
                break at + 4;
            }
            (stream.read_buf(&mut buffer).await.ok()? > 0).then_some(())?;
        };
        let text = String::from_utf8_lossy(&buffer[..head]).to_ascii_lowercase();
        let (_, length) = text.split_once("content-length: ")?;
        let length: usize = length.split("\r\n").next()?.parse().ok()?;
        while buffer.len() < head + length {
            (stream.read_buf(&mut buffer).await.ok()? > 0).then_some(())?;
        }
        let rest = buffer.split_off(head + length);
        bodies.lock().unwrap().push(buffer.split_off(head));
        buffer = rest;
        let answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(answer).await.ok()?;
        for _ in 0..10 {
            stream.write_all(b"b\r\ndata: one\n\n\r\n").await.ok()?;
            tokio::task::yield_now().await;
        }
        stream.write_all(b"0\r\n\r\n").await.ok()?;
    }
}
