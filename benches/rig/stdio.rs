//! The standard streams: start-up, lines one by one, and long lines in a row.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

use serde_json::json;

use super::process::now_ns;
use super::relay::{Session, bare_command, command};
use super::stage::Stage;
use super::standin::long_line;
use super::stats::Series;

/// Without and with a relay in between.
#[derive(Default)]
pub(crate) struct Stdio {
    /// From the start of the process to the answer to `initialize`, ms.
    pub(crate) first_answer: [Series; 2],
    /// From the start of the process to the one of codex, ms: the endpoint listens before that.
    pub(crate) codex_starts: [Series; 2],
    /// There and back for a line of 1 KiB, µs.
    pub(crate) round_trip: [Series; 2],
    /// Lines of 1 MiB from codex to the client, and from the client to codex, GB/s.
    pub(crate) out: [Series; 2],
    pub(crate) inward: [Series; 2],
}

pub(crate) fn run(stage: &Stage, rounds: usize) -> Stdio {
    eprintln!("stdio");
    let mut stdio = Stdio::default();
    let folder = stage.folder().join("stdio");
    fs::create_dir_all(&folder).unwrap();
    let mut sessions = [false, true].map(|is_relayed| {
        let mut session = start(&folder, is_relayed);
        if is_relayed {
            session.shake_hands();
        }
        session
    });
    for _ in 0..rounds {
        for (at, session) in sessions.iter_mut().enumerate() {
            for _ in 0..3 {
                let (answer, codex) = first_answer(&folder, at == 1);
                stdio.first_answer[at].push_round(vec![answer]);
                stdio.codex_starts[at].push_round(vec![codex]);
            }
            stdio.round_trip[at].push_round(round_trips(session));
            stdio.out[at].push_round(vec![outward(session)]);
            stdio.inward[at].push_round(vec![inward(session)]);
        }
    }
    stdio
}

fn start(folder: &Path, is_relayed: bool) -> Session {
    Session::start(if is_relayed {
        command(folder, "http://127.0.0.1:1", None)
    } else {
        bare_command(folder)
    })
}

fn first_answer(folder: &Path, is_relayed: bool) -> (f64, f64) {
    let begun = now_ns();
    let mut session = start(folder, is_relayed);
    let info = json!({"clientInfo": {"name": "rig", "version": "1"}});
    session.ask("initialize", &info);
    let answered = now_ns();
    let started = fs::read_to_string(folder.join("copy.started")).unwrap();
    let started: u64 = started.parse().unwrap();
    let ms = |moment: u64| (moment - begun) as f64 / 1e6;
    (ms(answered), ms(started))
}

fn round_trips(session: &mut Session) -> Vec<f64> {
    let mut line = format!(
        "{{\"method\":\"rig/echo\",\"params\":{{\"text\":\"{}",
        "x".repeat(980)
    );
    line.push_str("\"}}\n");
    let trip = |_| {
        let begun = Instant::now();
        session.to.write_all(line.as_bytes()).unwrap();
        let back = session.line();
        let time = begun.elapsed().as_secs_f64() * 1e6;
        assert!(back == line, "the line came back changed");
        time
    };
    (0..ROUND_TRIPS).map(trip).collect()
}

fn outward(session: &mut Session) -> f64 {
    let expected = long_line("emitted");
    let mut got = vec![0; expected.len()];
    session
        .to
        .write_all(format!("{{\"method\":\"rig/emit-{LONG_LINES}\"}}\n").as_bytes())
        .unwrap();
    session.from.read_exact(&mut got).unwrap();
    let begun = Instant::now();
    for _ in 1..LONG_LINES {
        assert!(got == expected, "a long line came changed");
        session.from.read_exact(&mut got).unwrap();
    }
    speed(LONG_LINES - 1, expected.len(), begun)
}

fn inward(session: &mut Session) -> f64 {
    let line = long_line("swallowed");
    let begun = Instant::now();
    for _ in 0..LONG_LINES {
        session.to.write_all(&line).unwrap();
    }
    session.ask("rig/done", &json!({}));
    speed(LONG_LINES, line.len(), begun)
}

fn speed(lines: usize, bytes: usize, begun: Instant) -> f64 {
    (lines * bytes) as f64 / begun.elapsed().as_secs_f64() / 1e9
}

const ROUND_TRIPS: usize = 200;
const LONG_LINES: usize = 64;
