//! Whose socket is at the other end of a connection. Fails closed.
//!
//! Loopback is open to every user of the machine. The kernel knows who made a socket: it is asked
//! over `sock_diag(7)`, which looks up one connection and costs microseconds, and where a sandbox
//! has no such thing, by reading `/proc/net/tcp`.

use std::net::{SocketAddr, SocketAddrV4};

/// Answers for the connections of one listener.
#[derive(Debug)]
pub(super) struct Peers {
    #[cfg(target_os = "linux")]
    inner: linux::Peers,
}

impl Peers {
    /// Gets ready to ask.
    pub(super) fn new() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            inner: linux::Peers::new(),
        }
    }

    /// Whether the connection from `peer` to `local` was made by a process of our own user.
    #[cfg(target_os = "linux")]
    pub(super) fn is_ours(&mut self, peer: SocketAddr, local: SocketAddr) -> bool {
        match (peer, local) {
            (SocketAddr::V4(peer), SocketAddr::V4(local)) => self.inner.is_ours(peer, local),
            (SocketAddr::V4(_) | SocketAddr::V6(_), _) => false,
        }
    }

    /// Always: this system isn't asked, and the secret alone guards the endpoint.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn is_ours(&mut self, _peer: SocketAddr, _local: SocketAddr) -> bool {
        true
    }
}

/// Who holds a socket, as the kernel says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    user: u32,
    /// Zero where no process holds the socket any more: then the user says nothing.
    inode: u64,
}

/// The line of `/proc/net/tcp` about the connection from `peer` to `local`.
fn owner_in_table<'a>(
    mut lines: impl Iterator<Item = &'a str>,
    peer: SocketAddrV4,
    local: SocketAddrV4,
) -> Option<Owner> {
    let name = |address: SocketAddrV4| {
        let word = u32::from_ne_bytes(address.ip().octets());
        format!("{word:08X}:{:04X}", address.port())
    };
    let (from, to) = (name(peer), name(local));
    lines.find_map(|line| {
        let mut columns = line.split_ascii_whitespace().skip(1);
        if columns.next()? != from || columns.next()? != to {
            return None;
        }
        // State, queues, timer and retransmits stand before the user; a time-out behind it.
        let mut columns = columns.skip(4);
        let user = columns.next()?.parse().ok()?;
        let inode = columns.nth(1)?.parse().ok()?;
        Some(Owner { user, inode })
    })
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;
    use std::io::{BufRead, BufReader, Read};
    use std::net::SocketAddrV4;
    use std::os::fd::{AsRawFd, OwnedFd};

    use nix::sys::socket::{
        AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
    };
    use nix::unistd::geteuid;

    use super::{Owner, owner_in_table};
    use crate::base::limits::MAX_SOCKET_TABLE_BYTES;

    /// The line to the kernel, kept open: a check needs no descriptor of its own.
    #[derive(Debug)]
    pub(super) struct Peers {
        kernel: Option<OwnedFd>,
        sequence: u32,
    }

    impl Peers {
        pub(super) fn new() -> Self {
            let kernel = socket(
                AddressFamily::Netlink,
                SockType::Datagram,
                SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
                SockProtocol::NetlinkSockDiag,
            );
            Self {
                kernel: kernel.ok(),
                sequence: 0,
            }
        }

        pub(super) fn is_ours(&mut self, peer: SocketAddrV4, local: SocketAddrV4) -> bool {
            let owner = match self.ask(peer, local) {
                Answer::Owner(owner) => Some(owner),
                Answer::NoSuchSocket => None,
                Answer::Unasked => read_table(peer, local),
            };
            owner.is_some_and(|it| it.inode != 0 && it.user == geteuid().as_raw())
        }

        fn ask(&mut self, peer: SocketAddrV4, local: SocketAddrV4) -> Answer {
            let Some(kernel) = &self.kernel else {
                return Answer::Unasked;
            };
            self.sequence = self.sequence.wrapping_add(1);
            let question = question(self.sequence, peer, local);
            let kernel = kernel.as_raw_fd();
            if send(kernel, &question, MsgFlags::empty()).is_err() {
                return Answer::Unasked;
            }
            let mut answer = [0; 1024];
            // The kernel has answered before `send` returns; older answers were left over.
            while let Ok(length) = recv(kernel, &mut answer, MsgFlags::empty()) {
                let answer = answer.get(..length).unwrap_or_default();
                if word(answer, SEQUENCE) == Some(self.sequence) {
                    return read_answer(answer, peer, local);
                }
            }
            Answer::Unasked
        }
    }

    #[derive(Debug, PartialEq, Eq)]
    pub(super) enum Answer {
        NoSuchSocket,
        Owner(Owner),
        /// This kernel, or the sandbox around us, doesn't say.
        Unasked,
    }

    /// A request for one TCP socket: `nlmsghdr` and `inet_diag_req_v2` of `linux/inet_diag.h`.
    pub(super) fn question(sequence: u32, peer: SocketAddrV4, local: SocketAddrV4) -> Vec<u8> {
        let mut out = Vec::with_capacity(QUESTION_BYTES);
        let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
        put(&u32::try_from(QUESTION_BYTES).unwrap_or(0).to_ne_bytes());
        put(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        put(&NLM_F_REQUEST.to_ne_bytes());
        put(&sequence.to_ne_bytes());
        put(&0_u32.to_ne_bytes());
        // Family, protocol, no extensions, padding, any state.
        put(&[AF_INET, IPPROTO_TCP, 0, 0]);
        put(&u32::MAX.to_ne_bytes());
        // The socket as its owner sees it.
        put(&peer.port().to_be_bytes());
        put(&local.port().to_be_bytes());
        for address in [peer, local] {
            put(&address.ip().octets());
            put(&[0; 12]);
        }
        // Any interface, no cookie.
        put(&0_u32.to_ne_bytes());
        put(&[0xFF; 8]);
        out
    }

    /// Reads `nlmsghdr` and `inet_diag_msg`, and checks that they are about the connection.
    pub(super) fn read_answer(answer: &[u8], peer: SocketAddrV4, local: SocketAddrV4) -> Answer {
        let kind = answer.get(4..6).and_then(|at| at.try_into().ok());
        let kind = kind.map(u16::from_ne_bytes);
        if kind == Some(NLMSG_ERROR) {
            let is_absent = word(answer, 16).map(u32::cast_signed) == Some(-ENOENT);
            return if is_absent {
                Answer::NoSuchSocket
            } else {
                Answer::Unasked
            };
        }
        let same = answer.get(20..22) == Some(&peer.port().to_be_bytes())
            && answer.get(22..24) == Some(&local.port().to_be_bytes());
        match (word(answer, USER), word(answer, INODE)) {
            (Some(user), Some(inode)) if kind == Some(SOCK_DIAG_BY_FAMILY) && same => {
                let inode = inode.into();
                Answer::Owner(Owner { user, inode })
            }
            // What listens at the peer's port isn't the peer.
            _ => Answer::NoSuchSocket,
        }
    }

    fn word(bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = bytes.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    }

    /// Looks through all sockets of the machine. A socket of the other family may hold the
    /// connection under a mapped address: it isn't found, and refused.
    fn read_table(peer: SocketAddrV4, local: SocketAddrV4) -> Option<Owner> {
        #[expect(
            clippy::disallowed_methods,
            reason = "a table that the kernel makes, not a file"
        )]
        let table = File::open("/proc/net/tcp").ok()?;
        let lines = BufReader::new(table.take(MAX_SOCKET_TABLE_BYTES)).lines();
        let lines: Vec<String> = lines.map_while(Result::ok).collect();
        owner_in_table(lines.iter().map(String::as_str), peer, local)
    }

    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const NLM_F_REQUEST: u16 = 1;
    const NLMSG_ERROR: u16 = 2;
    const AF_INET: u8 = 2;
    const IPPROTO_TCP: u8 = 6;
    const ENOENT: i32 = 2;
    const QUESTION_BYTES: usize = 72;
    /// Where `nlmsg_seq`, `idiag_uid` and `idiag_inode` stand.
    const SEQUENCE: usize = 8;
    const USER: usize = 80;
    const INODE: usize = 84;
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::linux::{Answer, question, read_answer};
    use super::*;

    fn v4(address: SocketAddr) -> SocketAddrV4 {
        let SocketAddr::V4(address) = address else {
            panic!("{address}");
        };
        address
    }

    #[test]
    fn own_connection_is_ours_and_an_abandoned_one_is_nobodys() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let mut peers = Peers::new();
        let stream = TcpStream::connect(local).unwrap();
        let (_held, peer) = listener.accept().unwrap();
        assert!(peers.is_ours(peer, local));
        drop(stream);
        assert!(!peers.is_ours(peer, local));
        let nobody = "127.0.0.1:1".parse().unwrap();
        assert!(!peers.is_ours(nobody, local));
        // What listens where the peer should be isn't the peer.
        assert!(!peers.is_ours(local, nobody));
    }

    #[test]
    fn table_of_the_kernel_says_the_same() {
        let table = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 41 1
   1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 42 1
   2: 0100007F:1F92 0100007F:1F90 06 00000000:00000000 03:00000000 00000000     0        0 0 3";
        let at = |port| SocketAddrV4::new([127, 0, 0, 1].into(), port);
        let owner = |port| owner_in_table(table.lines(), at(port), at(0x1F90));
        let found = |user, inode| Some(Owner { user, inode });
        assert_eq!(owner(0x1F91), found(1001, 42));
        assert_eq!(owner(0x1F92), found(0, 0));
        assert_eq!(owner(0x1F90), None);
        assert_eq!(owner(1), None);
    }

    #[test]
    fn answer_about_another_socket_or_a_cut_one_is_none() {
        let at = |port| SocketAddrV4::new([127, 0, 0, 1].into(), port);
        assert_eq!(question(1, at(7), at(8)).len(), 72);
        let mut answer = vec![0; 88];
        answer[4..6].copy_from_slice(&20_u16.to_ne_bytes());
        answer[20..24].copy_from_slice(&[0, 7, 0, 8]);
        answer[80] = 5;
        answer[84] = 6;
        let found = Answer::Owner(Owner { user: 5, inode: 6 });
        assert_eq!(read_answer(&answer, at(7), at(8)), found);
        assert_eq!(read_answer(&answer, at(8), at(7)), Answer::NoSuchSocket);
        for cut in 0..88 {
            assert_ne!(read_answer(&answer[..cut], at(7), at(8)), found);
        }
    }

    #[test]
    fn connection_that_was_made_over_ipv6_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let mapped: SocketAddr = format!("[::ffff:127.0.0.1]:{}", local.port())
            .parse()
            .unwrap();
        let Ok(_stream) = TcpStream::connect(mapped) else {
            return; // a system without IPv6
        };
        let (_held, peer) = listener.accept().unwrap();
        assert!(Peers::new().is_ours(peer, v4(local).into()));
    }
}
