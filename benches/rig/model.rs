//! The model endpoint: threads that answer, then check what came and keep count.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use codex_relay::wire::frames::{FrameHead, OpCode, Parsed, apply_mask};

use super::client::Wire;
use super::process::now_ns;
use super::tls::{self, Identity};
use super::zip;

/// A running endpoint, plain and with TLS.
pub(crate) struct Model {
    pub(crate) plain: SocketAddr,
    pub(crate) secure: SocketAddr,
    pub(crate) ledger: Arc<Ledger>,
}

/// What must arrive, and what did.
#[derive(Default)]
pub(crate) struct Ledger {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    expected: Arc<Expected>,
    seen: u64,
    wrong: u64,
    bytes: u64,
}

/// What a body must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Expected {
    #[default]
    Anything,
    Exactly(Vec<u8>),
    /// Compressed by whoever sent it last.
    Inflated(Vec<u8>),
}

impl Ledger {
    /// Starts a new count of bodies that must be `expected`.
    pub(crate) fn expect(&self, expected: &Arc<Expected>) {
        *self.state.lock().unwrap() = State {
            expected: Arc::clone(expected),
            ..State::default()
        };
    }

    fn note(&self, body: &[u8]) {
        let expected = Arc::clone(&self.state.lock().unwrap().expected);
        let is_right = match &*expected {
            Expected::Anything => true,
            Expected::Exactly(bytes) => body == bytes,
            Expected::Inflated(bytes) => zip::inflate(body) == *bytes,
        };
        let mut state = self.state.lock().unwrap();
        state.seen += 1;
        state.bytes += body.len() as u64;
        state.wrong += u64::from(!is_right);
        self.changed.notify_all();
    }

    /// Waits until `count` bodies were checked; panics if one of them was wrong.
    pub(crate) fn settle(&self, count: u64) {
        let state = self.state.lock().unwrap();
        let waiting = self
            .changed
            .wait_timeout_while(state, PATIENCE, |state| state.seen < count);
        let (state, timed_out) = waiting.unwrap();
        assert!(!timed_out.timed_out(), "{} of {count} arrived", state.seen);
        assert!(state.wrong == 0, "{} bodies arrived changed", state.wrong);
    }
}

impl Model {
    pub(crate) fn start(identity: &Identity) -> Self {
        let ledger = Arc::<Ledger>::default();
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (plain, secure) = (listen(), listen());
        let model = Self {
            plain: plain.local_addr().unwrap(),
            secure: secure.local_addr().unwrap(),
            ledger: Arc::clone(&ledger),
        };
        let held = Arc::clone(&ledger);
        accept(plain, move |stream| serve(stream, &held));
        let config = Arc::clone(&identity.server);
        accept(secure, move |stream| {
            serve(tls::accept(stream, &config), &ledger)
        });
        model
    }
}

fn accept(
    listener: TcpListener,
    answer: impl Fn(TcpStream) -> Option<()> + Clone + Send + 'static,
) {
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answer = answer.clone();
            stream.set_nodelay(true).unwrap();
            thread::spawn(move || answer(stream));
        }
    });
}

/// Answers requests until the connection ends.
fn serve(mut wire: impl Wire, ledger: &Ledger) -> Option<()> {
    let mut buffer = vec![0; FIRST_BYTES];
    let mut filled = 0;
    loop {
        let head = loop {
            if let Some(at) = memchr::memmem::find(&buffer[..filled], b"\r\n\r\n") {
                break at + 4;
            }
            filled += read(&mut wire, &mut buffer[filled..])?;
        };
        let text = String::from_utf8_lossy(&buffer[..head]).to_ascii_lowercase();
        let value = |name: &str| {
            let (_, rest) = text.split_once(&format!("\r\n{name}: "))?;
            Some(rest.split("\r\n").next()?.to_owned())
        };
        if value("upgrade").is_some() {
            wire.write_all(SWITCHING).ok()?;
            let early = buffer[head..filled].to_vec();
            return talk(wire, early, ledger);
        }
        let length: usize = value("content-length").map_or(0, |it| it.parse().unwrap());
        let whole = head + length;
        if buffer.len() < whole + FIRST_BYTES {
            buffer.resize(whole + FIRST_BYTES, 0);
        }
        while filled < whole {
            filled += read(&mut wire, &mut buffer[filled..])?;
        }
        match value("x-rig").as_deref() {
            Some("paced") => paced(&mut wire)?,
            Some("bulk") => bulk(&mut wire)?,
            _ => wire.write_all(&answer()).ok()?,
        }
        wire.flush().ok()?;
        ledger.note(&buffer[head..whole]);
        buffer.copy_within(whole..filled, 0);
        filled -= whole;
    }
}

/// Answers WebSocket messages until the connection ends.
fn talk(mut wire: impl Wire, mut buffer: Vec<u8>, ledger: &Ledger) -> Option<()> {
    let mut filled = buffer.len();
    buffer.resize(FIRST_BYTES, 0);
    loop {
        let mut fragments = Vec::new();
        let mut at = 0;
        loop {
            let (head, size) = loop {
                if let Parsed::Head { head, size } = FrameHead::parse(&buffer[at..filled]) {
                    break (head, size);
                }
                filled += read(&mut wire, &mut buffer[filled..])?;
            };
            let end = at + size + usize::try_from(head.length).ok()?;
            if buffer.len() < end + FIRST_BYTES {
                buffer.resize(end + FIRST_BYTES, 0);
            }
            while filled < end {
                filled += read(&mut wire, &mut buffer[filled..])?;
            }
            fragments.push((head, at + size..end));
            at = end;
            if head.fin {
                break;
            }
        }
        wire.write_all(&reply()).ok()?;
        wire.flush().ok()?;
        let mut message = Vec::new();
        for (head, range) in fragments {
            let payload = &mut buffer[range];
            apply_mask(payload, head.mask.unwrap_or_default(), 0);
            message.extend_from_slice(payload);
        }
        buffer.copy_within(at..filled, 0);
        filled -= at;
        ledger.note(&message);
    }
}

fn read(wire: &mut impl Wire, buffer: &mut [u8]) -> Option<usize> {
    wire.read(buffer).ok().filter(|count| *count > 0)
}

/// Events at a pace, each with the moment when it was sent.
fn paced(wire: &mut impl Wire) -> Option<()> {
    wire.write_all(HEAD).ok()?;
    for _ in 0..PACED_EVENTS {
        thread::sleep(PACE);
        let event = format!("data: {:020}\n\n", now_ns());
        wire.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes())
            .ok()?;
        wire.flush().ok()?;
    }
    wire.write_all(b"0\r\n\r\n").ok()
}

/// Events as fast as they go.
fn bulk(wire: &mut impl Wire) -> Option<()> {
    wire.write_all(HEAD).ok()?;
    let event = bulk_event();
    let mut chunk = format!("{:x}\r\n", event.len()).into_bytes();
    chunk.extend_from_slice(&event);
    chunk.extend_from_slice(b"\r\n");
    for _ in 0..BULK_EVENTS {
        wire.write_all(&chunk).ok()?;
    }
    wire.write_all(b"0\r\n\r\n").ok()
}

/// The body of an answer.
pub(crate) const ANSWER: &[u8] = b"event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\"}}\n\nevent: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_1\",\"usage\":{\"input_tokens\":1,\"output_tokens\":1,\"total_tokens\":2}}}\n\n";

fn answer() -> Vec<u8> {
    let size = format!("{:x}\r\n", ANSWER.len());
    [HEAD, size.as_bytes(), ANSWER, b"\r\n0\r\n\r\n"].concat()
}

/// The frame that answers a message.
pub(crate) fn reply() -> Vec<u8> {
    let mut frame = Vec::new();
    FrameHead::last(OpCode::Text, REPLY.len() as u64).encode(&mut frame);
    frame.extend_from_slice(REPLY);
    frame
}

/// One event of a stream without pauses.
pub(crate) fn bulk_event() -> Vec<u8> {
    let mut event = b"data: ".to_vec();
    event.resize(16 * 1024 - 2, b'x');
    event.extend_from_slice(b"\n\n");
    event
}

const REPLY: &[u8] = b"{\"type\":\"response.completed\",\"response\":{\"id\":\"resp_1\"}}";
const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
/// The proof belongs to the key that the client sends (RFC 6455, section 1.3).
const SWITCHING: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
const FIRST_BYTES: usize = 256 << 10;
const PATIENCE: Duration = Duration::from_mins(1);
pub(crate) const PACED_EVENTS: usize = 60;
const PACE: Duration = Duration::from_millis(2);
pub(crate) const BULK_EVENTS: usize = 4096;
