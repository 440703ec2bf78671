//! The tables.

use super::bodies::Whose;
use super::latency;
use super::memory::Moment;
use super::sessions;
use super::sockets;
use super::stage::Target;
use super::stats::{Ratio, Series};
use super::stdio::Stdio;
use super::streams::Streams;

const DIRECT: usize = Target::Direct as usize;
const NGINX: usize = Target::Nginx as usize;
const RELAY: usize = Target::Relay as usize;

/// A ratio with its interval.
pub(crate) fn ratio(ratio: Ratio) -> String {
    if !ratio.point.is_finite() {
        return "–".to_owned();
    }
    format!("{:.2} [{:.2}–{:.2}]", ratio.point, ratio.low, ratio.high)
}

pub(crate) fn latency(cases: &[latency::Case]) {
    println!("\n## Time to the first byte of the answer, µs (median; 99 % in brackets)\n");
    println!(
        "| request | size | direct | + nginx | + relay | relay/nginx | undisturbed | CPU µs nginx / relay | CPU relay/nginx |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for case in cases {
        let added = |target| {
            let series = &case.times[target as usize];
            let added = case.added(target).median();
            format!("{added:.0} ({:.0})", series.p99())
        };
        println!(
            "| {} | {} | {:.0} ({:.0}) | {} | {} | {} | {} | {:.0} / {:.0} | {} |",
            case.kind.name(),
            case.size,
            case.times[DIRECT].median(),
            case.times[DIRECT].p99(),
            added(Target::Nginx),
            added(Target::Relay),
            ratio(case.added(Target::Relay).over(&case.added(Target::Nginx))),
            ratio(
                case.added_quietly(Target::Relay)
                    .over(&case.added_quietly(Target::Nginx))
            ),
            case.cpu[NGINX].median(),
            case.cpu[RELAY].median(),
            ratio(case.cpu[RELAY].over(&case.cpu[NGINX])),
        );
    }
    println!("\n| zstd, injected | bare open and close µs | relay/bare |");
    println!("|---|---|---|");
    let zipped = |case: &&latency::Case| case.kind.is_zstd && case.kind.whose == Whose::Parent;
    for case in cases.iter().filter(zipped) {
        let over = case.added(Target::Relay).over(&case.bare);
        println!(
            "| {} | {:.0} | {} |",
            case.size,
            case.bare.median(),
            ratio(over)
        );
    }
}

pub(crate) fn streams(streams: &Streams) {
    println!("\n## Streamed answers\n");
    println!("| | direct | nginx | relay | relay/nginx |\n|---|---|---|---|---|");
    let [direct, nginx, relay] = &streams.delay;
    println!(
        "| delay of an event, µs | {:.0} ({:.0}) | {:.0} ({:.0}) | {:.0} ({:.0}) | added {} |",
        direct.median(),
        direct.p99(),
        nginx.median(),
        nginx.p99(),
        relay.median(),
        relay.p99(),
        ratio(relay.added(direct).over(&nginx.added(direct))),
    );
    let [direct, nginx, relay] = &streams.bulk;
    println!(
        "| without pauses, GB/s | {:.2} | {:.2} | {:.2} | {} |",
        direct.median(),
        nginx.median(),
        relay.median(),
        ratio(relay.over(nginx)),
    );
}

pub(crate) fn sockets(cases: &[sockets::Case]) {
    println!("\n## WebSocket, there and back, µs\n");
    println!(
        "| message | size | direct | + nginx | + relay | relay/nginx | undisturbed |\n|---|---|---|---|---|---|---|"
    );
    for case in cases {
        let added = |at: usize| case.times[at].added(&case.times[DIRECT]);
        let quiet = |at: usize| case.times[at].quiet().added(&case.times[DIRECT].quiet());
        println!(
            "| {} | {} | {:.0} | {:.0} | {:.0} | {} | {} |",
            if case.whose == Whose::Parent {
                "injected"
            } else {
                "untouched"
            },
            case.size,
            case.times[DIRECT].median(),
            added(NGINX).median(),
            added(RELAY).median(),
            ratio(added(RELAY).over(&added(NGINX))),
            ratio(quiet(RELAY).over(&quiet(NGINX))),
        );
    }
}

pub(crate) fn sessions(cases: &[sessions::Case]) {
    println!("\n## Sessions side by side, requests/s, 64 KiB, injected by the relay\n");
    println!(
        "| sessions | direct | nginx | relay | relay/nginx | failed |\n|---|---|---|---|---|---|"
    );
    for case in cases {
        println!(
            "| {} | {:.0} | {:.0} | {:.0} | {} | {:?} |",
            case.sessions,
            case.rate[DIRECT].median(),
            case.rate[NGINX].median(),
            case.rate[RELAY].median(),
            ratio(case.rate[RELAY].over(&case.rate[NGINX])),
            case.failed,
        );
    }
}

pub(crate) fn memory(moments: &[Moment]) {
    println!("\n## Resident memory, MiB (relay + guardian)\n");
    println!("| after | now | peak | shared pages once |\n|---|---|---|---|");
    for moment in moments {
        let (now, peak) = (moment.now, moment.peak);
        println!(
            "| {} | {:.1} + {:.1} | {:.1} + {:.1} | {:.1} |",
            moment.name, now.0, now.1, peak.0, peak.1, moment.together,
        );
    }
}

pub(crate) fn stdio(stdio: &Stdio) {
    println!("\n## Start and standard streams\n");
    println!("| | without | with the relay | difference |\n|---|---|---|---|");
    for (name, series) in [
        ("first answer, ms", &stdio.first_answer),
        ("codex starts, ms", &stdio.codex_starts),
        ("line of 1 KiB, there and back, µs", &stdio.round_trip),
        ("lines of 1 MiB from codex, GB/s", &stdio.out),
        ("lines of 1 MiB to codex, GB/s", &stdio.inward),
    ] {
        let [without, with]: &[Series; 2] = series;
        let more = with.added(without).interval();
        println!(
            "| {name} | {:.2} | {:.2} ({:.2}) | {} |",
            without.median(),
            with.median(),
            with.p99(),
            ratio(more),
        );
    }
}
