//! Who may speak to the private endpoint, and about what. Fails closed.

use std::fmt;

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderValue, Method, Uri};

use crate::base::secret::Secret;

/// The gate of one private endpoint.
#[derive(Debug)]
pub struct Gate {
    secret: Secret,
    authority: String,
}

/// A request that may pass the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted<'a> {
    /// Path and query below the base URL, byte for byte, beginning with `/`.
    pub target: &'a str,
    /// Whether the relay must look at what it carries.
    pub subject: Subject,
}

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Anything that passes unread.
    Other,
    /// A model request over HTTP.
    Responses,
    /// A WebSocket for model requests, if it asks for one.
    ResponsesUpgrade,
}

/// The request gets 404 with an empty body: no hint at what was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotFound;

impl Gate {
    /// Makes the gate of an endpoint on `127.0.0.1:port`.
    pub fn new(secret: Secret, port: u16) -> Self {
        let authority = format!("127.0.0.1:{port}");
        Self { secret, authority }
    }

    /// The base URL that codex is given, secret included.
    ///
    /// It doesn't end in `/backend-api/codex`: codex would then look for its own routing.
    pub fn base_url(&self) -> String {
        let secret = self.secret.expose();
        format!("http://{}/{secret}{BASE_PATH}", self.authority)
    }

    /// Looks at a request's head.
    pub fn admit<'a>(
        &self,
        method: &Method,
        uri: &'a Uri,
        headers: &HeaderMap,
    ) -> Result<Admitted<'a>, NotFound> {
        let is_host = |host: &HeaderValue| host.as_bytes() == self.authority.as_bytes();
        let mut hosts = headers.get_all(HOST).iter();
        let is_ours = hosts.next().is_some_and(is_host) && hosts.next().is_none();
        let foreign = method == Method::CONNECT || uri.authority().is_some() || !is_ours;
        if foreign || headers.contains_key(ORIGIN) {
            return Err(NotFound);
        }
        let target = uri.path_and_query().ok_or(NotFound)?.as_str();
        let (secret, rest) = target
            .strip_prefix('/')
            .and_then(|rest| rest.split_at_checked(SECRET_CHARS))
            .ok_or(NotFound)?;
        if !self.secret.matches(secret.as_bytes()) {
            return Err(NotFound);
        }
        let target = rest.strip_prefix(BASE_PATH).ok_or(NotFound)?;
        let path = target.split('?').next().unwrap_or_default();
        if !path.starts_with('/') || is_devious(path) {
            return Err(NotFound);
        }
        let subject = match (path, method) {
            ("/responses", &Method::POST) => Subject::Responses,
            ("/responses", &Method::GET) => Subject::ResponsesUpgrade,
            _ => Subject::Other,
        };
        Ok(Admitted { target, subject })
    }
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not found")
    }
}

/// Whether a path could mean another one to somebody behind us.
fn is_devious(path: &str) -> bool {
    let is_encoded = path.contains('%') && {
        let lower = path.to_ascii_lowercase();
        let encoded = ["%00", "%2e", "%2f", "%5c"];
        encoded.iter().any(|trick| lower.contains(trick))
    };
    is_encoded
        || path.contains('\\')
        || path.as_bytes().windows(2).any(|pair| pair == b"//")
        || path
            .split('/')
            .filter_map(|segment| segment.split(';').next())
            .any(|segment| segment == "." || segment == "..")
}

/// Stands between the secret and the paths that codex asks for.
const BASE_PATH: &str = "/v1";

/// 256 bits as hexadecimal.
const SECRET_CHARS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn word() -> String {
        "ab".repeat(32)
    }

    fn judge(target: &str, host: &str, origin: bool) -> Result<Subject, NotFound> {
        let gate = Gate::new(Secret::from_random([0xAB; 32]), 7);
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        if origin {
            headers.insert(ORIGIN, "null".parse().unwrap());
        }
        let uri: Uri = target.parse().unwrap();
        gate.admit(&Method::POST, &uri, &headers)
            .map(|admitted| admitted.subject)
    }

    #[test]
    fn paths_below_the_base_url_pass_as_they_are() {
        let gate = Gate::new(Secret::from_random([0xAB; 32]), 7);
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "127.0.0.1:7".parse().unwrap());
        let target = format!("/{}/v1/a%20b;c/%252f?q=../%2e//", word());
        let uri: Uri = target.parse().unwrap();
        let admitted = gate.admit(&Method::PUT, &uri, &headers).unwrap();
        assert_eq!(admitted.target, "/a%20b;c/%252f?q=../%2e//");
        assert_eq!(admitted.subject, Subject::Other);
        assert_eq!(gate.base_url(), format!("http://127.0.0.1:7/{}/v1", word()));
    }

    #[test]
    fn strangers_find_nothing() {
        let word = word();
        let good = format!("/{word}/v1/responses");
        assert_eq!(judge(&good, "127.0.0.1:7", false), Ok(Subject::Responses));
        assert_eq!(judge(&good, "127.0.0.1:7", true), Err(NotFound));
        for host in ["localhost:7", "127.0.0.1:8", "evil.example", "127.0.0.1"] {
            assert_eq!(judge(&good, host, false), Err(NotFound), "{host}");
        }
        for target in [
            "/".to_owned(),
            "/v1/responses".to_owned(),
            format!("/{}/v1/responses", word.to_uppercase()),
            format!("/{}x/v1/responses", "ab".repeat(31)),
            format!("/{word}/responses"),
            format!("/{word}/v1"),
            format!("/{word}/v1x/responses"),
            format!("//{word}/v1/responses"),
            format!("/{word}/v1/../v1/responses"),
            format!("/{word}/v1/%2E%2e/responses"),
            format!("/{word}/v1/a%2fb"),
            format!("/{word}/v1/a%5Cb"),
            format!("/{word}/v1//responses"),
            format!("/{word}/v1/a\\b"),
            format!("/{word}/v1/./responses"),
            format!("/{word}/v1/..;a/responses"),
            format!("/{word}/v1/..%00/responses"),
            format!("http://127.0.0.1:7/{word}/v1/responses"),
        ] {
            assert_eq!(
                judge(&target, "127.0.0.1:7", false),
                Err(NotFound),
                "{target}"
            );
        }
    }
}
