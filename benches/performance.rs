//! What the relay costs, measured beside nginx and the direct way: `cargo bench`.
//!
//! Everything is on loopback; every measured exchange is checked byte for byte. Names of parts
//! (`latency`, `streams`, `sockets`, `sessions`, `memory`, `stdio`) as arguments measure those
//! alone; `--rounds N` sets how often each is repeated (10), and `--only WORDS` has `latency` and
//! `sockets` leave out the cases whose name lacks the words, such as `injected, plain 64 KiB`.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::string_slice,
    clippy::unwrap_used,
    reason = "a rig that can't measure stops, and its figures are its output"
)]

mod rig;

use rig::goals::{self, Results};
use rig::stage::Stage;
use rig::{latency, memory, report, sessions, sockets, standin, stdio, streams};

fn main() {
    if standin::is_asked_for(std::env::args_os()) {
        return standin::run();
    }
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let rounds = option(&mut args, "--rounds")
        .map_or(ROUNDS, |it| it.parse().expect("--rounds takes a number"));
    let only = option(&mut args, "--only").unwrap_or_default();
    args.retain(|arg| !arg.starts_with("--"));
    let is_wanted = |part: &str| args.is_empty() || args.iter().any(|arg| arg == part);
    let before = load();
    let stage = Stage::set();
    let mut results = Results::default();
    if is_wanted("memory") {
        results.memory = memory::run(&stage);
        report::memory(&results.memory);
    }
    if is_wanted("stdio") {
        let measured = stdio::run(&stage, rounds);
        report::stdio(&measured);
        results.stdio = Some(measured);
    }
    if is_wanted("streams") {
        let measured = streams::run(&stage, rounds);
        report::streams(&measured);
        results.streams = Some(measured);
    }
    if is_wanted("sockets") {
        results.sockets = sockets::run(&stage, rounds, &only);
        report::sockets(&results.sockets);
    }
    if is_wanted("sessions") {
        results.sessions = sessions::run(&stage, rounds);
        report::sessions(&results.sessions);
    }
    if is_wanted("latency") {
        results.latency = latency::run(&stage, rounds, &only);
        report::latency(&results.latency);
    }
    goals::print(&results);
    println!(
        "\nLoad of the machine before and after: {before} / {}",
        load()
    );
}

/// How many processes wanted a core in the last minute, the rig's own included: beyond the number of
/// cores, times say little.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// Takes an option with its value out of the arguments.
fn option(args: &mut Vec<String>, name: &str) -> Option<String> {
    let at = args.iter().position(|arg| arg == name)?;
    args.drain(at..args.len().min(at + 2)).nth(1)
}

const ROUNDS: usize = 10;
