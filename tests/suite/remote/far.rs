//! The other machine: a real `codex exec-server` in a sandbox of its own.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Stdio;

use nix::sched::{CloneFlags, setns};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};

use crate::support::codex::Codex;
use crate::support::{debian, eventually};

/// A machine without a way to this one: its own network, processes, mounts, `CODEX_HOME`, and an empty environment.
///
/// All that it can write to is below [`Far::root`]. Dropping it ends all its processes.
#[derive(Debug)]
pub(crate) struct Far {
    pub(crate) root: PathBuf,
    codex: Codex,
    server: Option<Server>,
}

#[derive(Debug)]
struct Server {
    unshare: Child,
    port: u16,
    _stdout: BufReader<ChildStdout>,
}

impl Far {
    /// Makes the machine, below a folder that exists; nothing runs on it yet.
    pub(crate) fn new(codex: &Codex, root: PathBuf) -> Self {
        fs::create_dir(&root).unwrap();
        Self {
            root,
            codex: codex.clone(),
            server: None,
        }
    }

    /// The folder that threads work in there, as it is seen from here.
    pub(crate) fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    /// The command that runs the machine's codex with these arguments.
    pub(crate) fn command(&self, arguments: &[&str]) -> Vec<OsString> {
        let vendor = self.codex.native.parent().unwrap().parent().unwrap();
        let busybox = debian::program("busybox-static", "bin/busybox");
        let mut words: Vec<OsString> = ENTER.iter().map(Into::into).collect();
        words.extend(["sh", "-c", include_str!("sandbox.sh"), "sandbox"].map(Into::into));
        words.extend(
            [
                self.root.as_os_str(),
                vendor.as_os_str(),
                busybox.as_os_str(),
            ]
            .map(Into::into),
        );
        words.extend(arguments.iter().map(Into::into));
        words
    }

    /// The same command as a line of shell.
    pub(crate) fn script(&self, arguments: &[&str]) -> String {
        let words = self.command(arguments);
        let quoted = words.iter().map(|word| {
            let word = word.to_str().unwrap().replace('\'', "'\\''");
            format!("'{word}'")
        });
        quoted.collect::<Vec<_>>().join(" ")
    }

    /// Starts the exec-server, listening on a port of the machine's own choice.
    pub(crate) async fn start(&mut self) {
        let words = self.command(&["exec-server", "--listen", "ws://127.0.0.1:0"]);
        let mut unshare = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(unshare.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).await.unwrap();
        let port = line.trim().strip_prefix("ws://127.0.0.1:");
        let port = port.unwrap_or_else(|| panic!("no address in {line:?}"));
        self.server = Some(Server {
            port: port.parse().unwrap(),
            unshare,
            _stdout: stdout,
        });
    }

    /// Ends the machine's processes at once, as a loss of power does; its files stay.
    pub(crate) async fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.unshare.kill().await.unwrap();
        }
        eventually("the other machine is down", || {
            self.processes().is_empty().then_some(())
        })
        .await;
    }

    /// The way to the exec-server.
    pub(crate) fn door(&self) -> Door {
        let server = self.server.as_ref().unwrap();
        let network = format!("/proc/{}/ns/net", server.unshare.id().unwrap());
        Door {
            network: network.into(),
            port: server.port,
        }
    }

    /// Every process of the machine: its command line and environment.
    pub(crate) fn processes(&self) -> Vec<Seen> {
        let all = fs::read_dir("/proc").unwrap();
        let folders = all.map(|it| it.unwrap().path());
        let root = fs::metadata(&self.root).unwrap();
        let here = fs::read_link("/proc/self/ns/pid").unwrap();
        // Whoever waits on this side for the machine's end has its root, and is none of its processes.
        let is_elsewhere =
            |folder: &PathBuf| fs::read_link(folder.join("ns/pid")).is_ok_and(|it| it != here);
        let is_there = |folder: &PathBuf| {
            let its = fs::metadata(folder.join("root/"));
            its.is_ok_and(|it| (it.dev(), it.ino()) == (root.dev(), root.ino()))
        };
        let there = folders.filter(is_elsewhere).filter(is_there);
        let read = |path: PathBuf| fs::read(path).unwrap_or_default();
        there
            .map(|folder| Seen {
                command: read(folder.join("cmdline")),
                environment: read(folder.join("environ")),
            })
            .collect()
    }

    /// Every file that the machine has, but for the programs that it shares with this one: what is in it.
    pub(crate) fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        let mut folders = vec![self.root.clone()];
        let mut seen = BTreeSet::new();
        while let Some(folder) = folders.pop() {
            assert!(seen.insert(folder.clone()));
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let kind = fs::symlink_metadata(&path).unwrap().file_type();
                if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_symlink() {
                    let target = fs::read_link(&path).unwrap().into_os_string().into_vec();
                    files.push((path, target));
                } else if kind.is_file() {
                    let bytes = fs::read(&path).unwrap();
                    files.push((path, bytes));
                }
            }
        }
        files
    }
}

/// One process as it was seen.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) command: Vec<u8>,
    pub(crate) environment: Vec<u8>,
}

/// Where an exec-server listens, in its own network.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    network: PathBuf,
    port: u16,
}

impl Door {
    /// The address in that network.
    pub(crate) fn url(&self) -> String {
        format!("ws://127.0.0.1:{}/", self.port)
    }

    /// Connects from within the other network: the socket is made there, and used here.
    pub(crate) async fn connect(&self) -> io::Result<TcpStream> {
        let (network, port) = (File::open(&self.network)?, self.port);
        // A thread of its own: its network is the other one from then on.
        let dial = std::thread::spawn(move || {
            setns(network, CloneFlags::CLONE_NEWNET)?;
            std::net::TcpStream::connect(("127.0.0.1", port))
        });
        let stream = tokio::task::spawn_blocking(|| dial.join()).await?;
        let stream = stream.map_err(|_| io::Error::other("the dialling thread fell"))??;
        stream.set_nonblocking(true)?;
        TcpStream::from_std(stream)
    }
}

/// Leaves network, processes, mounts and names of this machine.
const ENTER: [&str; 9] = [
    "unshare",
    "--net",
    "--ipc",
    "--uts",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount",
    "--",
];
