//! Why an upstream couldn't be reached, in words that name the hop.

use std::error::Error;
use std::fmt;
use std::io;

use rustls::CertificateError;

use crate::upstream::verify::UnknownIssuer;

/// The hop on which a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// TCP.
    Connect,
    /// The name.
    Dns,
    /// The proxy, or the way to it.
    Proxy,
    /// The handshake, or the certificate.
    Tls,
    /// The upstream itself: it took the connection and failed.
    Upstream,
}

/// A request that got no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    /// Where it failed.
    pub hop: Hop,
    /// Whether the same request would fail again.
    pub permanent: bool,
    /// What happened there; no more of the request than hosts.
    pub detail: String,
}

impl Fault {
    /// A fault that may be gone at the next try.
    pub fn passing(hop: Hop, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self {
            hop,
            permanent: false,
            detail,
        }
    }

    /// A fault that stays until somebody mends it.
    pub fn lasting(hop: Hop, detail: impl Into<String>) -> Self {
        Self {
            permanent: true,
            ..Self::passing(hop, detail)
        }
    }

    /// Reads the cause out of `error` and what is below it.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        let mut chain = vec![error];
        while let Some(below) = chain.last().copied().and_then(Error::source) {
            chain.push(below);
        }
        // The stages of a connection have said it already.
        let said = chain.iter().find_map(|error| {
            let inside = error
                .downcast_ref::<io::Error>()
                .and_then(io::Error::get_ref);
            let inside = inside.and_then(|inner| inner.downcast_ref());
            error.downcast_ref::<Self>().or(inside)
        });
        if let Some(fault) = said {
            return fault.clone();
        }
        Self::passing(Hop::Upstream, lowest(error))
    }

    /// What went wrong in a handshake.
    pub fn of_handshake(error: &io::Error) -> Self {
        // rustls hides inside the io::Error that carries it.
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
        match tls {
            Some(rustls::Error::InvalidCertificate(why)) => {
                Self::lasting(Hop::Tls, of_certificate(why))
            }
            Some(other) => Self::passing(Hop::Tls, other.to_string()),
            None => Self::passing(Hop::Tls, format!("no handshake: {}", of_io(error))),
        }
    }

    /// The same fault, on the way to the proxy at `address`.
    #[must_use]
    pub fn at_proxy(self, address: &str) -> Self {
        let inner = match self.hop {
            Hop::Connect => self.detail,
            Hop::Dns | Hop::Proxy | Hop::Tls | Hop::Upstream => self.to_string(),
        };
        Self {
            hop: Hop::Proxy,
            permanent: self.permanent,
            detail: format!("{address}: {inner}"),
        }
    }
}

/// What the operating system said, without its number.
pub fn of_io(error: &io::Error) -> String {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the kinds are endless; the others speak for themselves"
    )]
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => "connection reset".to_owned(),
        io::ErrorKind::UnexpectedEof => "connection closed".to_owned(),
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
            "no way to that network".to_owned()
        }
        io::ErrorKind::TimedOut => "no answer in time".to_owned(),
        _ => error.to_string(),
    }
}

/// What the lowest layer said.
pub fn lowest(error: &(dyn Error + 'static)) -> String {
    let mut lowest = error;
    while let Some(below) = lowest.source() {
        lowest = below;
    }
    match lowest.downcast_ref::<io::Error>() {
        Some(io) => of_io(io),
        None => lowest.to_string(),
    }
}

fn of_certificate(why: &CertificateError) -> String {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the library's own words do for rare ones"
    )]
    match why {
        CertificateError::Other(other) => match other.0.downcast_ref::<UnknownIssuer>() {
            Some(issuer) => issuer.to_string(),
            None => other.to_string(),
        },
        CertificateError::UnknownIssuer => "unknown issuer".to_owned(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the certificate is not valid yet; see that this machine's clock is right".to_owned()
        }
        CertificateError::NotValidForName => "the certificate is for another name".to_owned(),
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names = presented.iter().take(3).map(|name| plain_name(name));
            let names: Vec<String> = names.collect();
            format!("the certificate is for another name: {}", names.join(", "))
        }
        other => other.to_string(),
    }
}

/// rustls shows names as `DnsName("a.example")`.
fn plain_name(shown: &str) -> String {
    let inner = shown
        .split_once("(\"")
        .and_then(|(_, rest)| rest.strip_suffix("\")"));
    inner.unwrap_or(shown).chars().take(MAX_NAME).collect()
}

/// The longest part of a certificate that is shown.
pub(super) const MAX_NAME: usize = 80;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hop {
            // "proxy HOST:PORT answered 407"
            Hop::Proxy => write!(f, "proxy {}", self.detail),
            Hop::Connect | Hop::Dns | Hop::Tls | Hop::Upstream => {
                write!(f, "{}: {}", self.hop, self.detail)
            }
        }
    }
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect",
            Self::Dns => "dns",
            Self::Proxy => "proxy",
            Self::Tls => "tls",
            Self::Upstream => "upstream",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_the_hop_and_the_proxy() {
        let told = |fault: Fault| fault.at_proxy("127.0.0.1:3128").to_string();
        assert_eq!(
            told(Fault::passing(Hop::Connect, "connection refused")),
            "proxy 127.0.0.1:3128: connection refused"
        );
        assert_eq!(
            told(Fault::passing(Hop::Dns, "no such host")),
            "proxy 127.0.0.1:3128: dns: no such host"
        );
        let lasting = Fault::lasting(Hop::Tls, "unknown issuer CN=x").at_proxy("p:1");
        assert!(lasting.permanent);
        assert_eq!(lasting.to_string(), "proxy p:1: tls: unknown issuer CN=x");
    }

    #[test]
    fn faults_are_found_below_what_carries_them() {
        let fault = Fault::lasting(Hop::Proxy, "p:1 answered 407");
        assert_eq!(Fault::of(&io::Error::other(fault.clone())), fault);
        let unknown = Fault::of(&io::Error::from(io::ErrorKind::ConnectionReset));
        assert_eq!(unknown.to_string(), "upstream: connection reset");
    }
}
