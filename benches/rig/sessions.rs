//! Many sessions side by side, each with a connection of its own.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use super::bodies::{self, Whose};
use super::client::Connection;
use super::model::{ANSWER, Expected};
use super::stage::{Stage, TARGETS, Target};
use super::stats::Series;

/// So many sessions at once; in the order of [`TARGETS`].
pub(crate) struct Case {
    pub(crate) sessions: usize,
    /// Requests a second.
    pub(crate) rate: [Series; 3],
    pub(crate) failed: [u64; 3],
}

/// Sessions, and the requests of each in a round.
const CASES: [(usize, usize); 3] = [(16, 60), (64, 15), (256, 4)];

/// Parents' requests of 64 KiB.
pub(crate) fn run(stage: &Stage, rounds: usize) -> Vec<Case> {
    let body = bodies::body(64 << 10, Whose::Parent, &stage.relay.turn);
    let mut cases = Vec::new();
    for (sessions, count) in CASES {
        eprintln!("sessions: {sessions}");
        let mut case = Case {
            sessions,
            rate: Default::default(),
            failed: [0; 3],
        };
        for round in 0..=rounds {
            for turn in 0..TARGETS.len() {
                let at = (turn + round) % TARGETS.len();
                let (rate, failed) = measure(stage, TARGETS[at], &body, (sessions, count));
                case.failed[at] += failed;
                // The first round only warms up.
                if round > 0 {
                    case.rate[at].push_round(vec![rate]);
                }
            }
        }
        cases.push(case);
    }
    cases
}

fn measure(
    stage: &Stage,
    target: Target,
    body: &[u8],
    (sessions, count): (usize, usize),
) -> (f64, u64) {
    let expected = match target {
        Target::Direct | Target::Nginx => body.to_vec(),
        Target::Relay => bodies::injected(body, &stage.relay.context),
    };
    let ledger = &stage.model.ledger;
    ledger.expect(&Arc::new(Expected::Exactly(expected)));
    let route = stage.route(target, false);
    let headers = bodies::headers(Whose::Parent, &stage.relay.turn, false);
    let request = route.post(&headers, body);
    let start = Barrier::new(sessions + 1);
    let (time, failed) = thread::scope(|scope| {
        let session = || {
            let mut connection = Connection::open(&route);
            start.wait();
            for _ in 0..count {
                connection.exchange(&request, ANSWER);
            }
        };
        let running: Vec<_> = (0..sessions).map(|_| scope.spawn(session)).collect();
        start.wait();
        let begun = Instant::now();
        let failed = running.into_iter().filter_map(|it| it.join().err()).count();
        (begun.elapsed().as_secs_f64(), failed as u64)
    });
    if failed == 0 {
        ledger.settle((sessions * count) as u64);
    }
    ((sessions * count) as f64 / time, failed)
}
