//! Whether a thread may take the route: the relay never reroutes inference that isn't OpenAI's.
//!
//! Codex itself is asked (`config/read`, `configRequirements/read`, `account/read`). What it leaves
//! unanswered speaks for the route: old versions don't know all questions.

use std::ops::Range;

use crate::wire::envelope::{member, member_text, text};
use crate::wire::known::Place;
use crate::wire::scan;

/// Why a thread keeps its own way to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ineligible {
    /// The account is of a kind that isn't OpenAI's.
    AccountUnknown,
    /// Codex is attached to another process, whose threads are not ours to route.
    AttachedProxy,
    /// The program isn't codex.
    CustomCommand,
    /// Its provider isn't OpenAI.
    OtherProvider,
    /// The client or the user gave an endpoint of their own.
    OwnEndpoint,
    /// Codex takes its proxies from the system's settings.
    SystemProxy,
    /// Managed configuration decides, above what a client may set.
    UpstreamLocked,
}

impl Ineligible {
    /// Every reason, in the order of its word.
    pub const ALL: [Self; 7] = [
        Self::AccountUnknown,
        Self::AttachedProxy,
        Self::CustomCommand,
        Self::OtherProvider,
        Self::OwnEndpoint,
        Self::SystemProxy,
        Self::UpstreamLocked,
    ];

    /// The word of the interface.
    pub fn code(self) -> &'static str {
        match self {
            Self::AccountUnknown => "account_unknown",
            Self::AttachedProxy => "attached_proxy",
            Self::CustomCommand => "custom_command",
            Self::OtherProvider => "other_provider",
            Self::OwnEndpoint => "own_endpoint",
            Self::SystemProxy => "system_proxy",
            Self::UpstreamLocked => "upstream_locked",
        }
    }

    /// What a person is told.
    pub fn words(self) -> &'static str {
        match self {
            Self::AccountUnknown => {
                "codex is logged in with an account that is neither an OpenAI API key nor ChatGPT"
            }
            Self::AttachedProxy => {
                "app-server proxy attaches to another process, which makes the model requests"
            }
            Self::CustomCommand => "the program given as codex does not say that it is codex",
            Self::OtherProvider => "the model provider is not openai",
            Self::OwnEndpoint => {
                "openai_base_url is an endpoint of the client's or the user's own; \
                 give it to the relay as --upstream instead"
            }
            Self::SystemProxy => {
                "features.respect_system_proxy is on: codex finds its own way out; \
                 turn it off and give the relay the proxy"
            }
            Self::UpstreamLocked => "managed configuration locks the model provider or its address",
        }
    }
}

/// What kind of account codex is logged in with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountKind {
    /// An OpenAI API key.
    ApiKey,
    /// ChatGPT, with tokens of codex's own or of the client.
    ChatGpt,
    /// Another, which has its own way to a model.
    Other,
}

impl AccountKind {
    /// Reads `account.type` of an answer to `account/read`.
    pub fn of_type(name: &str) -> Self {
        match name {
            "apiKey" => Self::ApiKey,
            "chatgpt" => Self::ChatGpt,
            _ => Self::Other,
        }
    }

    /// Reads `authMode` of `account/updated`.
    pub fn of_mode(name: &str) -> Self {
        match name {
            "apikey" => Self::ApiKey,
            "chatgpt" | "chatgptAuthTokens" | "personalAccessToken" | "agentIdentity" => {
                Self::ChatGpt
            }
            _ => Self::Other,
        }
    }
}

/// What the client's params say: `params` are those of a thread method.
pub fn of_params(line: &[u8], params: &impl Place) -> Option<Ineligible> {
    if provider(line, params).is_some_and(|name| name != OPENAI) {
        return Some(Ineligible::OtherProvider);
    }
    if says_true(line, setting(line, params, &SYSTEM_PROXY)) {
        return Some(Ineligible::SystemProxy);
    }
    let url = own_url(line, params)?;
    (!is_standard(line, &url)).then_some(Ineligible::OwnEndpoint)
}

/// What the user's configuration says, where the client's `params` leave it open: `result` is the
/// one of codex's answer to `config/read`.
pub fn of_config(
    (line, params): (&[u8], &impl Place),
    (answer, result): (&[u8], &Range<usize>),
) -> Option<Ineligible> {
    let config = member(answer, result, &["config"])?;
    // Above what a client may set: our own address would not be taken.
    let is_locked = [OPENAI_BASE_URL, "model_provider"].iter().any(|key| {
        let origin = member_text(answer, result, &["origins", key, "name", "type"]);
        origin.is_some_and(|origin| origin.starts_with("legacyManaged"))
    });
    let own = member_text(answer, &config, &["model_provider"]);
    if own.as_deref().is_some_and(|name| name != OPENAI)
        && (is_locked || provider(line, params).is_none())
    {
        return Some(Ineligible::OtherProvider);
    }
    if is_locked {
        return Some(Ineligible::UpstreamLocked);
    }
    let asked = setting(line, params, &SYSTEM_PROXY);
    if asked.is_none() && says_true(answer, member(answer, &config, &SYSTEM_PROXY)) {
        return Some(Ineligible::SystemProxy);
    }
    if own_url(line, params).is_some() {
        return None;
    }
    let url = member(answer, &config, &[OPENAI_BASE_URL])?;
    (!is_standard(answer, &url)).then_some(Ineligible::OwnEndpoint)
}

/// What an administrator requires: `result` is the one of `configRequirements/read`.
pub fn of_requirements(answer: &[u8], result: &Range<usize>) -> Option<Ineligible> {
    let required = member(answer, result, &["requirements"])?;
    let provider = member_text(answer, &required, &["modelProvider"]);
    if provider.is_some_and(|name| name != OPENAI) {
        return Some(Ineligible::OtherProvider);
    }
    if member(answer, &required, &["modelProviders", OPENAI]).is_some() {
        return Some(Ineligible::UpstreamLocked);
    }
    let feature = ["featureRequirements", SYSTEM_PROXY[1]];
    says_true(answer, member(answer, &required, &feature)).then_some(Ineligible::SystemProxy)
}

fn provider(line: &[u8], params: &impl Place) -> Option<String> {
    member_text(line, params, &["modelProvider"])
        .or_else(|| member_text(line, params, &["config", "model_provider"]))
}

/// The endpoint that the client's `config` names, for the built-in provider in either spelling.
fn own_url(line: &[u8], params: &impl Place) -> Option<Range<usize>> {
    let provider = ["model_providers", OPENAI, "base_url"];
    setting(line, params, &provider).or_else(|| setting(line, params, &[OPENAI_BASE_URL]))
}

/// A setting of the client's `config`: nested, or with the dots in its name.
fn setting(line: &[u8], params: &impl Place, path: &[&str]) -> Option<Range<usize>> {
    (1..=path.len()).find_map(|dotted| {
        let (first, rest) = path.split_at(dotted);
        let name = first.join(".");
        let mut names = vec!["config", name.as_str()];
        names.extend(rest);
        member(line, params, &names)
    })
}

fn says_true(line: &[u8], value: Option<Range<usize>>) -> bool {
    value.is_some_and(|value| line.get(value) == Some(b"true"))
}

/// Whether a base URL means OpenAI's own service: null, empty, or one of its addresses.
fn is_standard(line: &[u8], url: &Range<usize>) -> bool {
    scan::is_null(line, url)
        || text(line, url)
            .is_some_and(|text| text.is_empty() || STANDARD.contains(&text.trim_end_matches('/')))
}

/// The name of codex's built-in provider.
const OPENAI: &str = "openai";

/// The setting that the route goes into.
const OPENAI_BASE_URL: &str = "openai_base_url";

/// The setting that has codex ask the system for proxies.
const SYSTEM_PROXY: [&str; 2] = ["features", "respect_system_proxy"];

/// Base URLs that mean OpenAI's own service: the route replaces them.
const STANDARD: [&str; 2] = [
    "https://api.openai.com/v1",
    "https://chatgpt.com/backend-api/codex",
];

#[cfg(test)]
#[path = "eligibility_tests.rs"]
mod tests;
