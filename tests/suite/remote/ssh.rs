//! The relay on a machine that is reached by ssh: an OpenSSH server on loopback with an account of its own.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::support::stage::Stage;
use crate::support::{debian, eventually};

/// An account that can be logged in to by key.
///
/// The account and its home exist for the server alone: `/srv` is there what the account may reach.
#[derive(Debug)]
pub(crate) struct Account {
    address: SocketAddr,
    place: PathBuf,
    uid: u32,
    ending: watch::Sender<Option<Ending>>,
    _tasks: JoinSet<()>,
}

/// How connections end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Both sides are told that the connection is broken.
    Reset,
    /// Nobody is told: no byte passes any more.
    Silence,
}

impl Account {
    /// Makes an account, and a server on a port of the system's choice.
    pub(crate) async fn open(stage: &Stage) -> Self {
        let place = stage.home.with_file_name("account");
        for folder in ["", "home", "home/codex"] {
            fs::create_dir(place.join(folder)).unwrap();
        }
        let uid = 100_000 + u32::from_le_bytes(random()) % 1_000_000_000;
        for folder in ["home", "home/codex"] {
            chown(place.join(folder), Some(uid), Some(uid)).unwrap();
        }
        fs::copy(
            stage.codex_home.join("config.toml"),
            place.join("home/codex/config.toml"),
        )
        .unwrap();
        let passwd = format!(
            "root:x:0:0:root:/root:/bin/sh\nsshd:*:99:65534::/run/sshd:/bin/false\n\
             relay:*:{uid}:{uid}::/srv/home:/bin/sh\n"
        );
        fs::write(place.join("passwd"), passwd).unwrap();
        fs::write(
            place.join("group"),
            format!("root:x:0:\nnogroup:x:65534:\nrelay:x:{uid}:\n"),
        )
        .unwrap();
        for name in ["host", "key"] {
            make_key(&place.join(name)).await;
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let host = fs::read_to_string(place.join("host.pub")).unwrap();
        let known = format!("[127.0.0.1]:{} {host}", address.port());
        fs::write(place.join("known_hosts"), known).unwrap();
        let server = server(stage, &place);
        let ending = watch::Sender::new(None);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, server, ending.clone()));
        Self {
            address,
            place,
            uid,
            ending,
            _tasks: tasks,
        }
    }

    /// The command that runs a line of shell there, without a terminal.
    pub(crate) fn ssh(&self, line: &str) -> Command {
        let program = debian::program("openssh-client", "usr/bin/ssh");
        let mut ssh = Command::new(program);
        let file = |name: &str| self.place.join(name).display().to_string();
        ssh.args(["-F", "none", "-T", "-i", &file("key")]);
        ssh.args(["-p", &self.address.port().to_string()]);
        for option in [
            "BatchMode=yes",
            "IdentitiesOnly=yes",
            "LogLevel=ERROR",
            "SendEnv=SUITE_MARK",
            &format!("UserKnownHostsFile={}", file("known_hosts")),
        ] {
            ssh.args(["-o", option]);
        }
        ssh.args(["relay@127.0.0.1", line]);
        ssh
    }

    /// Ends all connections, now and those to come.
    pub(crate) fn cut(&self, ending: Ending) {
        self.ending.send_replace(Some(ending));
    }

    /// Lets connections live again.
    pub(crate) fn mend(&self) {
        self.ending.send_replace(None);
    }

    /// A folder of the account, as it is seen from here.
    pub(crate) fn home(&self) -> PathBuf {
        self.place.join("home")
    }

    /// The command lines of the account's processes.
    pub(crate) fn processes(&self) -> Vec<String> {
        let all = fs::read_dir("/proc").unwrap();
        let folders = all.map(|it| it.unwrap().path());
        let own = folders.filter(|it| fs::metadata(it).is_ok_and(|it| it.uid() == self.uid));
        let numbered = own.filter(|it| {
            it.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .parse::<u32>()
                .is_ok()
        });
        let command = |folder: PathBuf| fs::read(folder.join("cmdline")).ok();
        let lines = numbered.filter_map(command);
        // The dead that nobody has buried yet have no command line.
        let living = lines.filter(|it| !it.is_empty());
        living
            .map(|it| String::from_utf8_lossy(&it).replace('\0', " "))
            .collect()
    }

    /// Waits until nothing of the account runs.
    pub(crate) async fn is_empty(&self) {
        eventually("nothing of the account runs", || {
            self.processes().is_empty().then_some(())
        })
        .await;
    }
}

/// The command that serves one connection.
fn server(stage: &Stage, place: &Path) -> Vec<OsString> {
    let (sshd, libraries) = debian::program_and_libraries("openssh-server", "usr/sbin/sshd");
    let configuration = place.join("sshd_config");
    let mut lines = format!(
        "HostKey {host}\nAuthorizedKeysFile {key}\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n\
         AcceptEnv SUITE_MARK\nPidFile none\nLogLevel ERROR\n\
         ClientAliveInterval 1\nClientAliveCountMax 2\n",
        host = place.join("host").display(),
        key = place.join("key.pub").display(),
    );
    // Newer servers are several programs, which know each other by paths.
    let parts = sshd.parent().unwrap().parent().unwrap().join("lib/openssh");
    for (option, name) in [
        ("SshdSessionPath", "sshd-session"),
        ("SshdAuthPath", "sshd-auth"),
    ] {
        let part = parts.join(name);
        if part.is_file() {
            lines = format!("{lines}{option} {}\n", part.display());
        }
    }
    fs::write(&configuration, lines).unwrap();
    let vendor = stage.codex.native.parent().unwrap().parent().unwrap();
    let mut libraries_of_its_own = OsString::from("LD_LIBRARY_PATH=");
    libraries_of_its_own.push(libraries);
    let words: [OsString; 13] = [
        "unshare".into(),
        "--mount".into(),
        "--".into(),
        "env".into(),
        libraries_of_its_own,
        "sh".into(),
        "-c".into(),
        include_str!("sshd.sh").into(),
        "sshd".into(),
        place.into(),
        env!("CARGO_BIN_EXE_codex-relay").into(),
        vendor.into(),
        sshd.into(),
    ];
    let mut words = Vec::from(words);
    words.push(configuration.into());
    words
}

async fn make_key(path: &Path) {
    let program = debian::program("openssh-client", "usr/bin/ssh-keygen");
    let made = Command::new(program)
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(path)
        .output()
        .await
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

async fn accept(
    listener: TcpListener,
    server: Vec<OsString>,
    ending: watch::Sender<Option<Ending>>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((near, _)) = accepted else { continue };
                connections.spawn(serve(near, server.clone(), ending.subscribe()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Passes bytes between a client and a server of its own, until they end or are cut.
async fn serve(
    near: TcpStream,
    server: Vec<OsString>,
    mut ending: watch::Receiver<Option<Ending>>,
) {
    let meeting = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = meeting.local_addr().unwrap();
    let (far, theirs) = tokio::join!(TcpStream::connect(address), meeting.accept());
    let (mut far, (theirs, _)) = (far.unwrap(), theirs.unwrap());
    let theirs = theirs.into_std().unwrap();
    theirs.set_nonblocking(false).unwrap();
    let theirs = OwnedFd::from(theirs);
    let mut sshd = Command::new(&server[0])
        .args(&server[1..])
        .stdin(Stdio::from(theirs.try_clone().unwrap()))
        .stdout(Stdio::from(theirs))
        .spawn()
        .unwrap();
    let mut near = near;
    let cut = async {
        let ending = ending.wait_for(Option::is_some).await.ok()?;
        *ending
    };
    let ending = tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => None,
        ending = cut => ending,
    };
    if ending == Some(Ending::Reset) {
        let _ = (near.set_zero_linger(), far.set_zero_linger());
    }
    if ending == Some(Ending::Silence) {
        // The sockets stay, and nobody reads them: the server finds out by itself.
        let _ = sshd.wait().await;
        return;
    }
    drop((near, far));
    let _ = sshd.wait().await;
}

fn random() -> [u8; 4] {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).unwrap();
    bytes
}
