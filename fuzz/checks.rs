//! What must hold for any bytes from outside. Each check panics where it doesn't.
//!
//! The fuzz targets feed them, and so does the test suite: with random bytes, with the recorded
//! requests, and with every case that fuzzing has found (`fuzz/cases`).

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use codex_relay::base::ids::Generation;
use codex_relay::base::secret::Secret;
use codex_relay::context::budget::Budgets;
use codex_relay::context::compose::Prepared;
use codex_relay::context::snapshot::Snapshot;
use codex_relay::context::supplier::Supplier;
use codex_relay::context::wish::Wish;
use codex_relay::exchange::admission::Gate;
use codex_relay::exchange::body::Body;
use codex_relay::exchange::classify::Identity;
use codex_relay::exchange::instructions::splice;
use codex_relay::feed::source::Local;
use codex_relay::session::intercept::ClientVerdict;
use codex_relay::session::machine::{Config, Session, Upstreams};
use codex_relay::wire::compress::{Unpacker, deflate, inflate};
use codex_relay::wire::edit::{apply, pieces};
use codex_relay::wire::envelope::Envelope;
use codex_relay::wire::frames::{FrameHead, Parsed, apply_mask};
use codex_relay::wire::headers::end_to_end;
use codex_relay::wire::lead::Lead;
use codex_relay::wire::lines::{LineFramer, Piece};
use codex_relay::wire::redact::{Redactor, StreamRedactor};
use codex_relay::wire::walk::Walk;
use codex_relay::workspace::load::Workspace;
use codex_relay::workspace::skills::Surroundings;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use serde_json::Value;

/// Lines over stdio, either way: they come out as they went in, however they are cut, and an edit
/// leaves one line of JSON.
pub(crate) fn check_stdio(data: &[u8]) {
    let (first, data) = data.split_first().unwrap_or((&0, data));
    let chunk = usize::from(*first) + 1;
    check_framing(data, chunk);
    check_redaction(data, chunk);
    let mut session = Session::new(Config {
        base_url: URL.to_owned(),
        max_context_bytes: 64,
        bar: None,
        own_prefix: "own-".to_owned(),
        supplier: Supplier::Client,
        upstreams: Upstreams::default(),
        notifications: false,
    });
    for (number, line) in data.split_inclusive(|byte| *byte == b'\n').enumerate() {
        check_lead(line, chunk);
        let line = Bytes::copy_from_slice(line);
        // Lines of both sides in any order: what a line does depends on those before it.
        match line.first() {
            Some(b'>') => {
                let _ = session.on_codex_line(&line.slice(1..));
            }
            _ => client_line(&mut session, &line, number),
        }
    }
    let _ = session.on_codex_gone("ended");
}

fn client_line(session: &mut Session, line: &Bytes, number: usize) {
    let mut line = line.clone();
    let fresh = || {
        let number = u8::try_from(number % 256).unwrap_or_default();
        Generation::from_random([number; 16])
    };
    let mut verdict = session.on_client_line(&line);
    loop {
        verdict = match verdict {
            ClientVerdict::Prepare(prepare) => {
                let prepared = || Arc::new(Prepared::of_text(TEXT.to_owned()));
                let prepared = (!number.is_multiple_of(5)).then(prepared);
                session.on_context(&line, prepare, prepared, fresh())
            }
            ClientVerdict::Wait(waiting) => session.on_opened(&line, waiting),
            ClientVerdict::Ask(ask) => {
                let config = Bytes::from_static(b"{\"id\":\"own-1\",\"result\":{\"config\":{}}}\n");
                let answer = (!number.is_multiple_of(7)).then_some(&config);
                session.on_own_answer(&line, ask, answer)
            }
            ClientVerdict::Bare { line: bare, member } => {
                assert_one_line_still(&line, &bare);
                line = bare;
                session.on_bare_line(&line, member)
            }
            ClientVerdict::Rewrite(edits) => {
                assert_one_line_still(&line, &pieces(&line, edits).concat());
                return;
            }
            ClientVerdict::Refuse { id, .. } => {
                let id = serde_json::from_slice::<Value>(id.as_bytes());
                assert!(id.is_ok(), "an answer to an id that is no JSON");
                return;
            }
            ClientVerdict::Answer(answer) => {
                let is_json = serde_json::from_slice::<Value>(&answer).is_ok();
                assert!(
                    is_json && answer.ends_with(b"\n"),
                    "an answer that is no line of JSON"
                );
                return;
            }
            ClientVerdict::Drop | ClientVerdict::Interrupt { .. } | ClientVerdict::Pass => return,
        };
    }
}

fn assert_one_line_still(before: &[u8], after: &[u8]) {
    let is_json = |line: &[u8]| serde_json::from_slice::<Value>(line).is_ok();
    assert!(is_json(after) || !is_json(before), "an edit broke the line");
    let newlines = |line: &[u8]| memchr::memchr_iter(b'\n', line).count();
    assert_eq!(newlines(before), newlines(after));
}

fn check_framing(data: &[u8], chunk: usize) {
    let mut framer = LineFramer::new(MAX_LINE);
    let mut out = Vec::new();
    let mut take = |piece: Piece| {
        if let Piece::Line(line) = &piece {
            assert!(line.len() <= MAX_LINE);
            let inner = line.split_last().map_or(&[][..], |(_, inner)| inner);
            assert!(!inner.contains(&b'\n'));
        }
        let (Piece::Line(bytes) | Piece::LongHead(bytes) | Piece::LongRest(bytes)) = piece;
        assert!(!bytes.is_empty());
        out.extend_from_slice(&bytes);
    };
    for part in data.chunks(chunk) {
        framer.buffer().extend_from_slice(part);
        while let Some(piece) = framer.next_piece() {
            take(piece);
        }
    }
    framer.finish().into_iter().for_each(&mut take);
    assert_eq!(out, data);
}

fn check_redaction(data: &[u8], chunk: usize) {
    // A short alphabet, so that random bytes come near the word.
    let secret = Secret::from_random([0x11; 32]);
    let data: Vec<u8> = data
        .iter()
        .map(|byte| if byte % 4 == 0 { *byte } else { b'1' })
        .collect();
    let whole = Bytes::from(data.clone());
    let whole = apply(&whole, Redactor::new(&secret).edits(&whole));
    let mut stream = StreamRedactor::new(&secret);
    let mut out = Vec::new();
    for part in data.chunks(chunk) {
        out.extend_from_slice(&stream.push(part));
    }
    out.extend_from_slice(&stream.finish());
    assert_eq!(out, whole);
    assert!(!contains(&out, secret.expose().as_bytes()));
}

/// What is read of a line that passes in parts is what is read of it whole.
fn check_lead(line: &[u8], chunk: usize) {
    let mut lead = Lead::default();
    for part in line.chunks(chunk) {
        lead.push(part);
    }
    let line = Bytes::copy_from_slice(line);
    let Some(envelope) = Envelope::read(&line).filter(|_| line.len() < 512) else {
        return;
    };
    assert_eq!(lead.method(), envelope.method);
    let is_id = |raw: &[u8]| {
        serde_json::from_slice::<Value>(raw).is_ok_and(|it| it.is_string() || it.is_number())
    };
    assert_eq!(lead.id(), envelope.id.filter(|id| is_id(id.as_bytes())));
}

/// The head of a request: admitted with the one secret, host and path alone, and what is passed on
/// has nothing of codex's hop.
pub(crate) fn check_head(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let mut request = lines
        .next()
        .unwrap_or_default()
        .splitn(2, |byte| *byte == b' ');
    let method = Method::from_bytes(request.next().unwrap_or_default());
    let uri = Uri::try_from(request.next().unwrap_or_default());
    let (Ok(method), Ok(uri)) = (method, uri) else {
        return;
    };
    let mut headers = HeaderMap::new();
    for line in lines {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let name = HeaderName::from_bytes(parts.next().unwrap_or_default());
        let value = HeaderValue::from_bytes(parts.next().unwrap_or_default().trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    let _ = Identity::from_headers(&headers).class();
    let onward = end_to_end(headers.clone());
    for name in [
        "connection",
        "keep-alive",
        "te",
        "transfer-encoding",
        "upgrade",
        "host",
    ] {
        assert!(!onward.contains_key(name), "{name}");
    }
    let secret = Secret::from_random([0x11; 32]);
    let start = format!("/{}/v1/", secret.expose());
    let gate = Gate::new(secret, 7);
    if let Ok(admitted) = gate.admit(&method, &uri, &headers) {
        let path = uri.path_and_query().map_or("", |it| it.as_str());
        assert!(path.starts_with(&start), "{path}");
        assert!(path.ends_with(admitted.target));
        assert!(uri.authority().is_none() && !headers.contains_key("origin"));
        let hosts: Vec<_> = headers.get_all("host").iter().collect();
        assert_eq!(hosts, ["127.0.0.1:7"]);
        let own = admitted.target.split('?').next().unwrap_or_default();
        for devious in ["..", "//", "\\", "%2e", "%2E", "%2f", "%2F", "%5c", "%5C"] {
            let is_name = devious == ".." && !own.split('/').any(|it| it == "..");
            assert!(is_name || !own.contains(devious), "{own}");
        }
    }
}

/// The same body in two parts, cut anywhere: it is JSON where the whole is, and zstd comes to an end.
fn check_parts(bytes: &Bytes, is_json: bool) {
    let cut = bytes
        .first()
        .map_or(0, |byte| usize::from(*byte) % bytes.len());
    let (first, second) = (bytes.slice(..cut), bytes.slice(cut..));
    let mut walk = Walk::new();
    let mut told = Vec::new();
    let walked = [&first, &second]
        .into_iter()
        .try_for_each(|part| walk.push(part, &mut told));
    assert_eq!(walked.is_ok() && walk.is_over(), is_json);
    let mut unpacker = Unpacker::new(22).unwrap();
    let mut out = [0; 512];
    let mut room = MAX_BODY / out.len();
    for mut part in [first, second] {
        while let Ok(step) = unpacker.push(&mut part, &mut out) {
            assert!(step.bytes <= out.len());
            room -= 1;
            if room == 0 || (part.is_empty() && step.bytes < out.len()) {
                break;
            }
        }
        if room == 0 {
            break;
        }
    }
}

/// A request body: an injected one differs in `instructions` alone.
pub(crate) fn check_body(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    let body = Body::read(&bytes);
    let mut identity = Identity::from_headers(&HeaderMap::new());
    identity.read_body(&bytes, &body);
    let _ = identity.class();
    check_parts(&bytes, body.fault.is_none());
    if let Ok(plain) = inflate(data, MAX_BODY) {
        assert!(plain.len() <= MAX_BODY);
    }
    let Ok(edit) = splice(&bytes, &body, &snapshot()) else {
        return;
    };
    let after = apply(&bytes, vec![edit]);
    let again = inflate(&deflate(&[&after]).unwrap().concat(), after.len());
    assert_eq!(again.unwrap(), after);
    let (Ok(mut before), Ok(mut after)) = (
        serde_json::from_slice::<Value>(&bytes),
        serde_json::from_slice::<Value>(&after),
    ) else {
        // Text that isn't UTF-8, half a surrogate pair, or deeper than serde_json goes.
        return;
    };
    let old = before.as_object_mut().unwrap().remove("instructions");
    let new = after.as_object_mut().unwrap().remove("instructions");
    assert_eq!(before, after);
    let wanted = match old.as_ref().and_then(Value::as_str) {
        None | Some("") => TEXT.to_owned(),
        Some(old) => format!("{old}\n\n{TEXT}"),
    };
    assert_eq!(new, Some(Value::from(wanted)));
}

/// WebSocket frames: a head reads as it is written, and a mask taken twice is none.
pub(crate) fn check_frames(data: &[u8]) {
    let mut rest = data;
    while let Parsed::Head { head, size } = FrameHead::parse(rest) {
        for cut in 0..size {
            assert_eq!(FrameHead::parse(&rest[..cut]), Parsed::Incomplete);
        }
        let mut written = Vec::new();
        head.encode(&mut written);
        let read = FrameHead::parse(&written);
        assert_eq!(
            read,
            Parsed::Head {
                head,
                size: written.len()
            }
        );
        assert!(written.len() <= size, "the shortest form is the longer one");
        let length = usize::try_from(head.length).unwrap_or(usize::MAX);
        let payload = &rest[size..];
        let payload = &payload[..length.min(payload.len())];
        if let Some(key) = head.mask {
            let mut turned = payload.to_vec();
            let middle = payload.len() / 2;
            apply_mask(&mut turned, key, 0);
            let plain: Vec<u8> = payload
                .iter()
                .zip(key.iter().cycle())
                .map(|(a, b)| a ^ b)
                .collect();
            assert_eq!(turned, plain);
            apply_mask(&mut turned[..middle], key, 0);
            apply_mask(&mut turned[middle..], key, middle);
            assert_eq!(turned, payload);
        }
        rest = &rest[size + payload.len()..];
    }
}

/// Workspace files: what is prepared is bounded, whole text, and the same every time. The bytes are
/// cut at NULs into files.
pub(crate) fn check_workspace(data: &[u8], root: &Path) {
    for (name, text) in FILES.iter().zip(data.split(|byte| *byte == 0)) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let around = Surroundings::default();
    let local = Local {
        workspace: Some(Workspace::new(root.to_path_buf(), None, around)),
        profile: codex_relay::base::ids::ProfileId::new("p"),
        budgets: Budgets {
            file_chars: 300,
            user_chars: 200,
            total_chars: 1000,
            ..Budgets::default()
        },
        ..Local::default()
    };
    let prepared = local.read(&Wish::default()).unwrap().prepared;
    // Above the files' budgets there are headings, the preamble and the list of skills.
    let text = prepared.snapshot.text();
    assert!(
        text.chars().count() < 1000 + 18_000 + 4000,
        "{}",
        text.len()
    );
    let literal = [b"\"", &prepared.snapshot.escaped()[..], b"\""].concat();
    let read: String = serde_json::from_slice(&literal).unwrap();
    assert_eq!(read, text);
    let sum: usize = prepared.snapshot.sections().iter().map(|it| it.bytes).sum();
    assert_eq!(sum, text.len());
    let again = local.read(&Wish::default()).unwrap().prepared;
    assert_eq!(again, prepared);
}

/// What the workspace of [`check_workspace`] is made of.
const FILES: &[&str] = &[
    "SOUL.md",
    "IDENTITY.md",
    "USER.md",
    "users/p/USER.md",
    "skills/a/SKILL.md",
    "skills/b/SKILL.md",
    "MEMORY.md",
    "BOOTSTRAP.md",
    "AGENTS.md",
];

fn snapshot() -> Arc<Snapshot> {
    Arc::new(Snapshot::new(TEXT.to_owned(), Vec::new()))
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

const URL: &str = "http://127.0.0.1:7/s/v1";
const TEXT: &str = "A \"persona\"\n\\ with \u{1F600}\u{0}";
const MAX_LINE: usize = 100;
const MAX_BODY: usize = 1 << 20;
