//! Codex's place taken by this very program: lines come back as lines of codex.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};

use memchr::memmem;

use super::process::now_ns;

/// Where the stand-in writes what only codex learns, and when it began.
pub(crate) const COPY: &str = "RIG_COPY";

/// Whether the arguments are those that codex is started with.
pub(crate) fn is_asked_for(mut args: impl Iterator<Item = OsString>) -> bool {
    args.any(|arg| arg == "app-server")
}

/// Plays codex until its stdin ends.
pub(crate) fn run() {
    if let Some(path) = std::env::var_os(COPY) {
        let mut started = path;
        started.push(".started");
        let _ = fs::write(started, now_ns().to_string());
    }
    let (mut from, mut to) = (io::stdin().lock(), io::stdout().lock());
    let mut buffer = vec![0; 4 << 20];
    let mut filled = 0;
    loop {
        let count = from.read(&mut buffer[filled..]).unwrap_or(0);
        if count == 0 {
            return;
        }
        filled += count;
        let mut start = 0;
        while let Some(at) = memchr::memchr(b'\n', &buffer[start..filled]) {
            let line = &buffer[start..=start + at];
            if line.len() < LONG {
                answer(line, &mut to);
            } else if memmem::find(&line[..64], SWALLOWED).is_none() {
                let _ = to.write_all(line);
            }
            start += at + 1;
        }
        let _ = to.flush();
        buffer.copy_within(start..filled, 0);
        filled -= start;
        if filled == buffer.len() {
            buffer.resize(filled * 2, 0);
        }
    }
}

fn answer(line: &[u8], to: &mut impl Write) {
    let id = memmem::find(line, b"\"id\":\"codex-relay-").map(|at| &line[at + 6..]);
    if let Some(id) = id.and_then(|id| id.split(|byte| *byte == b'"').next()) {
        let answer = format!(
            "{{\"id\":\"{}\",\"result\":{{}}}}\n",
            String::from_utf8_lossy(id)
        );
        let _ = to.write_all(answer.as_bytes());
        return;
    }
    if memmem::find(line, b"openai_base_url").is_some()
        && let Some(path) = std::env::var_os(COPY)
    {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let _ = file.and_then(|mut file| file.write_all(line));
    }
    if let Some(at) = memmem::find(line, EMIT) {
        let rest = String::from_utf8_lossy(&line[at + EMIT.len()..]);
        let count: usize = rest
            .split('"')
            .next()
            .and_then(|it| it.parse().ok())
            .unwrap_or(0);
        let line = long_line("emitted");
        for _ in 0..count {
            let _ = to.write_all(&line);
        }
        return;
    }
    let _ = to.write_all(line);
}

/// A notification of 1 MiB.
pub(crate) fn long_line(name: &str) -> Vec<u8> {
    let mut line = format!("{{\"method\":\"rig/{name}\",\"params\":{{\"text\":\"").into_bytes();
    line.resize((1 << 20) - 4, b'x');
    line.extend_from_slice(b"\"}}\n");
    line
}

/// A line with this and a number has the stand-in emit so many long lines.
pub(crate) const EMIT: &[u8] = b"rig/emit-";
/// Long lines with this at their beginning don't come back.
const SWALLOWED: &[u8] = b"rig/swallowed";
const LONG: usize = 16 << 10;
