//! Looking at processes: which of ours are alive, and how much memory one has taken.

use std::fs;
use std::os::unix::fs::FileExt;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::eventually;

/// A process that carries a mark in its environment.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// Its command line, arguments parted by blanks.
    pub(crate) command: String,
}

impl Process {
    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid), signal).unwrap();
    }

    /// The process group that it is in.
    pub(crate) fn group(&self) -> i32 {
        nix::unistd::getpgid(Some(Pid::from_raw(self.pid)))
            .unwrap()
            .as_raw()
    }

    /// Kills it if it is still there.
    pub(crate) fn try_kill(&self) {
        let _ = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
    }

    /// Waits until it is gone; a zombie counts as gone.
    pub(crate) async fn is_gone(&self) {
        let what = format!("{self:?} is gone");
        eventually(&what, || (!is_alive(self.pid)).then_some(())).await;
    }
}

/// All living processes whose environment says `SUITE_MARK=<mark>`.
pub(crate) fn marked(mark: &str) -> Vec<Process> {
    let wanted = format!("{MARK}={mark}");
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.parse::<i32>().ok()
    });
    pids.filter_map(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let mut variables = environment.split(|byte| *byte == 0);
        if !variables.any(|it| it == wanted.as_bytes()) || !is_alive(pid) {
            return None;
        }
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        Some(Process { pid, command })
    })
    .collect()
}

/// Waits until exactly one marked process is what is wanted.
pub(crate) async fn eventually_one(mark: &str, wanted: impl Fn(&Process) -> bool) -> Process {
    eventually("there is one such process", || {
        let mut found = marked(mark);
        found.retain(&wanted);
        (found.len() == 1).then(|| found.remove(0))
    })
    .await
}

/// Waits until no marked process is left.
pub(crate) async fn none_marked(mark: &str) {
    eventually("no process of ours is left", || {
        marked(mark).is_empty().then_some(())
    })
    .await;
}

/// The most memory that a process has ever had resident, in bytes.
pub(crate) fn peak_memory(pid: u32) -> u64 {
    number_in_status(pid, "VmHWM:") << 10
}

/// The memory that a process has resident, in bytes.
pub(crate) fn resident_memory(pid: u32) -> u64 {
    number_in_status(pid, "VmRSS:") << 10
}

/// A number that the kernel tells of a process.
pub(crate) fn number_in_status(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Whether a word stands anywhere in the memory that a process has written, or could read.
pub(crate) fn memory_holds(pid: i32, word: &str) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut chunk = vec![0; 1 << 20];
    let mut holds = |from: u64, to: u64| {
        let mut at = from;
        while at < to {
            // What can't be read, as the kernel's own pages, holds nothing of a process's.
            let Ok(count @ 1..) = memory.read_at(&mut chunk, at) else {
                return false;
            };
            let end = usize::try_from(to - at).map_or(count, |left| count.min(left));
            if memchr::memmem::find(&chunk[..end], word.as_bytes()).is_some() {
                return true;
            }
            let step = count.saturating_sub(word.len()).max(1);
            at += u64::try_from(step).unwrap();
        }
        false
    };
    maps.lines().any(|line| {
        let mut columns = line.split_whitespace();
        let (range, rights) = (columns.next().unwrap(), columns.next().unwrap());
        let (from, to) = range.split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        rights.starts_with('r') && holds(number(from), number(to))
    })
}

/// How many descriptors a process has open.
pub(crate) fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// Breaks the socket on which a process listens on a port, as nothing but a fault of the system would.
pub(crate) fn shut_listener(pid: u32, port: u16) {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let local = format!("0100007F:{port:04X}");
    let listens =
        |columns: &Vec<&str>| columns.get(1) == Some(&local.as_str()) && columns[3] == "0A";
    let rows = table.lines().map(|line| line.split_whitespace().collect());
    let inode = rows
        .filter(listens)
        .map(|columns| columns[9].to_owned())
        .next()
        .unwrap();
    let wanted = format!("socket:[{inode}]");
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let found = descriptors
        .map(|entry| entry.unwrap().path())
        .find(|path| fs::read_link(path).is_ok_and(|target| target.as_os_str() == wanted.as_str()));
    let number: i32 = found
        .unwrap()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    let process = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let process =
        rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty()).unwrap();
    let flags = rustix::process::PidfdGetfdFlags::empty();
    let socket = rustix::process::pidfd_getfd(&process, number, flags).unwrap();
    rustix::net::shutdown(&socket, rustix::net::Shutdown::Both).unwrap();
}

fn is_alive(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// The variable that marks what a test has started.
pub(crate) const MARK: &str = "SUITE_MARK";
