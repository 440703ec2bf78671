//! Refusals: the only place that turns a reason into what codex or the client sees.
//!
//! The shapes are those that end a turn at once on every codex we support: HTTP 400 with a plain
//! line, and on a WebSocket one `response.failed` event with the code `invalid_prompt`.

use serde_json::{Value, json};

use crate::base::limits::{MAX_BODY_BYTES, MAX_METADATA_BYTES};
use crate::base::reason::Reason;
use crate::context::snapshot::Section;
use crate::session::machine::Denial;
use crate::session::methods::RelayMethod;

/// A request that doesn't go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    reason: Reason,
    words: String,
    remedy: &'static str,
    may_pass_later: bool,
}

/// How a size came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// An HTTP body on the wire.
    Body,
    /// An HTTP body with its context.
    BodyAfterInjection,
    /// A WebSocket message.
    Message,
    /// A WebSocket message with its context.
    MessageAfterInjection,
}

impl Refusal {
    /// Refuses for `reason`, in the words that go with it.
    pub fn new(reason: Reason) -> Self {
        let (words, remedy) = words(reason);
        Self::for_good(reason, words, remedy)
    }

    /// Refuses what would be refused again.
    fn for_good(reason: Reason, words: impl Into<String>, remedy: &'static str) -> Self {
        Self {
            reason,
            words: words.into(),
            remedy,
            may_pass_later: false,
        }
    }

    /// Refuses a turn that codex started itself on a thread whose text was for one turn.
    pub fn own_turn() -> Self {
        let words = "codex started this turn by itself, but the thread's context was registered for \
                     one turn only, and that turn is over";
        let remedy = ": register a context with scope thread, or send the message as a turn";
        Self::for_good(Reason::GenerationStale, words, remedy)
    }

    /// Has codex send a body again that must be read whole.
    pub fn read_again() -> Self {
        let words = "a large request body isn't made as codex makes them (instructions behind the \
                     input, or several frames of zstd); sent again, it is read whole";
        Self {
            may_pass_later: true,
            ..Self::for_good(Reason::BodyInvalid, words, "")
        }
    }

    /// Ends a request whose turn was interrupted, where codex itself doesn't.
    pub fn interrupted() -> Self {
        Self::for_good(Reason::GenerationStale, "the turn was interrupted", "")
    }

    /// Refuses a body or message of `bytes`.
    pub fn too_large(measured: Measured, bytes: u64) -> Self {
        let what = match measured {
            Measured::Body => format!("request body is {bytes} bytes"),
            Measured::BodyAfterInjection => {
                format!("request body is {bytes} bytes with its context")
            }
            Measured::Message => format!("WebSocket message is {bytes} bytes"),
            Measured::MessageAfterInjection => {
                format!("WebSocket message is {bytes} bytes with its context")
            }
        };
        let words = format!("{what}, the limit is {MAX_BODY_BYTES}");
        Self::for_good(Reason::RequestTooLarge, words, TOO_LARGE_REMEDY)
    }

    /// Refuses a request whose metadata is a text of `bytes`.
    pub fn metadata_too_long(bytes: usize) -> Self {
        let words =
            format!("the request's metadata is {bytes} bytes, the limit is {MAX_METADATA_BYTES}");
        Self::for_good(Reason::MetadataUnrecognized, words, METADATA_REMEDY)
    }

    /// Refuses a compressed body that opens to more than the limit.
    pub fn inflates_too_large() -> Self {
        let words = format!("request body is more than {MAX_BODY_BYTES} bytes inflated");
        Self::for_good(Reason::RequestTooLarge, words, TOO_LARGE_REMEDY)
    }

    /// Refuses a compressed body that opens to more than the limit with its context.
    pub fn inflates_too_large_with_context() -> Self {
        let words = format!("request body is more than {MAX_BODY_BYTES} bytes with its context");
        Self::for_good(Reason::RequestTooLarge, words, TOO_LARGE_REMEDY)
    }

    /// Refuses a content encoding that the relay doesn't open.
    pub fn encoding(encoding: &str) -> Self {
        let shown: String = encoding.chars().take(40).collect();
        let words = format!("content encoding {shown:?} can't be read, expected zstd or none");
        Self::for_good(Reason::EncodingUnsupported, words, "")
    }

    /// Refuses a transfer coding below the chunks: its label belongs to one hop, and the bytes without
    /// it can't be read.
    pub fn transfer_coding(coding: &str) -> Self {
        let shown: String = coding.chars().take(40).collect();
        let words = format!("transfer coding {shown:?} can't be passed on, expected chunked alone");
        Self::for_good(Reason::EncodingUnsupported, words, "")
    }

    /// Refuses a body that didn't come whole.
    pub fn broken_off() -> Self {
        let words = "request body broke off, or its chunks are not those of HTTP/1.1";
        Self::for_good(Reason::BodyInvalid, words, "")
    }

    /// Says that the upstream can't be reached; `words` name the host and the hop.
    pub fn upstream(reason: Reason, words: String, may_pass_later: bool) -> Self {
        Self {
            may_pass_later,
            ..Self::for_good(reason, words, "")
        }
    }

    /// Whether trying again may help: then codex is told with a 502, on which it does.
    pub fn may_pass_later(&self) -> bool {
        self.may_pass_later
    }

    /// The reason code.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The one line that a person reads.
    pub fn line(&self) -> String {
        format!(
            "codex-relay: {} ({}){}",
            self.words, self.reason, self.remedy
        )
    }

    /// The event that ends the turn on a WebSocket.
    pub fn event(&self) -> String {
        json!({
            "type": "response.failed",
            "sequence_number": 0,
            "response": {
                "id": "resp_codex_relay",
                "object": "response",
                "status": "failed",
                "output": [],
                "error": { "code": "invalid_prompt", "message": self.line() },
            },
        })
        .to_string()
    }
}

/// The JSON-RPC error that answers a request of the client.
pub fn error(denial: &Denial) -> Value {
    match denial {
        Denial::Busy {
            what,
            limit,
            remedy,
        } => json!({
            "code": SERVER_BUSY,
            "message": format!("codex-relay: {limit} {what} already; {remedy}"),
            "data": { "reason": Reason::Busy.code(), "limit": limit },
        }),
        Denial::ContextTooLarge {
            bytes,
            limit,
            sections,
        } => too_large(*bytes, *limit, sections),
        Denial::RouteClosed(why) => json!({
            "code": INVALID_PARAMS,
            "message": format!(
                "the route of this thread is closed: {}; log in as before, or resume the thread to go on without a route",
                why.words()
            ),
            "data": { "reason": Reason::RouteClosed.code(), "route": why.code() },
        }),
        Denial::LineTooLong { limit } => json!({
            "code": INVALID_REQUEST,
            "message": format!("codex-relay: the line is over {limit} bytes, the limit for this method"),
            "data": { "reason": Reason::RequestTooLarge.code(), "limit": limit },
        }),
        Denial::PolicyUnavailable { fault } => {
            let words = format!("{fault}; {MEND_POLICY}");
            wrong(INVALID_PARAMS, &words, Some(Reason::ContextUnavailable))
        }
        Denial::PolicyChange { trouble, said } => {
            let said = said.as_ref();
            let said = said.map_or_else(String::new, |said| format!(" (codex said: {said})"));
            let words = format!("{NOT_RENEWED}: {trouble}{said}");
            let reason = Some(Reason::PolicyChangeUnsupported);
            wrong(INVALID_PARAMS, &words, reason)
        }
        Denial::RelayMember { fault } => wrong(INVALID_PARAMS, fault, None),
        Denial::RelayParams { method, fault } => {
            wrong(INVALID_PARAMS, &format!("{method}: {fault}"), None)
        }
        Denial::RelayLine => wrong(INVALID_REQUEST, NOT_READ, None),
        Denial::RelayMethodUnknown { method } => {
            let known = RelayMethod::ALL.map(|(name, _)| name).join(", ");
            let words = format!("{method} is no method of this relay; it has {known}");
            wrong(METHOD_NOT_FOUND, &words, None)
        }
        Denial::ContextUnavailable => {
            wrong(INVALID_PARAMS, UNREADABLE, Some(Reason::ContextUnavailable))
        }
        Denial::NoContext => wrong(INVALID_PARAMS, NO_CONTEXT, Some(Reason::ContextUnavailable)),
        Denial::ThreadUnknown => wrong(INVALID_PARAMS, NOT_OPEN, Some(Reason::ThreadUnknown)),
    }
}

/// An error for what the client's params, or its settings, have brought about.
fn wrong(code: i32, words: &str, reason: Option<Reason>) -> Value {
    let message = format!("codex-relay: {words}");
    match reason {
        Some(reason) => {
            json!({ "code": code, "message": message, "data": { "reason": reason.code() } })
        }
        None => json!({ "code": code, "message": message }),
    }
}

fn too_large(bytes: usize, limit: usize, sections: &[Section]) -> Value {
    let sections: Vec<Value> = sections
        .iter()
        .map(|section| json!({ "name": section.name, "bytes": section.bytes }))
        .collect();
    json!({
        "code": INVALID_PARAMS,
        "message": format!(
            "prepared context is {bytes} bytes, the limit is {limit}; \
             reduce the bootstrap or skills budgets, or the attached context"
        ),
        "data": {
            "reason": Reason::ContextTooLarge.code(),
            "bytes": bytes,
            "limit": limit,
            "sections": sections,
        },
    })
}

fn words(reason: Reason) -> (&'static str, &'static str) {
    match reason {
        Reason::BodyInvalid => (
            "request body is not one JSON object with at most one instructions member",
            "",
        ),
        Reason::Busy => ("every place for requests is taken", ""),
        Reason::ContextTooLarge => (
            "the prepared context is over its limit",
            ": reduce the workspace files",
        ),
        Reason::ContextUnavailable => (
            "the agent workspace can't be read",
            ": see that its folder exists and is readable",
        ),
        Reason::EncodingUnsupported => ("content encoding can't be read", ""),
        Reason::GenerationStale => (
            "the request belongs to a turn that is over",
            ": send the message again",
        ),
        Reason::InstructionsInvalid => ("instructions is neither absent, null nor a string", ""),
        Reason::MetadataContradictory => (
            "the request's metadata contradicts itself",
            UNRECOGNIZED_REMEDY,
        ),
        Reason::MetadataUnrecognized => {
            ("the request's metadata can't be read", UNRECOGNIZED_REMEDY)
        }
        Reason::PolicyChangeUnsupported => {
            ("the developer policy of this thread can't be renewed", "")
        }
        Reason::RequestTooLarge => ("the request is over its limit", TOO_LARGE_REMEDY),
        Reason::RouteClosed => ("the route is closed", ""),
        Reason::ThreadUnknown => (
            "the request claims a turn on a thread that this client doesn't drive",
            ": resume the thread",
        ),
        Reason::UpstreamProxyFailed => ("the proxy gave no way to the upstream", ""),
        Reason::UpstreamTlsFailed => ("the TLS handshake with the upstream failed", ""),
        Reason::UpstreamUnreachable => ("the upstream can't be reached", ""),
    }
}

/// Codex sends a refused turn again with the next one: only going back helps.
const TOO_LARGE_REMEDY: &str =
    ": go back to a turn that fits with thread/revert, or start a new thread";

/// Codex puts what a client gives for a turn into it.
const METADATA_REMEDY: &str = ": give less in responsesapiClientMetadata";

/// The version of codex may be newer than the relay.
const UNRECOGNIZED_REMEDY: &str = ": this codex may be newer than the relay; --on-unrecognized pass lets such requests through without context";

/// Said where the file of the developer policy can't be read.
const MEND_POLICY: &str =
    "mend the file and send it again, or empty the file to withdraw the policy";

/// Said where a thread goes by an older text.
const NOT_RENEWED: &str =
    "the developer instructions of this thread can't be renewed, so the turn was not started";

/// Said where the workspace root can't be read.
const UNREADABLE: &str = "the agent workspace can't be read; see that the folder given by --workspace exists and is readable";

/// Said of a line of the relay's own name space.
const NOT_READ: &str = "this line names a method of the relay and can't be read; send one JSON object, nested at most 1024 levels deep";

/// Said where contexts are switched off.
const NO_CONTEXT: &str = "no context is taken: --context is none; start with --context client";

/// Said where a context was given for a thread that isn't open.
const NOT_OPEN: &str = "the thread isn't one that this client started, resumed or forked here; wait for the answer that opens it, or resume it";

/// JSON-RPC's code for params that can't be used.
const INVALID_REQUEST: i32 = -32600;
const INVALID_PARAMS: i32 = -32602;
/// JSON-RPC's code for a method that there isn't.
const METHOD_NOT_FOUND: i32 = -32601;

/// The code that codex itself uses when it is overloaded.
const SERVER_BUSY: i32 = -32001;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_the_numbers_and_the_reason() {
        let line = Refusal::too_large(Measured::Body, 33_554_433).line();
        assert!(line.starts_with(
            "codex-relay: request body is 33554433 bytes, the limit is 33554432 (request_too_large)"
        ));
    }

    #[test]
    fn metadata_that_is_too_long_is_told_with_its_size() {
        let line = Refusal::metadata_too_long(1_048_577).line();
        let words = "codex-relay: the request's metadata is 1048577 bytes, the limit is 1048576 \
                     (metadata_unrecognized)";
        assert!(line.starts_with(words), "{line}");
    }

    #[test]
    fn every_reason_makes_one_line_and_a_terminal_event() {
        for reason in Reason::ALL {
            let refusal = Refusal::new(reason);
            assert!(!refusal.line().contains('\n'));
            let event: Value = serde_json::from_str(&refusal.event()).unwrap();
            assert_eq!(event["type"], "response.failed");
            assert_eq!(event["response"]["error"]["code"], "invalid_prompt");
            assert_eq!(event["response"]["error"]["message"], refusal.line());
        }
    }
}
