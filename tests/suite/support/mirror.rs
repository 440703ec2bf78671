//! Codex played by the test itself: a stand-in echoes what it reads, so that the lines that the
//! test sends as a client come back as lines of codex; model requests are made with raw sockets.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use codex_relay::wire::frames::apply_mask;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::time::timeout;

use super::client::Client;
use super::processes::descriptors;
use super::{PATIENCE, eventually};

/// What SOUL.md says: the mark of an injected request.
pub(crate) const SOUL: &str = "Marker-of-the-soul";

/// A relay between the test's two ends.
#[derive(Debug)]
pub(crate) struct Mirror {
    pub(crate) client: Client,
    upstream: TcpListener,
    route: Option<(SocketAddr, String)>,
    folder: TempDir,
    next_id: i64,
}

impl Mirror {
    /// Starts a relay whose upstream is a socket of the test, and shakes hands.
    pub(crate) async fn start() -> Self {
        Self::with(None, &[]).await
    }

    /// Starts a relay that has nothing to say, with a thread.
    pub(crate) async fn silent() -> Self {
        let mut mirror = Self::with(None, &["--context", "none"]).await;
        mirror.thread("t").await;
        mirror
    }

    /// Starts a relay whose contexts the client gives.
    pub(crate) async fn of_client() -> Self {
        Self::with(None, &["--context", "client"]).await
    }

    /// Starts a relay with another upstream, which the test doesn't play.
    pub(crate) async fn towards(upstream: &str) -> Self {
        Self::with(Some(upstream), &[]).await
    }

    async fn with(elsewhere: Option<&str>, options: &[&str]) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let stand_in = folder.path().join("codex");
        fs::write(&stand_in, ECHO).unwrap();
        fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755)).unwrap();
        let workspace = folder.path().join("workspace");
        fs::create_dir(&workspace).unwrap();
        fs::write(workspace.join("SOUL.md"), SOUL).unwrap();
        let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = format!("http://{}/up", upstream.local_addr().unwrap());
        let url = elsewhere.unwrap_or(&own);
        let mut command = Command::new(env!("CARGO_BIN_EXE_codex-relay"));
        command.arg("--codex").arg(&stand_in);
        command.arg("--workspace").arg(&workspace);
        command.args(["--upstream", url]).args(options);
        command.arg("app-server").env_clear();
        command
            .env("PATH", env!("PATH"))
            .env("COPY", folder.path().join("stdin"));
        let mut mirror = Self {
            client: Client::spawn(command),
            upstream,
            route: None,
            folder,
            next_id: 0,
        };
        let introduction = json!({
            "clientInfo": {"name": "suite", "version": "1"},
            "capabilities": {"experimentalApi": true},
        });
        let agent = json!({"userAgent": "suite/0.171.0 (Linux; x86_64) suite"});
        mirror.exchange("initialize", introduction, agent).await;
        mirror
    }

    /// Writes a file of the workspace.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join("workspace").join(name), text).unwrap();
    }

    /// Sends a request, waits until codex has it, and answers it as codex.
    pub(crate) async fn exchange(&mut self, method: &str, params: Value, result: Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        let from = self.client.inbox.len();
        self.client
            .send(&json!({"id": id, "method": method, "params": params}))
            .await;
        let is_it = |line: &super::inbox::Line| line.value["id"] == id;
        let got = self.client.inbox.wait(method, from, is_it).await.value;
        self.client.send(&json!({"id": id, "result": result})).await;
        let is_answer = |line: &super::inbox::Line| {
            line.value["id"] == id && line.value.get("result").is_some()
        };
        self.client.inbox.wait("answer", from, is_answer).await;
        got["params"].clone()
    }

    /// Opens a thread.
    pub(crate) async fn thread(&mut self, id: &str) {
        let thread = json!({"thread": {"id": id}});
        self.exchange("thread/start", json!({}), thread).await;
        // What the client sees is redacted; the stand-in's copy isn't.
        let copy = fs::read_to_string(self.folder.path().join("stdin")).unwrap();
        let (_, after) = copy.split_once("\"openai_base_url\":\"http://").unwrap();
        let (url, _) = after.split_once('"').unwrap();
        let (address, path) = url.split_once('/').unwrap();
        self.route = Some((address.parse().unwrap(), format!("/{path}")));
    }

    /// Starts a turn that runs from then on, and gives its generation.
    pub(crate) async fn turn(&mut self, thread: &str, turn: &str) -> String {
        let params = json!({"threadId": thread, "input": []});
        let result = json!({"turn": {"id": turn}});
        let got = self.exchange("turn/start", params, result).await;
        let generation = &got["responsesapiClientMetadata"]["codex_relay_generation"];
        generation.as_str().unwrap().to_owned()
    }

    /// Waits until the relay holds no more descriptors than `before`: it has let go of both ends.
    pub(crate) async fn lets_go(&self, before: usize) {
        eventually("the connections are shut", || {
            (descriptors(self.client.pid()) <= before).then_some(())
        })
        .await;
    }

    /// Connects to the private endpoint, as codex does.
    pub(crate) async fn dial(&self) -> Peer {
        let (address, _) = self.route.as_ref().unwrap();
        Peer(TcpStream::connect(address).await.unwrap())
    }

    /// Takes a connection of the relay, as the upstream does.
    pub(crate) async fn accept(&self) -> Peer {
        let accepted = timeout(PATIENCE, self.upstream.accept()).await;
        Peer(accepted.expect("a connection to the upstream").unwrap().0)
    }

    /// A request head; `rest` are its other lines.
    pub(crate) fn head(&self, method: &str, below: &str, rest: &str) -> Vec<u8> {
        let (address, base) = self.route.as_ref().unwrap();
        format!("{method} {base}{below} HTTP/1.1\r\nHost: {address}\r\n{rest}\r\n").into_bytes()
    }

    /// A `POST …/responses` with its body and more header lines.
    pub(crate) fn post(&self, headers: &str, body: &[u8]) -> Vec<u8> {
        let length = format!("Content-Length: {}\r\n{headers}", body.len());
        [&self.head("POST", "/responses", &length), body].concat()
    }

    /// Opens a WebSocket through the relay and gives codex's and the upstream's ends.
    pub(crate) async fn socket(&self, headers: &str, answer: &str) -> (Peer, Peer, String) {
        let mut codex = self.dial().await;
        codex
            .write(&self.head("GET", "/responses", &format!("{HANDSHAKE}{headers}")))
            .await;
        let mut upstream = self.accept().await;
        upstream.head().await;
        let switching =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";
        upstream
            .write(format!("{switching}{answer}\r\n").as_bytes())
            .await;
        let head = codex.head().await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        (codex, upstream, head)
    }
}

/// One end of a raw connection.
#[derive(Debug)]
pub(crate) struct Peer(pub(crate) TcpStream);

impl Peer {
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// Reads a head, to its blank line.
    pub(crate) async fn head(&mut self) -> String {
        String::from_utf8_lossy(&self.until(b"\r\n\r\n").await).into_owned()
    }

    /// Reads until these bytes have come.
    pub(crate) async fn until(&mut self, end: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        while !bytes.ends_with(end) {
            bytes.push(self.exactly(1).await[0]);
        }
        bytes
    }

    /// Reads that many bytes.
    pub(crate) async fn exactly(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        let read = timeout(PATIENCE, self.0.read_exact(&mut bytes)).await;
        read.expect("bytes in time").expect("bytes before the end");
        bytes
    }

    /// Reads to the end; a reset is one.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let read = timeout(PATIENCE, self.0.read_to_end(&mut bytes)).await;
        read.expect("an end in time").unwrap_or_default();
        bytes
    }

    /// Whether nothing has come: looked at once everything else has happened.
    pub(crate) async fn is_silent(&self) -> bool {
        let mut byte = [0];
        timeout(Duration::from_millis(50), self.0.peek(&mut byte))
            .await
            .is_err()
    }

    /// Reads one WebSocket frame and gives its first byte and its payload, unmasked.
    pub(crate) async fn frame(&mut self) -> (u8, Vec<u8>) {
        let head = self.exactly(2).await;
        let length = match head[1] & 0x7F {
            126 => u64::from(u16::from_be_bytes(
                self.exactly(2).await.try_into().unwrap(),
            )),
            127 => u64::from_be_bytes(self.exactly(8).await.try_into().unwrap()),
            short => u64::from(short),
        };
        let key = if head[1] & 0x80 == 0 {
            vec![0; 4]
        } else {
            self.exactly(4).await
        };
        let mut payload = self.exactly(usize::try_from(length).unwrap()).await;
        apply_mask(&mut payload, key.try_into().unwrap(), 0);
        (head[0], payload)
    }

    /// Reads a whole data message and gives its payload.
    pub(crate) async fn message(&mut self) -> Vec<u8> {
        let mut message = Vec::new();
        loop {
            let (first, payload) = self.frame().await;
            assert!(first & 0x08 == 0, "a control frame: {first:#x}");
            message.extend_from_slice(&payload);
            if first & 0x80 != 0 {
                return message;
            }
        }
    }
}

/// A frame of a client, masked.
pub(crate) fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let key = [0x37, 0xFA, 0x21, 0x3D];
    let mut frame = vec![first];
    match payload.len() {
        short @ 0..126 => frame.push(0x80 | u8::try_from(short).unwrap()),
        medium @ 126..65_536 => {
            frame.push(0xFE);
            frame.extend_from_slice(&u16::try_from(medium).unwrap().to_be_bytes());
        }
        long => {
            frame.push(0xFF);
            frame.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&key);
    let start = frame.len();
    frame.extend_from_slice(payload);
    apply_mask(&mut frame[start..], key, 0);
    frame
}

/// A frame of a server.
pub(crate) fn unmasked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = masked(first, &[]);
    frame.clear();
    codex_relay::wire::frames::FrameHead {
        fin: first & 0x80 != 0,
        reserved: 0,
        opcode: match first & 0x0F {
            0 => codex_relay::wire::frames::OpCode::Continuation,
            1 => codex_relay::wire::frames::OpCode::Text,
            2 => codex_relay::wire::frames::OpCode::Binary,
            8 => codex_relay::wire::frames::OpCode::Close,
            9 => codex_relay::wire::frames::OpCode::Ping,
            _ => codex_relay::wire::frames::OpCode::Pong,
        },
        mask: None,
        length: payload.len() as u64,
    }
    .encode(&mut frame);
    frame.extend_from_slice(payload);
    frame
}

/// A model request of a thread, `more` behind its other members.
pub(crate) fn request(metadata: &Value, more: &str) -> String {
    let metadata = Value::from(metadata.to_string());
    format!(
        r#"{{"type":"response.create","model":"m","n":12345678901234567890,"e":1e400{more},"client_metadata":{{"x-codex-turn-metadata":{metadata}}}}}"#
    )
}

/// The metadata of a step of a turn.
pub(crate) fn of_turn(thread: &str, turn: &str, generation: &str) -> Value {
    json!({
        "thread_id": thread,
        "turn_id": turn,
        "request_kind": "turn",
        "codex_relay_generation": generation,
    })
}

/// The metadata of a child.
pub(crate) fn of_child() -> Value {
    json!({"thread_id": "kid", "request_kind": "turn", "parent_thread_id": "t"})
}

/// The key and proof are those of RFC 6455, section 1.3.
const HANDSHAKE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// Echoes every line and keeps a copy; answers the relay's own requests with nothing.
const ECHO: &str = r#"#!/bin/sh
while IFS= read -r line; do
  printf '%s\n' "$line" >>"$COPY"
  case $line in
  *'"id":"codex-relay-'*)
    id=${line#*'"id":"'}
    printf '{"id":"%s","result":{}}\n' "${id%%\"*}"
    ;;
  *) printf '%s\n' "$line" ;;
  esac
done
"#;
