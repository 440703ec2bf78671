//! Names into addresses, by the system's own resolver.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::Name;
use tokio::net::lookup_host;
use tower_service::Service;

use crate::upstream::fault::{Fault, Hop};

/// Resolves names.
#[derive(Clone, Copy, Debug)]
pub struct Resolver {
    /// Whether a private address is refused: the service that the relay chose by itself is on the
    /// public net, and whoever says otherwise wants the user's credentials.
    pub public_only: bool,
}

impl Resolver {
    /// The addresses of `host`.
    pub async fn resolve(self, host: &str) -> Result<Vec<SocketAddr>, Fault> {
        let found = lookup_host((host, 0)).await;
        let found: Vec<SocketAddr> = found.map_err(|error| of_lookup(&error))?.collect();
        let private = found.iter().map(SocketAddr::ip).find(is_private);
        match private.filter(|_| self.public_only) {
            Some(address) => Err(Fault::lasting(
                Hop::Dns,
                format!(
                    "{host} is {address} here, a private address; name such an upstream with --upstream"
                ),
            )),
            None => Ok(found),
        }
    }
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Fault;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Fault>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let this = *self;
        Box::pin(async move { Ok(this.resolve(name.as_str()).await?.into_iter()) })
    }
}

/// What the system's resolver means; it gives its codes as text alone.
fn of_lookup(error: &io::Error) -> Fault {
    let said = error.to_string();
    let words = said
        .strip_prefix("failed to lookup address information: ")
        .unwrap_or(&said);
    let unknown = [
        "Name or service not known",
        "nodename nor servname",
        "No address associated",
        "Name does not resolve",
    ];
    if unknown.iter().any(|known| words.contains(known)) {
        Fault::passing(Hop::Dns, "no such host")
    } else {
        Fault::passing(Hop::Dns, words)
    }
}

/// Whether an address is not on the public net.
///
/// 198.18.0.0/15 counts as public: local proxies that capture traffic hand out such addresses for
/// every name.
fn is_private(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_private_v4(*address),
        IpAddr::V6(address) => embedded(*address).map_or_else(
            || {
                address.is_loopback()
                    || address.is_unspecified()
                    || address.is_unique_local()
                    || address.is_unicast_link_local()
                    || address.is_multicast()
            },
            is_private_v4,
        ),
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    let is_shared = first == 100 && second & 0xC0 == 64;
    first == 0
        || is_shared
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
}

/// The IPv4 address inside an IPv6 one: mapped, or behind a translator (`64:ff9b::/96`).
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    address
        .to_ipv4_mapped()
        .or_else(|| match address.segments() {
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
                Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
            }
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_told_from_public_ones() {
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "255.255.255.255",
            "224.0.0.1",
            "::1",
            "::",
            "fd00::1",
            "fe80::1",
            "::ffff:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "ff02::1",
        ] {
            assert!(is_private(&private.parse().unwrap()), "{private}");
        }
        for public in [
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "198.18.0.7",
            "2606:4700::1111",
            "64:ff9b::1.1.1.1",
            "::ffff:1.1.1.1",
        ] {
            assert!(!is_private(&public.parse().unwrap()), "{public}");
        }
    }

    #[tokio::test]
    async fn private_addresses_are_refused_where_nobody_asked_for_them() {
        let refused = Resolver { public_only: true }.resolve("localhost").await;
        let fault = refused.unwrap_err();
        assert!(fault.permanent);
        assert!(
            fault.to_string().starts_with("dns: localhost is "),
            "{fault}"
        );
        let free = Resolver { public_only: false };
        assert!(!free.resolve("localhost").await.unwrap().is_empty());
    }
}
