//! Real forward proxies of Debian, each the only one that knows the upstream's name.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::debian;
use super::eventually;

/// A running proxy; dropping it ends it.
#[derive(Debug)]
pub(crate) struct ForwardProxy {
    pub(crate) address: SocketAddr,
    child: Child,
    folder: TempDir,
}

impl ForwardProxy {
    /// tinyproxy with these lines in its configuration.
    pub(crate) async fn tinyproxy(lines: &str) -> Self {
        Self::start(|folder, port| {
            let file = folder.join("tinyproxy.conf");
            let log = folder.join("log");
            let text = format!(
                "Port {port}\nListen 127.0.0.1\nTimeout 600\nLogFile \"{}\"\nLogLevel Connect\n{lines}\n",
                log.display()
            );
            fs::write(&file, text).unwrap();
            let mut command = Command::new(debian::program("tinyproxy-bin", "usr/bin/tinyproxy"));
            command.arg("-d").arg("-c").arg(file);
            command
        })
        .await
    }

    /// tinyproxy that wants [`USER`] and [`PASSWORD`].
    pub(crate) async fn with_login() -> Self {
        Self::tinyproxy(&format!("BasicAuth {USER} {PASSWORD}")).await
    }

    /// microsocks that wants [`USER`] and [`PASSWORD`].
    pub(crate) async fn socks() -> Self {
        Self::start(|_, port| {
            let mut command = Command::new(debian::program("microsocks", "usr/bin/microsocks"));
            command.args(["-i", "127.0.0.1", "-p", &port.to_string()]);
            command.args(["-u", USER, "-P", PASSWORD]);
            command
        })
        .await
    }

    async fn start(program: impl Fn(&Path, u16) -> Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let hosts = hosts_file(folder.path(), &format!("127.0.0.1 {UPSTREAM}\n"));
        // Neither program can say which port it got: one that was free a moment ago.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let mut command = program(folder.path(), address.port());
        for (name, value) in hosts {
            command.env(name, value);
        }
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = quiet.spawn().unwrap();
        eventually("the proxy listens", || TcpStream::connect(address).ok()).await;
        Self {
            address,
            child,
            folder,
        }
    }

    /// How many tunnels to the upstream were asked for.
    pub(crate) fn tunnels(&self) -> usize {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        log.matches(&format!("CONNECT {UPSTREAM}:")).count()
    }

    /// Its URL, login included.
    pub(crate) fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{USER}:{PASSWORD}@{}", self.address)
    }
}

impl Drop for ForwardProxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Variables under which a program's resolver knows these lines of a hosts file.
pub(crate) fn hosts_file(folder: &Path, lines: &str) -> [(&'static str, String); 2] {
    let hosts = folder.join("hosts");
    fs::write(&hosts, lines).unwrap();
    [
        ("LD_PRELOAD", debian::hosts_library().display().to_string()),
        ("NSS_WRAPPER_HOSTS", hosts.display().to_string()),
    ]
}

/// A name that only the proxies resolve.
pub(crate) const UPSTREAM: &str = "upstream.example";

/// Who the proxies let through.
pub(crate) const USER: &str = "somebody";

/// What must not show anywhere.
pub(crate) const PASSWORD: &str = "Brindlemoss-77";
