//! What a process takes: time of the processor, memory.

use std::collections::BTreeMap;
use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// Processes that are measured together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Processes(pub(crate) Vec<i32>);

impl Processes {
    /// A process with its children.
    pub(crate) fn family(pid: u32) -> Self {
        let pid = i32::try_from(pid).unwrap();
        let mut all = vec![pid];
        all.extend(children(pid));
        Self(all)
    }

    /// Time of the processor so far, in µs, threads that are gone included.
    pub(crate) fn cpu_us(&self) -> f64 {
        let one = |pid: &i32| {
            let clock = clock_getcpuclockid(Pid::from_raw(*pid)).ok()?;
            let time = clock_gettime(clock).ok()?;
            Some(time.tv_sec() as f64 * 1e6 + time.tv_nsec() as f64 / 1e3)
        };
        self.0.iter().filter_map(one).sum()
    }

    /// Resident memory of each, in MiB.
    pub(crate) fn resident(&self) -> Vec<f64> {
        self.0.iter().map(|pid| status(*pid, "VmRSS:")).collect()
    }

    /// The most that was resident since [`forget_peak`](Self::forget_peak), in MiB.
    pub(crate) fn peak(&self) -> Vec<f64> {
        self.0.iter().map(|pid| status(*pid, "VmHWM:")).collect()
    }

    /// Resident memory of all together, in MiB: of a file that several have mapped, what the one with
    /// the most of it has.
    pub(crate) fn together(&self) -> f64 {
        let mut files: BTreeMap<String, f64> = BTreeMap::new();
        let mut own = 0.0;
        for pid in &self.0 {
            for (file, kib) in mappings(*pid) {
                if file.starts_with('/') {
                    let most = files.entry(file).or_default();
                    *most = most.max(kib);
                } else {
                    own += kib;
                }
            }
        }
        (own + files.values().sum::<f64>()) / 1024.0
    }

    pub(crate) fn forget_peak(&self) {
        for pid in &self.0 {
            let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
        }
    }

    pub(crate) fn terminate(&self) {
        if let Some(first) = self.0.first() {
            let _ = kill(Pid::from_raw(*first), Signal::SIGTERM);
        }
    }
}

/// What each file has resident in a process, in KiB; what belongs to no file has another name.
fn mappings(pid: i32) -> BTreeMap<String, f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
    let mut found: BTreeMap<String, f64> = BTreeMap::new();
    let mut file = String::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("Rss:") => {
                let kib = words.next().and_then(|it| it.parse().ok());
                *found.entry(file.clone()).or_default() += kib.unwrap_or(0.0);
            }
            Some(range) if !range.ends_with(':') => {
                words.nth(4).unwrap_or("-").clone_into(&mut file);
            }
            _ => {}
        }
    }
    found
}

fn children(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let lists =
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .map(|it| it.parse().unwrap())
                .collect::<Vec<_>>()
        })
        .collect()
}

fn status(pid: i32, name: &str) -> f64 {
    number(&format!("/proc/{pid}/status"), name)
}

/// The KiB behind `name` in a file of the kernel, in MiB.
fn number(path: &str, name: &str) -> f64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}

/// The clock that all processes of the machine share, in ns.
pub(crate) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    u64::try_from(time.tv_sec() * 1_000_000_000 + time.tv_nsec()).unwrap()
}
