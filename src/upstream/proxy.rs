//! Which proxy a connection to an upstream goes through.
//!
//! The rules are those of curl: the variable in small letters beats the one in capitals, the one of
//! the scheme beats `ALL_PROXY`. Two things more than curl knows: `HTTP_PROXY` in capitals is read,
//! and entries of `NO_PROXY` may name a port.

use std::fmt;
use std::net::IpAddr;

use http::Uri;
use http::uri::{Authority, Scheme};
use hyper_util::client::proxy::matcher::Matcher;

/// The proxy for connections, and the hosts that need none.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    /// The proxy for TLS; there are no connections without that leave this machine.
    pub proxy: Option<Proxy>,
    /// Hosts that are reached directly.
    pub except: NoProxy,
}

/// One proxy.
#[derive(Clone)]
pub struct Proxy {
    /// How it is spoken to.
    pub kind: Kind,
    host: String,
    port: u16,
    login: Login,
}

/// How a proxy is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// CONNECT over TCP.
    Http,
    /// CONNECT over TLS.
    Https,
    /// SOCKS 5.
    Socks5,
}

/// What the proxy is told about us.
#[derive(Clone)]
enum Login {
    Nobody,
    /// The value of `Proxy-Authorization`.
    Basic(http::HeaderValue),
    /// User and password.
    Plain(String, String),
}

/// Why a text names no proxy that can be used. The text is not repeated: it may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// It isn't a URL with a host.
    #[error("is not the URL of a proxy; expected http://[USER:PASSWORD@]HOST[:PORT]")]
    NotAUrl,
    /// The scheme isn't one that is spoken.
    #[error("has the scheme {0:?}; expected http, https, socks5 or socks5h")]
    Scheme(String),
}

impl Proxies {
    /// The proxy that a connection to `uri` goes through, if any. Loopback never needs one.
    pub fn choose(&self, uri: &Uri) -> Option<&Proxy> {
        let host = bare(uri.host()?);
        let port = uri.port_u16().unwrap_or(HTTPS_PORT);
        let proxy = self.proxy.as_ref()?;
        (!is_loopback(host) && !self.except.contains(host, port)).then_some(proxy)
    }
}

impl Proxy {
    /// Reads the URL of a proxy; without a scheme it is `http`. User and password may be
    /// percent-encoded.
    pub fn parse(url: &str) -> Result<Self, ProxyError> {
        let url = url.trim();
        let with_scheme = if url.contains("://") {
            url.to_owned()
        } else {
            format!("http://{url}")
        };
        let uri: Uri = with_scheme.parse().map_err(|_| ProxyError::NotAUrl)?;
        let scheme = uri.scheme_str().unwrap_or_default();
        let (kind, standard) = match scheme {
            "http" => (Kind::Http, 80),
            "https" => (Kind::Https, HTTPS_PORT),
            "socks5" | "socks5h" => (Kind::Socks5, 1080),
            other => return Err(ProxyError::Scheme(other.to_owned())),
        };
        // The library takes user and password apart and encodes them.
        let matched = Matcher::builder().all(with_scheme).build();
        let found = matched
            .intercept(&Uri::from_static("https://upstream.invalid"))
            .ok_or(ProxyError::NotAUrl)?;
        let host = found.uri().host().unwrap_or_default();
        if host.is_empty() {
            return Err(ProxyError::NotAUrl);
        }
        let authority = found.uri().authority().map(Authority::as_str);
        let port = match authority.and_then(|text| text.strip_prefix(host)) {
            None | Some("") => standard,
            Some(port) => {
                let port = port.strip_prefix(':').and_then(|port| port.parse().ok());
                port.ok_or(ProxyError::NotAUrl)?
            }
        };
        let login = match (found.basic_auth(), found.raw_auth()) {
            (Some(value), _) => Login::Basic(value.clone()),
            (None, Some((user, password))) => Login::Plain(user.to_owned(), password.to_owned()),
            (None, None) => Login::Nobody,
        };
        Ok(Self {
            kind,
            host: host.to_owned(),
            port,
            login,
        })
    }

    /// Host and port, without user and password: what may be shown.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The name, for TLS to the proxy itself.
    pub fn host(&self) -> &str {
        bare(&self.host)
    }

    /// The address to dial, as a URL.
    pub fn url(&self) -> Option<Uri> {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(Scheme::HTTP);
        parts.authority = Authority::try_from(self.address()).ok();
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
        Uri::from_parts(parts).ok()
    }

    /// The value of `Proxy-Authorization`.
    pub fn basic(&self) -> Option<&http::HeaderValue> {
        match &self.login {
            Login::Basic(value) => Some(value),
            Login::Nobody | Login::Plain(..) => None,
        }
    }

    /// User and password, for SOCKS.
    pub fn plain(&self) -> Option<(&str, &str)> {
        match &self.login {
            Login::Plain(user, password) => Some((user, password)),
            Login::Nobody | Login::Basic(_) => None,
        }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("kind", &self.kind)
            .field("address", &self.address())
            .finish_non_exhaustive()
    }
}

/// Hosts that are reached without a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoProxy(Vec<Exception>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Exception {
    host: Host,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Any,
    /// A name and all names below it.
    Name(String),
    /// Addresses that share their first bits with this one.
    Network(IpAddr, u32),
}

impl NoProxy {
    /// Reads a list, parted by commas or blanks. Entries that can't be read match nothing.
    ///
    /// `*` is every host; `a.example`, `.a.example` and `*.a.example` are that name and those below
    /// it; addresses may be CIDR blocks; any entry may end in `:PORT`.
    pub fn parse(list: &str) -> Self {
        let entries = list.split(|c: char| c == ',' || c.is_whitespace());
        let entries = entries.filter(|entry| !entry.is_empty());
        Self(entries.filter_map(Exception::parse).collect())
    }

    /// Whether `host` (an address without brackets) is reached directly on `port`.
    pub fn contains(&self, host: &str, port: u16) -> bool {
        self.0.iter().any(|exception| {
            exception.port.is_none_or(|known| known == port) && exception.host.matches(host)
        })
    }
}

impl Exception {
    fn parse(entry: &str) -> Option<Self> {
        if let Some(host) = Host::address(entry) {
            return Some(Self { host, port: None });
        }
        let (name, port) = match entry.rsplit_once(':') {
            None => (entry, None),
            Some((name, port)) => (name, Some(port.parse().ok()?)),
        };
        let host = Host::address(name).or_else(|| Host::name(name))?;
        Some(Self { host, port })
    }
}

impl Host {
    fn address(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            None => (text, None),
            Some((address, prefix)) => (address, Some(prefix.parse::<u32>().ok()?)),
        };
        let address: IpAddr = bare(address).parse().ok()?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(whole);
        (prefix <= whole).then_some(Self::Network(address, prefix))
    }

    fn name(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::Any);
        }
        let name = text.trim_start_matches("*.").trim_matches('.');
        let is_name = !name.is_empty() && !name.contains(['/', '[', ']', '*']);
        is_name.then(|| Self::Name(name.to_ascii_lowercase()))
    }

    fn matches(&self, host: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Name(name) => {
                let host = host.trim_end_matches('.').to_ascii_lowercase();
                host.strip_suffix(name)
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
            Self::Network(network, prefix) => host
                .parse()
                .is_ok_and(|address| shares(*network, address, *prefix)),
        }
    }
}

/// Whether two addresses of one family begin with the same `prefix` bits.
fn shares(one: IpAddr, other: IpAddr, prefix: u32) -> bool {
    let (one, other) = match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            let widen = |bits: u32| u128::from(bits) << 96;
            (widen(one.to_bits()), widen(other.to_bits()))
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits(), other.to_bits()),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    };
    (one ^ other).leading_zeros() >= prefix
}

/// Whether a host is this machine by its name alone.
pub fn is_loopback(host: &str) -> bool {
    let host = bare(host);
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A host without the brackets of an IPv6 address.
pub fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Where https is served.
pub const HTTPS_PORT: u16 = 443;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_are_names_addresses_networks_and_ports() {
        let list = "a.example, .b.example *.c.example\tD.Example.:8443,10.0.0.0/8,[fd00::]/8,::1,\
                    192.0.2.7:443,[2001:db8::1]:443,,junk/9,x:y";
        let list = NoProxy::parse(list);
        for (host, port) in [
            ("a.example", 443),
            ("A.example.", 443),
            ("deep.a.example", 1),
            ("b.example", 443),
            ("x.b.example", 443),
            ("x.c.example", 443),
            ("d.example", 8443),
            ("10.200.3.4", 443),
            ("fdff::1", 443),
            ("::1", 443),
            ("192.0.2.7", 443),
            ("2001:db8::1", 443),
        ] {
            assert!(list.contains(host, port), "{host}:{port}");
        }
        for (host, port) in [
            ("nota.example", 443),
            ("a.example.org", 443),
            ("d.example", 443),
            ("11.0.0.1", 443),
            ("fe80::1", 443),
            ("192.0.2.7", 8443),
            ("192.0.2.8", 443),
            ("junk", 443),
            ("x", 443),
        ] {
            assert!(!list.contains(host, port), "{host}:{port}");
        }
        assert!(NoProxy::parse("x.example,*").contains("api.openai.com", 443));
        assert!(!NoProxy::parse("").contains("", 443));
    }

    #[test]
    fn proxies_are_read_and_passwords_do_not_show() {
        let proxy = Proxy::parse("http://me:p%40ss@proxy.example:3128/ignored").unwrap();
        assert_eq!(proxy.address(), "proxy.example:3128");
        assert_eq!(proxy.kind, Kind::Http);
        assert_eq!(proxy.basic().unwrap(), "Basic bWU6cEBzcw==");
        assert!(!format!("{proxy:?}").contains("p@ss"));
        assert!(!format!("{proxy:?}").contains("bWU6"));
        let ports = |url: &str| Proxy::parse(url).map(|proxy| (proxy.kind, proxy.address()));
        for (url, kind, address) in [
            ("proxy.example", Kind::Http, "proxy.example:80"),
            ("proxy.example:8080", Kind::Http, "proxy.example:8080"),
            ("HTTPS://proxy.example", Kind::Https, "proxy.example:443"),
            ("socks5h://[::1]", Kind::Socks5, "[::1]:1080"),
        ] {
            assert_eq!(ports(url), Ok((kind, address.to_owned())), "{url}");
        }
        let socks = Proxy::parse("socks5://me:secret@127.0.0.1:9").unwrap();
        assert_eq!(socks.plain(), Some(("me", "secret")));
        for url in [
            "",
            "http://",
            "http://:8080",
            "http://a b",
            "http://h:99999",
        ] {
            assert_eq!(ports(url), Err(ProxyError::NotAUrl), "{url}");
        }
        let other = Err(ProxyError::Scheme("socks4".to_owned()));
        assert_eq!(ports("socks4://h"), other);
    }

    #[test]
    fn loopback_and_exceptions_need_no_proxy() {
        let proxies = Proxies {
            proxy: Proxy::parse("http://proxy.example").ok(),
            except: NoProxy::parse("direct.example:8443"),
        };
        let goes = |url: &'static str| proxies.choose(&Uri::from_static(url)).is_some();
        assert!(goes("https://api.openai.com/v1"));
        assert!(goes("https://direct.example/"));
        assert!(!goes("https://direct.example:8443/"));
        for url in [
            "http://127.8.9.1:3/",
            "https://[::1]/",
            "https://LocalHost:2/",
        ] {
            assert!(!goes(url), "{url}");
        }
    }
}
