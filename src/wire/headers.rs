//! Header names that the relay reads, and those that belong to one hop alone.

use http::HeaderMap;
use http::header::{
    CONNECTION, EXPECT, HOST, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRANSFER_ENCODING, UPGRADE,
};

/// The metadata of the turn, as a JSON object in a string.
pub const TURN_METADATA: &str = "x-codex-turn-metadata";
/// The parent's thread on requests of a child.
pub const PARENT_THREAD: &str = "x-codex-parent-thread-id";
/// The kind of child on requests of a child.
pub const SUBAGENT: &str = "x-openai-subagent";
/// Present on requests of a ChatGPT account.
pub const CHATGPT_ACCOUNT: &str = "chatgpt-account-id";
/// The largest WebSocket message that the upstream takes; codex sends longer ones over HTTP
/// (since 0.171.0).
pub const MAX_MESSAGE: &str = "x-codex-websocket-max-message-bytes";
/// The status with which the upstream refused a handshake that is answered 426.
pub const UPSTREAM_STATUS: &str = "x-codex-relay-upstream-status";
/// Where the workspace of a ChatGPT account must be served.
pub const ACCOUNT_ROUTING: &str = "x-openai-account-routing-override";
/// Why the relay itself refused a request.
pub const RELAY_REASON: &str = "x-codex-relay-reason";

/// Keeps what goes on to the next hop, in its order and with its repeats.
///
/// Left out is what belongs to the hop that the message came over (RFC 9110, section 7.6.1), also
/// `Host` and `Transfer-Encoding`, because name and framing are those of the next hop, and `Expect`,
/// which is answered here. `Trailer` stays, as
/// trailers do.
pub fn end_to_end(headers: HeaderMap) -> HeaderMap {
    let connection: Vec<HeaderValue> = headers.get_all(CONNECTION).iter().cloned().collect();
    let named: Vec<&str> = connection
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect();
    let is_one_hop = |name: &HeaderName| {
        ONE_HOP.contains(name)
            || ["keep-alive", "proxy-connection"].contains(&name.as_str())
            || named
                .iter()
                .any(|other| name.as_str().eq_ignore_ascii_case(other))
    };
    let mut kept = HeaderMap::with_capacity(headers.len());
    let has_repeats = headers.keys_len() < headers.len();
    // The name of several values stands with the first of them alone.
    let mut last = None;
    for (name, value) in headers {
        let goes_on = match name {
            Some(name) => (!is_one_hop(&name)).then_some(name),
            None => last.take(),
        };
        let Some(name) = goes_on else {
            last = None;
            continue;
        };
        last = has_repeats.then(|| name.clone());
        kept.append(name, value);
    }
    kept
}

/// Whether a request wants the trailers of its response: told again to the next hop.
pub fn wants_trailers(headers: &HeaderMap) -> bool {
    let mut values = headers
        .get_all(TE)
        .iter()
        .filter_map(|value| value.to_str().ok());
    values.any(|value| {
        value
            .split(',')
            .any(|word| word.trim().eq_ignore_ascii_case("trailers"))
    })
}

/// The transfer codings of a message, where chunks aren't the only one: without this label its bytes
/// can't be read.
pub fn inner_coding(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(TRANSFER_ENCODING);
    let values: Vec<_> = values
        .iter()
        .map(|value| String::from_utf8_lossy(value.as_bytes()))
        .collect();
    let all = values.join(", ");
    let mut codings = all.split(',').map(str::trim).filter(|it| !it.is_empty());
    let first = codings.next()?;
    let is_plain = first.eq_ignore_ascii_case("chunked") && codings.next().is_none();
    (!is_plain).then_some(all)
}

/// Headers that say something about one hop.
const ONE_HOP: [HeaderName; 8] = [
    CONNECTION,
    EXPECT,
    HOST,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_of_the_bytes_is_found_unless_they_are_only_chunked() {
        for (values, label) in [
            (vec![], None),
            (vec!["chunked"], None),
            (vec![" , Chunked ,"], None),
            (vec!["gzip, chunked"], Some("gzip, chunked")),
            (vec!["gzip", "chunked"], Some("gzip, chunked")),
            (vec!["chunked", "chunked"], Some("chunked, chunked")),
            (vec!["identity"], Some("identity")),
        ] {
            let mut headers = HeaderMap::new();
            for value in &values {
                headers.append(TRANSFER_ENCODING, value.parse().unwrap());
            }
            assert_eq!(inner_coding(&headers).as_deref(), label, "{values:?}");
        }
    }

    #[test]
    fn only_hop_by_hop_headers_go_and_repeats_stay() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "keep-alive, X-Private"),
            ("te", "trailers"),
            ("te", "deflate"),
            ("keep-alive", "5"),
            ("x-private", "1"),
            ("transfer-encoding", "chunked"),
            ("set-cookie", "a"),
            ("set-cookie", "b"),
            ("authorization", "Bearer x"),
            ("content-length", "3"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        let kept = end_to_end(headers);
        let left: Vec<&str> = kept.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            left,
            [
                "set-cookie",
                "set-cookie",
                "authorization",
                "content-length"
            ]
        );
    }
}
