//! The reason codes that clients, codex and logs see.

use std::fmt;

/// Why something was refused or failed; a stable word of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The body isn't what it claims to be, or has no place for the context.
    BodyInvalid,
    /// Every place of a bounded resource is taken.
    Busy,
    /// The prepared context is over its limit.
    ContextTooLarge,
    /// The workspace root can't be read.
    ContextUnavailable,
    /// A content encoding that the relay doesn't open.
    EncodingUnsupported,
    /// The generation is not one of a live registration of that thread.
    GenerationStale,
    /// `instructions` is neither absent, null nor a string.
    InstructionsInvalid,
    /// Two carriers of the metadata disagree.
    MetadataContradictory,
    /// The metadata is absent, unreadable, or of a kind the relay doesn't know.
    MetadataUnrecognized,
    /// The developer policy of a thread can't be renewed.
    PolicyChangeUnsupported,
    /// A body or message is over its limit.
    RequestTooLarge,
    /// The route was closed.
    RouteClosed,
    /// The thread isn't one that the client drives.
    ThreadUnknown,
    /// The proxy gave no way to the upstream.
    UpstreamProxyFailed,
    /// The TLS handshake with the upstream failed.
    UpstreamTlsFailed,
    /// The upstream couldn't be reached.
    UpstreamUnreachable,
}

impl Reason {
    /// Every reason, in the order of its word.
    pub const ALL: [Self; 16] = [
        Self::BodyInvalid,
        Self::Busy,
        Self::ContextTooLarge,
        Self::ContextUnavailable,
        Self::EncodingUnsupported,
        Self::GenerationStale,
        Self::InstructionsInvalid,
        Self::MetadataContradictory,
        Self::MetadataUnrecognized,
        Self::PolicyChangeUnsupported,
        Self::RequestTooLarge,
        Self::RouteClosed,
        Self::ThreadUnknown,
        Self::UpstreamProxyFailed,
        Self::UpstreamTlsFailed,
        Self::UpstreamUnreachable,
    ];

    /// The word of the interface.
    pub fn code(self) -> &'static str {
        match self {
            Self::BodyInvalid => "body_invalid",
            Self::Busy => "busy",
            Self::ContextTooLarge => "context_too_large",
            Self::ContextUnavailable => "context_unavailable",
            Self::EncodingUnsupported => "encoding_unsupported",
            Self::GenerationStale => "generation_stale",
            Self::InstructionsInvalid => "instructions_invalid",
            Self::MetadataContradictory => "metadata_contradictory",
            Self::MetadataUnrecognized => "metadata_unrecognized",
            Self::PolicyChangeUnsupported => "policy_change_unsupported",
            Self::RequestTooLarge => "request_too_large",
            Self::RouteClosed => "route_closed",
            Self::ThreadUnknown => "thread_unknown",
            Self::UpstreamProxyFailed => "upstream_proxy_failed",
            Self::UpstreamTlsFailed => "upstream_tls_failed",
            Self::UpstreamUnreachable => "upstream_unreachable",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
