//! What an upstream's refusal of a WebSocket handshake means.

use http::StatusCode;

use crate::wire::envelope::member_text;

/// What codex is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// To use HTTP (426): there are no WebSockets at this upstream.
    Http,
    /// What the upstream said.
    Pass,
}

/// Judges a refusal by its status, then by its body, once that is read.
///
/// Codex takes 426 at its word and costs the user nothing, but tries a 404, 405 or 5xx again for six
/// seconds and more (measured on 0.155.1 and 0.171.0). A body with a code that ends the turn passes.
pub fn judge_refusal(status: StatusCode, body: Option<&[u8]>) -> Verdict {
    let is_want = status.is_server_error()
        || [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED].contains(&status);
    let code = body.and_then(|body| member_text(body, &(0..body.len()), &["error", "code"]));
    let is_known = code.is_some_and(|code| TERMINAL.contains(&code.as_str()));
    if is_want && !(status.is_server_error() && is_known) {
        return Verdict::Http;
    }
    Verdict::Pass
}

/// Error codes on which codex ends the turn (0.171.0).
const TERMINAL: [&str; 14] = [
    "access_program_not_enabled",
    "bio_policy",
    "content_policy_violation",
    "context_length_exceeded",
    "cyber_policy",
    "flex_unavailable",
    "inference_hook_denied",
    "insufficient_quota",
    "invalid_audio",
    "invalid_prompt",
    "misalignment_policy_violation",
    "model_not_found",
    "server_is_overloaded",
    "usage_not_included",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_want_of_websockets_sends_codex_to_http() {
        let judge = |status: u16, body: Option<&str>| {
            judge_refusal(
                StatusCode::from_u16(status).unwrap(),
                body.map(str::as_bytes),
            )
        };
        for status in [404, 405, 500, 502, 503, 504, 529] {
            assert_eq!(judge(status, None), Verdict::Http, "{status}");
            assert_eq!(judge(status, Some("<html>")), Verdict::Http, "{status}");
        }
        for status in [200, 302, 400, 401, 403, 413, 426, 429] {
            assert_eq!(judge(status, None), Verdict::Pass, "{status}");
        }
        let overloaded = r#"{"error":{"code":"server_is_overloaded"}}"#;
        assert_eq!(judge(503, Some(overloaded)), Verdict::Pass);
        assert_eq!(
            judge(503, Some(r#"{"error":{"code":"other"}}"#)),
            Verdict::Http
        );
        assert_eq!(judge(404, Some(overloaded)), Verdict::Http);
    }
}
