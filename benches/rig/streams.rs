//! Answers that stream: what each event is delayed by, and how fast many go through.

use std::sync::Arc;
use std::time::Instant;

use super::bodies::{self, Whose};
use super::client::Connection;
use super::model::{BULK_EVENTS, Expected, PACED_EVENTS, bulk_event};
use super::process::now_ns;
use super::stage::{Stage, TARGETS, Target};
use super::stats::Series;

/// In the order of [`TARGETS`].
#[derive(Default)]
pub(crate) struct Streams {
    /// From the endpoint's write to the client's read of an event, µs.
    pub(crate) delay: [Series; 3],
    /// GB/s of an answer that never pauses.
    pub(crate) bulk: [Series; 3],
}

pub(crate) fn run(stage: &Stage, rounds: usize) -> Streams {
    eprintln!("streams");
    let mut streams = Streams::default();
    let expected = bulk_event().repeat(BULK_EVENTS);
    let body = bodies::body(4096, Whose::Child, &stage.relay.turn);
    stage
        .model
        .ledger
        .expect(&Arc::new(Expected::Exactly(body.clone())));
    let mut buffer = Vec::with_capacity(expected.len());
    let mut lanes = TARGETS.map(|target| Connection::open(&stage.route(target, false)));
    for round in 0..rounds {
        for turn in 0..lanes.len() {
            let at = (turn + round) % lanes.len();
            let request = |mode: &str| request(stage, TARGETS[at], mode, &body);
            let delays = paced(&mut lanes[at], &request("paced"));
            streams.delay[at].push_round(delays);
            let speed = bulk(&mut lanes[at], &request("bulk"), &expected, &mut buffer);
            streams.bulk[at].push_round(vec![speed]);
        }
    }
    stage.model.ledger.settle((rounds * lanes.len() * 2) as u64);
    streams
}

fn request(stage: &Stage, target: Target, mode: &str, body: &[u8]) -> Vec<u8> {
    let headers = bodies::headers(Whose::Child, &stage.relay.turn, false);
    let headers = format!("{headers}x-rig: {mode}\r\n");
    stage.route(target, false).post(&headers, body)
}

fn paced(connection: &mut Connection, request: &[u8]) -> Vec<f64> {
    connection.send(request);
    connection.answer_head("200");
    let mut delays = Vec::new();
    let mut body = Vec::new();
    while connection.chunk(&mut body) {
        let came = now_ns();
        // Events that came while the machine was busy may arrive in one chunk.
        let whole = body.len() - body.len() % EVENT_BYTES;
        for event in body.drain(..whole).collect::<Vec<u8>>().chunks(EVENT_BYTES) {
            let event = String::from_utf8_lossy(event);
            let stamp = event
                .strip_prefix("data: ")
                .and_then(|it| it.strip_suffix("\n\n"));
            let sent: u64 = stamp.expect("an event").parse().unwrap();
            delays.push((came - sent) as f64 / 1e3);
        }
    }
    assert_eq!(delays.len(), PACED_EVENTS);
    delays
}

fn bulk(connection: &mut Connection, request: &[u8], expected: &[u8], buffer: &mut Vec<u8>) -> f64 {
    buffer.clear();
    connection.send(request);
    connection.answer_head("200");
    let begun = Instant::now();
    while connection.chunk(buffer) {}
    let time = begun.elapsed().as_secs_f64();
    assert!(buffer == expected, "the stream came back changed");
    expected.len() as f64 / time / 1e9
}

/// An event that says when it was sent.
const EVENT_BYTES: usize = 28;
