//! Which upstream a request goes to.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::uri::{Authority, InvalidUriParts, PathAndQuery, Scheme};
use http::{HeaderMap, Uri};

use crate::wire::headers::CHATGPT_ACCOUNT;

/// The base URL of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    scheme: Scheme,
    authority: Authority,
    path: String,
}

/// Why a URL can't be an upstream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BaseError {
    /// It isn't a URL with a scheme and a host.
    #[error("is not a URL with a scheme and a host")]
    NotAUrl,
    /// Its scheme isn't https, or http to this machine.
    #[error("has the scheme {0:?}, expected https (http only to a loopback address)")]
    Scheme(String),
    /// It is plain http to another machine.
    #[error("is plain http to {0:?}, which is not a loopback address; use https")]
    PlainHttp(String),
    /// Its port is none.
    #[error("has the port {0:?}, expected a number from 1 to 65535")]
    Port(String),
    /// It has a query: paths are put behind the URL.
    #[error("has a query or a fragment, which an upstream can't have")]
    Query,
    /// It has a user or a password.
    #[error("has credentials in it; they would show in logs")]
    UserInfo,
}

/// How upstreams are chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// By the account that the request's headers show.
    ByAccount,
    /// Always this one.
    Fixed(Base),
}

impl Base {
    /// Reads a URL.
    pub fn parse(url: &str) -> Result<Self, BaseError> {
        if url.contains('#') {
            return Err(BaseError::Query);
        }
        let uri: Uri = url.parse().map_err(|_| BaseError::NotAUrl)?;
        let parts = uri.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(BaseError::NotAUrl);
        };
        if authority.as_str().contains('@') {
            return Err(BaseError::UserInfo);
        }
        let port = authority.as_str().strip_prefix(authority.host());
        let port = port.unwrap_or_default().trim_start_matches(':');
        if !port.is_empty() && !port.parse::<u16>().is_ok_and(|port| port > 0) {
            return Err(BaseError::Port(port.to_owned()));
        }
        let path = parts
            .path_and_query
            .unwrap_or_else(|| PathAndQuery::from_static("/"));
        if path.query().is_some() {
            return Err(BaseError::Query);
        }
        match scheme.as_str() {
            "https" => {}
            "http" if is_loopback(authority.host()) => {}
            "http" => return Err(BaseError::PlainHttp(authority.host().to_owned())),
            other => return Err(BaseError::Scheme(other.to_owned())),
        }
        let path = path.path().trim_end_matches('/').to_owned();
        Ok(Self {
            scheme,
            authority,
            path,
        })
    }

    /// The URL of `target`, a path with its query that begins with `/`, every byte kept.
    pub fn join(&self, target: &str) -> Result<Uri, InvalidUriParts> {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        // An admitted target came out of a URI: behind a path it is one again.
        parts.path_and_query = format!("{}{target}", self.path).parse().ok();
        Uri::from_parts(parts)
    }

    /// Host and port, as they were given.
    pub fn host(&self) -> &str {
        self.authority.as_str()
    }

    fn openai() -> Self {
        Self {
            scheme: Scheme::HTTPS,
            authority: Authority::from_static("api.openai.com"),
            path: "/v1".to_owned(),
        }
    }

    fn chatgpt() -> Self {
        Self {
            scheme: Scheme::HTTPS,
            authority: Authority::from_static("chatgpt.com"),
            path: "/backend-api/codex".to_owned(),
        }
    }
}

impl Destination {
    /// The upstream for a request with `headers`: a ChatGPT account shows in its own header.
    pub fn choose(&self, headers: &HeaderMap) -> Base {
        let account = headers.get(CHATGPT_ACCOUNT);
        // An empty id is none.
        self.of_account(account.is_some_and(|id| !id.as_bytes().trim_ascii().is_empty()))
    }

    /// The upstream for an account: one of ChatGPT, or an API key.
    pub fn of_account(&self, is_chatgpt: bool) -> Base {
        match self {
            Self::Fixed(base) => base.clone(),
            Self::ByAccount if is_chatgpt => Base::chatgpt(),
            Self::ByAccount => Base::openai(),
        }
    }

    /// The upstream for a request of a ChatGPT account whose workspace is served at `origin`: the
    /// place that codex itself would have gone to. `None` where this destination is another.
    pub fn at_origin(&self, origin: &str) -> Option<Base> {
        let base = Base::parse(origin).ok()?;
        let is_own = *self == Self::ByAccount && base.scheme == Scheme::HTTPS;
        (is_own && base.path.is_empty()).then(|| Base {
            path: Base::chatgpt().path,
            ..base
        })
    }

    /// Whether a request may go over TLS.
    pub fn may_need_tls(&self) -> bool {
        match self {
            Self::ByAccount => true,
            Self::Fixed(base) => base.scheme == Scheme::HTTPS,
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
        || bare.parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_chooses_the_upstream() {
        let mut headers = HeaderMap::new();
        let url = |headers: &HeaderMap| {
            let base = Destination::ByAccount.choose(headers);
            base.join("/responses?a=%2F").unwrap().to_string()
        };
        assert_eq!(url(&headers), "https://api.openai.com/v1/responses?a=%2F");
        headers.insert(CHATGPT_ACCOUNT, " ".parse().unwrap());
        assert_eq!(url(&headers), "https://api.openai.com/v1/responses?a=%2F");
        headers.insert(CHATGPT_ACCOUNT, "acc".parse().unwrap());
        assert_eq!(
            url(&headers),
            "https://chatgpt.com/backend-api/codex/responses?a=%2F"
        );
    }

    #[test]
    fn workspaces_are_served_where_codex_would_go() {
        let at = |destination: &Destination, origin: &str| {
            let base = destination.at_origin(origin)?;
            Some(base.join("/responses").unwrap().to_string())
        };
        let us = "https://us.example";
        assert_eq!(
            at(&Destination::ByAccount, us).as_deref(),
            Some("https://us.example/backend-api/codex/responses")
        );
        for odd in [
            "http://127.0.0.1:1",
            "https://us.example/path",
            "nonsense",
            "",
        ] {
            assert_eq!(at(&Destination::ByAccount, odd), None, "{odd}");
        }
        let fixed = Destination::Fixed(Base::parse("https://h.example").unwrap());
        assert_eq!(at(&fixed, us), None);
    }

    #[test]
    fn urls_are_read_or_refused_with_the_reason() {
        let joined = |url: &str| Base::parse(url).unwrap().join("/x").unwrap().to_string();
        assert_eq!(joined("https://h.example/a/"), "https://h.example/a/x");
        assert_eq!(joined("http://127.9.9.9:1"), "http://127.9.9.9:1/x");
        assert_eq!(joined("http://[::1]:1/v1"), "http://[::1]:1/v1/x");
        assert_eq!(joined("http://localhost:1/v1"), "http://localhost:1/v1/x");
        for (url, error) in [
            ("h.example", BaseError::NotAUrl),
            ("/v1", BaseError::NotAUrl),
            ("", BaseError::NotAUrl),
            ("ftp://h", BaseError::Scheme("ftp".to_owned())),
            (
                "http://h.example",
                BaseError::PlainHttp("h.example".to_owned()),
            ),
            (
                "http://127.0.0.1.evil.example",
                BaseError::PlainHttp("127.0.0.1.evil.example".to_owned()),
            ),
            ("https://u:p@h", BaseError::UserInfo),
            ("https://h:0", BaseError::Port("0".to_owned())),
            (
                "https://[::1]:99999/v1",
                BaseError::Port("99999".to_owned()),
            ),
            ("https://h/v1?a=b", BaseError::Query),
            ("https://h/v1#a", BaseError::Query),
        ] {
            assert_eq!(Base::parse(url), Err(error), "{url}");
        }
    }
}
