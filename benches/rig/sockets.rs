//! WebSockets: from a message to the answer to it.

use std::sync::Arc;
use std::time::Instant;

use codex_relay::wire::frames::{FrameHead, OpCode, apply_mask};

use super::bodies::{self, Whose};
use super::client::Connection;
use super::model::{Expected, reply};
use super::stage::{Stage, TARGETS, Target};
use super::stats::Series;

/// One size, once for children and once for parents. Times in µs, in the order of [`TARGETS`].
pub(crate) struct Case {
    pub(crate) whose: Whose,
    pub(crate) size: &'static str,
    pub(crate) times: [Series; 3],
}

const SIZES: [(&str, usize, usize); 3] = [
    ("1 KiB", 1 << 10, 100),
    ("256 KiB", 256 << 10, 30),
    ("1 MiB", 1 << 20, 12),
];

pub(crate) fn run(stage: &Stage, rounds: usize, only: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for whose in [Whose::Child, Whose::Parent] {
        for (size, bytes, count) in SIZES {
            let name = format!("{whose:?} {size}");
            if !name.contains(only) {
                continue;
            }
            eprintln!("sockets: {name}");
            let times = case(stage, whose, (bytes, count), rounds);
            cases.push(Case { whose, size, times });
        }
    }
    cases
}

fn case(stage: &Stage, whose: Whose, (bytes, count): (usize, usize), rounds: usize) -> [Series; 3] {
    let text = bodies::message(bytes, whose, &stage.relay.turn);
    let frame = masked(&text);
    let mut times: [Series; 3] = Default::default();
    let mut lanes = TARGETS.map(|target| {
        let is_injected = target == Target::Relay && whose == Whose::Parent;
        let expected = if is_injected {
            bodies::injected(&text, &stage.relay.context)
        } else {
            text.clone()
        };
        (
            open(stage, target, whose),
            Arc::new(Expected::Exactly(expected)),
        )
    });
    for round in 0..=rounds {
        for turn in 0..lanes.len() {
            let at = (turn + round) % lanes.len();
            let (connection, expected) = &mut lanes[at];
            stage.model.ledger.expect(expected);
            let samples = measure(stage, connection, &frame, count);
            // The first round only warms up.
            if round > 0 {
                times[at].push_round(samples);
            }
        }
    }
    times
}

fn open(stage: &Stage, target: Target, whose: Whose) -> Connection {
    let route = stage.route(target, false);
    let mut connection = Connection::open(&route);
    let headers = bodies::headers(whose, &stage.relay.turn, false);
    connection.send(&route.handshake(&headers));
    connection.answer_head("101");
    connection
}

fn measure(stage: &Stage, connection: &mut Connection, frame: &[u8], count: usize) -> Vec<f64> {
    let reply = reply();
    let mut samples = Vec::with_capacity(count);
    for number in 1..=count {
        let begun = Instant::now();
        connection.send(frame);
        let answer = connection.exactly(reply.len());
        samples.push(begun.elapsed().as_secs_f64() * 1e6);
        assert!(answer == reply, "the answer came back changed");
        stage.model.ledger.settle(number as u64);
    }
    samples
}

/// One frame of a client.
fn masked(text: &[u8]) -> Vec<u8> {
    let key = [0x37, 0xFA, 0x21, 0x3D];
    let mut frame = Vec::with_capacity(text.len() + 14);
    FrameHead {
        mask: Some(key),
        ..FrameHead::last(OpCode::Text, text.len() as u64)
    }
    .encode(&mut frame);
    let start = frame.len();
    frame.extend_from_slice(text);
    apply_mask(&mut frame[start..], key, 0);
    frame
}
