//! Model requests as codex makes them: its member order, its kinds of items, made from a seed.

use std::fmt::Write;

use serde_json::{Value, json};

use super::random::Random;

/// Whose request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Parent,
    Child,
}

/// What the metadata names.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) thread: String,
    pub(crate) id: String,
    pub(crate) generation: String,
}

/// The sizes that are measured, and how often in one round.
pub(crate) const SIZES: [(&str, usize, usize); 6] = [
    ("4 KiB", 4 << 10, 120),
    ("64 KiB", 64 << 10, 120),
    ("560 KB", 560_000, 40),
    ("1 MiB", 1 << 20, 30),
    ("3.5 MB", 3_500_000, 10),
    ("31 MiB", 31 << 20, 3),
];

/// A body of about `size` bytes.
pub(crate) fn body(size: usize, whose: Whose, turn: &Turn) -> Vec<u8> {
    let head = r#"{"model":"gpt-6.2-sol","stream":true,"input":["#;
    let metadata = Value::from(metadata(whose, turn));
    let marks = match whose {
        Whose::Parent => "",
        Whose::Child => r#""x-openai-subagent":"collab_spawn","x-codex-parent-thread-id":"t","#,
    };
    let tail = format!(
        r#"],"tool_choice":"auto","parallel_tool_calls":false,"reasoning":{{"effort":"low","context":"all_turns"}},"store":false,"include":["reasoning.encrypted_content"],"prompt_cache_key":"00000000-0000-7000-8000-000000000009","text":{{"verbosity":"low"}},"client_metadata":{{{marks}"x-codex-turn-metadata":{metadata},"thread_id":"{}","turn_id":"{}"}}}}"#,
        turn.thread, turn.id,
    );
    let mut out = String::with_capacity(size + 4096);
    out.push_str(head);
    let mut random = Random::seeded(size as u64);
    let room = size.saturating_sub(tail.len());
    while out.len() + SMALLEST_ITEM < room {
        if out.len() > head.len() {
            out.push(',');
        }
        let left = room - out.len();
        item(&mut out, &mut random, left, size);
    }
    out.push_str(&tail);
    out.into_bytes()
}

/// The same request as a WebSocket message.
pub(crate) fn message(size: usize, whose: Whose, turn: &Turn) -> Vec<u8> {
    let mut text = br#"{"type":"response.create","#.to_vec();
    text.extend_from_slice(&body(size.saturating_sub(text.len()), whose, turn)[1..]);
    text
}

/// The body with `context` where the relay puts it.
pub(crate) fn injected(body: &[u8], context: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + context.len() + 32);
    out.extend_from_slice(b"{\"instructions\":");
    out.extend_from_slice(Value::from(context).to_string().as_bytes());
    out.push(b',');
    out.extend_from_slice(&body[1..]);
    out
}

/// The header lines of a request, but for host and length.
pub(crate) fn headers(whose: Whose, turn: &Turn, is_zstd: bool) -> String {
    let mut out = format!(
        "version: 0.171.0\r\nx-codex-beta-features: remote_compaction_v2\r\n\
         x-codex-window-id: {0}:0\r\nx-codex-turn-metadata: {1}\r\n\
         x-client-request-id: {0}\r\nsession-id: {0}\r\nthread-id: {0}\r\n\
         accept: text/event-stream\r\ncontent-type: application/json\r\n\
         authorization: Bearer sk-test\r\noriginator: codex-relay-rig\r\n\
         user-agent: codex-relay-rig/0.171.0 (Linux; x86_64)\r\naccept-encoding: zstd,gzip\r\n",
        turn.thread,
        metadata(whose, turn),
    );
    if whose == Whose::Child {
        out.push_str("x-openai-subagent: collab_spawn\r\nx-codex-parent-thread-id: t\r\n");
    }
    if is_zstd {
        out.push_str("content-encoding: zstd\r\n");
    }
    out
}

fn metadata(whose: Whose, turn: &Turn) -> String {
    let mut metadata = json!({
        "installation_id": "00000000-0000-7000-8000-000000000010",
        "session_id": turn.thread,
        "thread_id": turn.thread,
        "agent_name": "/root",
        "turn_id": turn.id,
        "window_number": 0,
        "request_kind": "turn",
        "sandbox": "seccomp",
        "turn_started_at_unix_ms": 1_700_000_000_000_u64,
        "codex_relay_generation": turn.generation,
        "model": "gpt-6.2-sol",
    });
    if whose == Whose::Child {
        metadata["parent_thread_id"] = json!("t");
        metadata["subagent_kind"] = json!("thread_spawn");
    }
    metadata.to_string()
}

/// Appends one item of at most about `room` bytes; large bodies are large because of images.
fn item(out: &mut String, random: &mut Random, room: usize, size: usize) {
    let number = random.next();
    let text_room = room.saturating_sub(SMALLEST_ITEM);
    match (size, number % 4) {
        (IMAGES_FROM.., _) => {
            out.push_str(r#"{"type":"message","role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,"#);
            base64(out, random, text_room.min(2 << 20));
            out.push_str(r#""}]}"#);
        }
        (_, 0) => {
            let _ = write!(
                out,
                r#"{{"type":"reasoning","id":"rs_{number:x}","summary":[],"encrypted_content":""#
            );
            base64(out, random, text_room.min(2000));
            out.push_str(r#""}"#);
        }
        (_, 1) => {
            let _ = write!(
                out,
                r#"{{"type":"function_call","name":"exec_command","arguments":"{{\"cmd\":\"rg -n "#
            );
            words(out, random, text_room.min(60));
            let _ = write!(out, r#"\"}}","call_id":"call_{number:x}"}}"#);
        }
        (_, 2) => {
            let _ = write!(
                out,
                r#"{{"type":"function_call_output","call_id":"call_{number:x}","output":""#
            );
            words(out, random, text_room.min(8000));
            out.push_str(r#""}"#);
        }
        _ => {
            out.push_str(
                r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":""#,
            );
            words(out, random, text_room.min(1500));
            out.push_str(r#""}]}"#);
        }
    }
}

/// Program text: words, numbers, and the escapes that JSON makes of line ends and quotes.
fn words(out: &mut String, random: &mut Random, bytes: usize) {
    let end = out.len() + bytes;
    while out.len() < end {
        match random.below(24) {
            0 => out.push_str("\\n"),
            1 => out.push_str("\\\""),
            2 => out.push_str("\\t"),
            3 => {
                let _ = write!(out, "{} ", random.below(100_000));
            }
            other => {
                let _ = write!(
                    out,
                    "{}{} ",
                    WORDS[(other * 7 + random.below(9)) % WORDS.len()],
                    random.below(40)
                );
            }
        }
    }
}

fn base64(out: &mut String, random: &mut Random, bytes: usize) {
    let end = out.len() + bytes;
    while out.len() < end {
        let mut bits = random.next();
        for _ in 0..8 {
            out.push(char::from(ALPHABET[(bits & 63) as usize]));
            bits >>= 6;
        }
    }
}

/// What the frame of an item takes, and some.
const SMALLEST_ITEM: usize = 200;
/// Threads that grow beyond this do so with images.
const IMAGES_FROM: usize = 16 << 20;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const WORDS: [&str; 24] = [
    "let",
    "fn",
    "return",
    "self",
    "match",
    "the",
    "error",
    "value",
    "path",
    "src/lib.rs:",
    "test",
    "passed",
    "running",
    "warning",
    "buffer",
    "stream",
    "of",
    "config",
    "&str",
    "Result",
    "->",
    "impl",
    "state",
    "thread",
];
