//! The network side of the tap: connections passed on byte for byte, and written down on the way.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::pieces::{Cutter, Piece};
use super::tape;
use crate::base::limits::FRAME_READ_BYTES;

/// The listeners of a tap, one for each port that it stands in front of.
#[derive(Debug)]
pub(super) struct Links {
    ports: BTreeMap<u16, u16>,
    tapes: Arc<Tapes>,
    tasks: JoinSet<()>,
}

impl Links {
    /// Makes links whose recordings go to `dir`.
    pub(super) fn new(dir: PathBuf) -> Self {
        let next = AtomicUsize::new(0);
        Self {
            ports: BTreeMap::new(),
            tapes: Arc::new(Tapes { dir, next }),
            tasks: JoinSet::new(),
        }
    }

    /// Finds or makes the port that stands in front of `target`.
    pub(super) async fn in_front_of(&mut self, target: u16) -> io::Result<u16> {
        if let Some(port) = self.ports.get(&target) {
            return Ok(*port);
        }
        if self.ports.len() >= MAX_PORTS {
            return Err(io::Error::other("too many ports to stand in front of"));
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let route = Route {
            own: listener.local_addr()?.port(),
            target,
        };
        self.tasks
            .spawn(accept(listener, route, Arc::clone(&self.tapes)));
        self.ports.insert(target, route.own);
        Ok(route.own)
    }
}

/// Where recordings go.
#[derive(Debug)]
struct Tapes {
    dir: PathBuf,
    next: AtomicUsize,
}

impl Tapes {
    /// Makes the next file; several taps may share a folder.
    async fn create(&self) -> io::Result<File> {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let path = self.dir.join(tape::file_name(number));
            match File::create_new(&path).await {
                Err(taken) if taken.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made,
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Route {
    own: u16,
    target: u16,
}

async fn accept(listener: TcpListener, route: Route, tapes: Arc<Tapes>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                // Made here, so that recordings are numbered in the order of opening.
                let Ok(tape) = tapes.create().await else { continue };
                connections.spawn(connect(stream, route, tape));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connect(mut codex: TcpStream, route: Route, tape: File) {
    let Ok(mut relay) = TcpStream::connect((Ipv4Addr::LOCALHOST, route.target)).await else {
        let _ = codex.set_zero_linger();
        return;
    };
    // Without delay, as each side had it: the tap must not change how reads fall.
    let _ = (codex.set_nodelay(true), relay.set_nodelay(true));
    let (from_codex, to_codex) = codex.split();
    let (from_relay, to_relay) = relay.split();
    let ended = tokio::try_join!(
        outward(from_codex, to_relay, route, tape),
        inward(from_relay, to_codex),
    );
    if ended.is_err() {
        // One side broke off: so does the other.
        let _ = (codex.set_zero_linger(), relay.set_zero_linger());
    }
}

async fn outward(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    route: Route,
    mut tape: File,
) -> io::Result<()> {
    let mut cutter = Cutter::new();
    loop {
        let buffer = cutter.buffer();
        let known = buffer.len();
        buffer.reserve(FRAME_READ_BYTES);
        if from.read_buf(buffer).await? == 0 {
            let unread = buffer.split();
            to.write_all(&unread).await?;
            return to.shutdown().await;
        }
        // Written down before it is passed on: what arrives at the end is on tape.
        tape.write_all(buffer.get(known..).unwrap_or_default())
            .await?;
        tape.flush().await?;
        while let Some(piece) = cutter.next_piece() {
            match piece {
                Piece::Head(_, bytes) => to.write_all(&renamed(&bytes, route)).await?,
                Piece::Body(bytes) | Piece::Framing(bytes) | Piece::Rest(bytes) => {
                    to.write_all(&bytes).await?;
                }
                Piece::End => {}
            }
        }
    }
}

async fn inward(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> io::Result<()> {
    tokio::io::copy(&mut from, &mut to).await?;
    to.shutdown().await
}

/// Puts the target's port into the `Host` header where it names the tap's own.
fn renamed(head: &Bytes, route: Route) -> Bytes {
    let own = format!("\r\nhost: 127.0.0.1:{}\r\n", route.own);
    let lower = head.to_ascii_lowercase();
    let Some(at) = memchr::memmem::find(&lower, own.as_bytes()) else {
        return head.clone();
    };
    let port_ends = at + own.len() - 2;
    let port_starts = port_ends - route.own.to_string().len();
    match (head.get(..port_starts), head.get(port_ends..)) {
        (Some(before), Some(after)) => [before, route.target.to_string().as_bytes(), after]
            .concat()
            .into(),
        _ => head.clone(),
    }
}

/// Says where recordings can go, and makes the folder if need be.
pub(super) async fn prepare(dir: &Path) -> io::Result<PathBuf> {
    tokio::fs::create_dir_all(dir).await?;
    tokio::fs::canonicalize(dir).await
}

/// Most ports that one tap stands in front of: a relay has one, and codex is told a few at most.
const MAX_PORTS: usize = 64;
