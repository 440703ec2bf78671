//! Resident memory of a relay that has just started, and of what it has done then.

use std::sync::Arc;

use super::bodies::{self, Whose};
use super::client::Connection;
use super::model::{ANSWER, Expected};
use super::process::Processes;
use super::relay::Relay;
use super::stage::{Route, Stage};
use super::zip;

/// One moment. MiB: the relay, its guardian, and both with shared pages counted once.
pub(crate) struct Moment {
    pub(crate) name: &'static str,
    pub(crate) now: (f64, f64),
    pub(crate) peak: (f64, f64),
    pub(crate) together: f64,
}

pub(crate) fn run(stage: &Stage) -> Vec<Moment> {
    eprintln!("memory");
    let relay = stage.fresh_relay("memory");
    let processes = relay.session.processes();
    let mut moments = vec![moment("idle", &processes)];
    let route = Route {
        address: relay.address,
        base: relay.base.clone(),
        tls: None,
    };
    for (name, whose, is_zstd, bytes, sessions) in [
        ("16 sessions of 64 KiB", Whose::Parent, false, 64 << 10, 16),
        ("31 MiB untouched", Whose::Child, false, 31 << 20, 1),
        ("31 MiB injected", Whose::Parent, false, 31 << 20, 1),
        ("31 MiB zstd injected", Whose::Parent, true, 31 << 20, 1),
    ] {
        processes.forget_peak();
        let mut connections: Vec<_> = (0..sessions).map(|_| Connection::open(&route)).collect();
        let request = prepare(stage, &relay, &route, (whose, is_zstd, bytes));
        for connection in &mut connections {
            connection.exchange(&request, ANSWER);
        }
        stage.model.ledger.settle(sessions);
        moments.push(moment(name, &processes));
    }
    moments
}

fn prepare(
    stage: &Stage,
    relay: &Relay,
    route: &Route,
    (whose, is_zstd, bytes): (Whose, bool, usize),
) -> Vec<u8> {
    let plain = bodies::body(bytes, whose, &relay.turn);
    let with_context = || bodies::injected(&plain, &relay.context);
    let expected = match (whose, is_zstd) {
        (Whose::Child, _) => Expected::Exactly(plain.clone()),
        (Whose::Parent, false) => Expected::Exactly(with_context()),
        (Whose::Parent, true) => Expected::Inflated(with_context()),
    };
    stage.model.ledger.expect(&Arc::new(expected));
    let body = if is_zstd { zip::deflate(&plain) } else { plain };
    route.post(&bodies::headers(whose, &relay.turn, is_zstd), &body)
}

fn moment(name: &'static str, processes: &Processes) -> Moment {
    let pair = |values: Vec<f64>| (values[0], values.get(1).copied().unwrap_or(0.0));
    Moment {
        name,
        now: pair(processes.resident()),
        peak: pair(processes.peak()),
        together: processes.together(),
    }
}
