//! Which goals hold.

use super::bodies::Whose;
use super::latency;
use super::memory::Moment;
use super::report::ratio;
use super::sessions;
use super::sockets;
use super::stage::Target;
use super::stats::{Holds, Ratio};
use super::stdio::Stdio;
use super::streams::Streams;

/// Everything that was measured; what was left out has no goals.
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) latency: Vec<latency::Case>,
    pub(crate) streams: Option<Streams>,
    pub(crate) sockets: Vec<sockets::Case>,
    pub(crate) sessions: Vec<sessions::Case>,
    pub(crate) memory: Vec<Moment>,
    pub(crate) stdio: Option<Stdio>,
}

/// One line of the table.
struct Line {
    number: u8,
    what: String,
    measured: String,
    limit: String,
    holds: Holds,
}

/// Prints the table.
pub(crate) fn print(results: &Results) {
    let lines = [
        latency_goals(&results.latency),
        results
            .streams
            .as_ref()
            .map(stream_goals)
            .unwrap_or_default(),
        socket_goals(&results.sockets),
        session_goals(&results.sessions),
        memory_goals(&results.memory),
        results.stdio.as_ref().map(stdio_goals).unwrap_or_default(),
    ];
    let mut lines: Vec<Line> = lines.into_iter().flatten().collect();
    lines.sort_by_key(|line| line.number);
    println!("\n## Goals\n\n| # | what | measured | goal | holds |\n|---|---|---|---|---|");
    for line in lines {
        let holds = match line.holds {
            Holds::Yes => "yes",
            Holds::Perhaps => "not certain",
            Holds::No => "**no**",
        };
        println!(
            "| {} | {} | {} | {} | {holds} |",
            line.number, line.what, line.measured, line.limit
        );
    }
}

fn at_most(number: u8, what: impl Into<String>, measured: Ratio, limit: f64, unit: &str) -> Line {
    Line {
        number,
        what: what.into(),
        measured: format!("{}{unit}", ratio(measured)),
        limit: format!("≤ {limit}{unit}"),
        holds: measured.at_most(limit),
    }
}

fn at_least(number: u8, what: impl Into<String>, measured: Ratio, limit: f64, unit: &str) -> Line {
    Line {
        limit: format!("≥ {limit}{unit}"),
        holds: measured.at_least(limit),
        ..at_most(number, what, measured, limit, unit)
    }
}

fn latency_goals(cases: &[latency::Case]) -> Vec<Line> {
    let mut lines = Vec::new();
    for case in cases {
        let relay = case.added(Target::Relay);
        let over_nginx = relay.over(&case.added(Target::Nginx));
        let what = format!("{}, {}", case.kind.name(), case.size);
        let (whose, is_zstd, is_tls) = (case.kind.whose, case.kind.is_zstd, case.kind.is_tls);
        match (whose, is_zstd) {
            (Whose::Child, _) => {
                let number = if is_tls { 11 } else { 1 + u8::from(is_zstd) };
                lines.push(at_most(number, what.clone(), over_nginx, 1.0, "× nginx"));
            }
            (Whose::Parent, false) => {
                let limit = injected_limit(case.bytes);
                lines.push(at_most(3, what.clone(), over_nginx, limit, "× nginx"));
            }
            (Whose::Parent, true) => {
                let over_bare = relay.over(&case.bare);
                lines.push(at_most(4, what.clone(), over_bare, 1.1, "× bare zstd"));
            }
        }
        if !is_zstd && !is_tls && case.bytes >= 256 << 10 {
            let cpu = &case.cpu;
            let cpu = cpu[Target::Relay as usize].over(&cpu[Target::Nginx as usize]);
            let limit = if whose == Whose::Child { 0.7 } else { 1.2 };
            lines.push(at_most(
                8,
                format!("processor, {what}"),
                cpu,
                limit,
                "× nginx",
            ));
        }
    }
    lines
}

fn injected_limit(bytes: usize) -> f64 {
    match bytes {
        0..=4096 => 1.2,
        4097..=560_000 => 1.5,
        560_001..=3_500_000 => 2.0,
        _ => 2.5,
    }
}

fn stream_goals(streams: &Streams) -> Vec<Line> {
    let [direct, _, relay] = &streams.delay;
    let [_, nginx_bulk, relay_bulk] = &streams.bulk;
    let added = relay.added(direct).interval();
    vec![
        at_most(5, "delay added to an event", added, 25.0, " µs"),
        at_least(
            5,
            "events without pauses",
            relay_bulk.over(nginx_bulk),
            0.9,
            "× nginx",
        ),
    ]
}

fn socket_goals(cases: &[sockets::Case]) -> Vec<Line> {
    let line = |case: &sockets::Case| {
        let [direct, nginx, relay] = &case.times;
        let over = relay.added(direct).over(&nginx.added(direct));
        let limit = match (case.whose, case.size) {
            (Whose::Child, "1 KiB") => 1.0,
            (_, "1 KiB") => 1.1,
            _ => 1.6,
        };
        at_most(
            6,
            format!("WebSocket, {:?}, {}", case.whose, case.size),
            over,
            limit,
            "× nginx",
        )
    };
    cases.iter().map(line).collect()
}

fn session_goals(cases: &[sessions::Case]) -> Vec<Line> {
    let mut lines = Vec::new();
    for case in cases {
        let [_, nginx, relay] = &case.rate;
        let what = format!("requests/s, {} sessions", case.sessions);
        lines.push(at_least(7, what, relay.over(nginx), 0.95, "× nginx"));
        let failed = exact(case.failed[Target::Relay as usize] as f64);
        lines.push(at_most(
            7,
            format!("failed, {} sessions", case.sessions),
            failed,
            0.0,
            "",
        ));
    }
    lines
}

fn memory_goals(moments: &[Moment]) -> Vec<Line> {
    let line = |moment: &Moment| {
        let (what, limit) = match moment.name {
            "idle" => ("idle, both processes", 6.0),
            "31 MiB zstd injected" => ("peak, 31 MiB zstd", 16.0),
            "31 MiB injected" => ("peak, 31 MiB plain, injected", 10.0),
            "31 MiB untouched" => ("peak, 31 MiB plain, untouched", 10.0),
            _ => return None,
        };
        let used = moment.peak.0 + moment.peak.1;
        Some(at_most(9, what, exact(used), limit, " MiB"))
    };
    moments.iter().filter_map(line).collect()
}

fn stdio_goals(stdio: &Stdio) -> Vec<Line> {
    let [bare, relayed] = &stdio.first_answer;
    let [bare_trip, relayed_trip] = &stdio.round_trip;
    let trip = relayed_trip.added(bare_trip).interval();
    let half = |it: f64| it / 2.0;
    let one_way = Ratio {
        point: half(trip.point),
        low: half(trip.low),
        high: half(trip.high),
    };
    vec![
        at_most(
            10,
            "codex started (the endpoint listens before)",
            stdio.codex_starts[1].interval(),
            5.0,
            " ms",
        ),
        at_most(10, "first answer", relayed.interval(), 10.0, " ms"),
        at_most(
            10,
            "first answer, later than without",
            relayed.added(bare).interval(),
            5.0,
            " ms",
        ),
        at_most(12, "line of 1 KiB, one way", one_way, 20.0, " µs"),
        at_least(
            12,
            "lines of 1 MiB from codex",
            stdio.out[1].interval(),
            1.0,
            " GB/s",
        ),
        at_least(
            12,
            "lines of 1 MiB to codex",
            stdio.inward[1].interval(),
            1.0,
            " GB/s",
        ),
    ]
}

fn exact(value: f64) -> Ratio {
    Ratio {
        point: value,
        low: value,
        high: value,
    }
}
