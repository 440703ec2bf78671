//! One client, one request at a time: the time to the first byte of the answer.

use std::sync::Arc;

use super::bodies::{self, SIZES, Whose};
use super::client::Connection;
use super::model::{ANSWER, Expected};
use super::stage::{Stage, TARGETS, Target};
use super::stats::Series;
use super::zip::{self, Bare};

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) whose: Whose,
    pub(crate) is_zstd: bool,
    pub(crate) is_tls: bool,
}

/// The kinds that are measured.
pub(crate) const KINDS: [Kind; 5] = [
    kind(Whose::Child, false, false),
    kind(Whose::Child, true, false),
    kind(Whose::Parent, false, false),
    kind(Whose::Parent, true, false),
    kind(Whose::Child, false, true),
];

const fn kind(whose: Whose, is_zstd: bool, is_tls: bool) -> Kind {
    Kind {
        whose,
        is_zstd,
        is_tls,
    }
}

/// The result of one kind and size. Times in µs, in the order of [`TARGETS`].
pub(crate) struct Case {
    pub(crate) kind: Kind,
    pub(crate) size: &'static str,
    pub(crate) bytes: usize,
    pub(crate) times: [Series; 3],
    /// Time of the processor for one request.
    pub(crate) cpu: [Series; 3],
    /// Opening and closing the body with nothing around it; empty where it isn't compressed.
    pub(crate) bare: Series,
}

/// One target with what is sent through it.
struct Lane {
    target: Target,
    connection: Connection,
    request: Vec<u8>,
    expected: Arc<Expected>,
}

/// Measures every kind at every size whose name has the words `only`.
pub(crate) fn run(stage: &Stage, rounds: usize, only: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in KINDS {
        for (size, bytes, count) in SIZES {
            let name = format!("{} {size}", kind.name());
            if !name.contains(only) {
                continue;
            }
            eprintln!("latency: {name}");
            cases.push(case(stage, kind, (size, bytes, count), rounds));
        }
    }
    cases
}

fn case(
    stage: &Stage,
    kind: Kind,
    (size, bytes, count): (&'static str, usize, usize),
    rounds: usize,
) -> Case {
    let plain = bodies::body(bytes, kind.whose, &stage.relay.turn);
    let packed = kind.is_zstd.then(|| zip::deflate(&plain));
    let body = packed.as_ref().unwrap_or(&plain);
    let mut lanes = TARGETS.map(|target| lane(stage, kind, target, &plain, body));
    let mut case = Case {
        kind,
        size,
        bytes,
        times: Default::default(),
        cpu: Default::default(),
        bare: Series::default(),
    };
    let mut bare = packed.as_ref().map(|_| Bare::new());
    for lane in &mut lanes {
        measure(stage, lane, 2);
    }
    for round in 0..rounds {
        // Nobody is always first.
        for turn in 0..lanes.len() {
            let at = (turn + round) % lanes.len();
            let processes = stage.processes(lanes[at].target, kind.is_tls);
            let before = processes.cpu_us();
            let samples = measure(stage, &mut lanes[at], count);
            let cpu = (processes.cpu_us() - before) / count as f64;
            case.times[at].push_round(samples);
            case.cpu[at].push_round(vec![cpu]);
        }
        if let Some(bare) = &mut bare {
            let samples = (0..count.min(10)).map(|_| bare.round_trip(body)).collect();
            case.bare.push_round(samples);
        }
    }
    case
}

fn lane(stage: &Stage, kind: Kind, target: Target, plain: &[u8], body: &[u8]) -> Lane {
    let route = stage.route(target, kind.is_tls);
    let headers = bodies::headers(kind.whose, &stage.relay.turn, kind.is_zstd);
    let is_injected = target == Target::Relay && kind.whose == Whose::Parent;
    let with_context = || bodies::injected(plain, &stage.relay.context);
    let expected = match (is_injected, kind.is_zstd) {
        (false, _) => Expected::Exactly(body.to_vec()),
        (true, false) => Expected::Exactly(with_context()),
        (true, true) => Expected::Inflated(with_context()),
    };
    Lane {
        target,
        request: route.post(&headers, body),
        connection: Connection::open(&route),
        expected: Arc::new(expected),
    }
}

/// The times of `count` exchanges; each body is checked before the next one goes.
fn measure(stage: &Stage, lane: &mut Lane, count: usize) -> Vec<f64> {
    let ledger = &stage.model.ledger;
    ledger.expect(&lane.expected);
    let mut samples = Vec::with_capacity(count);
    for number in 1..=count {
        let time = lane.connection.exchange(&lane.request, ANSWER);
        samples.push(time.as_secs_f64() * 1e6);
        ledger.settle(number as u64);
    }
    samples
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match (self.whose, self.is_zstd, self.is_tls) {
            (Whose::Child, false, false) => "untouched, plain",
            (Whose::Child, true, _) => "untouched, zstd",
            (Whose::Child, false, true) => "untouched, TLS upstream",
            (Whose::Parent, false, _) => "injected, plain",
            (Whose::Parent, true, _) => "injected, zstd",
        }
    }
}

impl Case {
    /// The same, undisturbed.
    pub(crate) fn added_quietly(&self, target: Target) -> Series {
        let direct = self.times[Target::Direct as usize].quiet();
        self.times[target as usize].quiet().added(&direct)
    }

    /// What a target adds to the direct way.
    pub(crate) fn added(&self, target: Target) -> Series {
        self.times[target as usize].added(&self.times[Target::Direct as usize])
    }
}
