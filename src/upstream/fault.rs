//! Why an upstream couldn't be reached, in words that name the hop.

use std::error::Error;
use std::fmt;
use std::io;

/// The hop on which a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// TCP.
    Connect,
    /// The name.
    Dns,
    /// The handshake, or the certificate.
    Tls,
    /// The upstream itself: it took the connection and failed.
    Upstream,
}

/// A request that got no answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where it failed.
    pub hop: Hop,
    /// Whether the same request would fail again.
    pub permanent: bool,
    /// What the lowest layer said.
    pub detail: String,
}

impl Fault {
    /// Reads the cause out of `error` and what is below it.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        let mut chain = vec![error];
        while let Some(below) = chain.last().copied().and_then(Error::source) {
            chain.push(below);
        }
        let detail = chain.last().map(ToString::to_string).unwrap_or_default();
        let tls = chain.iter().find_map(|error| {
            // rustls hides inside the io::Error that carries it.
            let inner = error.downcast_ref::<io::Error>()?.get_ref()?;
            inner.downcast_ref::<rustls::Error>()
        });
        if let Some(tls) = tls {
            return Self {
                hop: Hop::Tls,
                permanent: matches!(tls, rustls::Error::InvalidCertificate(_)),
                detail: tls.to_string(),
            };
        }
        let says = |words: &str| chain.iter().any(|error| error.to_string().contains(words));
        let hop = if says("dns error") {
            Hop::Dns
        } else if says("tcp ") || says("deadline") {
            Hop::Connect
        } else {
            Hop::Upstream
        };
        Self {
            hop,
            permanent: false,
            detail,
        }
    }
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect",
            Self::Dns => "dns",
            Self::Tls => "tls",
            Self::Upstream => "upstream",
        })
    }
}
