//! Whether a thread may take the route: the relay never reroutes inference that isn't OpenAI's.

use std::ops::Range;

use crate::wire::envelope::{member, member_text, text};
use crate::wire::scan;

/// Why a thread keeps its own way to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ineligible {
    /// Its provider isn't OpenAI.
    OtherProvider,
    /// The client or the user gave an endpoint of their own.
    OwnEndpoint,
}

impl Ineligible {
    /// What a person is told.
    pub fn words(self) -> &'static str {
        match self {
            Self::OtherProvider => "its model provider is not openai",
            Self::OwnEndpoint => "openai_base_url is an endpoint of its own",
        }
    }
}

/// What the client's params say: `params` are those of a thread method.
pub fn of_params(line: &[u8], params: &Range<usize>) -> Option<Ineligible> {
    if provider(line, params).is_some_and(|name| name != OPENAI) {
        return Some(Ineligible::OtherProvider);
    }
    let url = member(line, params, &["config", "openai_base_url"])?;
    (!is_standard(line, &url)).then_some(Ineligible::OwnEndpoint)
}

/// What the user's configuration says, where the client's `params` leave it open: `config` is the
/// one of codex's answer to `config/read`.
pub fn of_config(
    (line, params): (&[u8], &Range<usize>),
    (answer, config): (&[u8], &Range<usize>),
) -> Option<Ineligible> {
    let own = member_text(answer, config, &["model_provider"]);
    if provider(line, params).is_none() && own.is_some_and(|name| name != OPENAI) {
        return Some(Ineligible::OtherProvider);
    }
    if member(line, params, &["config", "openai_base_url"]).is_some() {
        return None;
    }
    let url = member(answer, config, &["openai_base_url"])?;
    (!is_standard(answer, &url)).then_some(Ineligible::OwnEndpoint)
}

fn provider(line: &[u8], params: &Range<usize>) -> Option<String> {
    member_text(line, params, &["modelProvider"])
        .or_else(|| member_text(line, params, &["config", "model_provider"]))
}

/// Whether a base URL means OpenAI's own service: null, empty, or one of its addresses.
fn is_standard(line: &[u8], url: &Range<usize>) -> bool {
    scan::is_null(line, url)
        || text(line, url)
            .is_some_and(|text| text.is_empty() || STANDARD.contains(&text.trim_end_matches('/')))
}

/// The name of codex's built-in provider.
const OPENAI: &str = "openai";

/// Base URLs that mean OpenAI's own service: the route replaces them.
const STANDARD: [&str; 2] = [
    "https://api.openai.com/v1",
    "https://chatgpt.com/backend-api/codex",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(params: &str, config: &str) -> Option<Ineligible> {
        let (line, answer) = (params.as_bytes(), config.as_bytes());
        let params = 0..line.len();
        of_params(line, &params)
            .or_else(|| of_config((line, &params), (answer, &(0..answer.len()))))
    }

    #[test]
    fn endpoints_and_providers_of_ones_own_keep_their_way() {
        let other = Some(Ineligible::OtherProvider);
        let own = Some(Ineligible::OwnEndpoint);
        for (params, config, expected) in [
            ("{}", "{}", None),
            (
                "{}",
                r#"{"model_provider":"openai","openai_base_url":null}"#,
                None,
            ),
            ("{}", r#"{"model_provider":"mine"}"#, other),
            ("{}", r#"{"openai_base_url":"http://127.0.0.1:9/v1"}"#, own),
            (
                "{}",
                r#"{"openai_base_url":"https://api.openai.com/v1/"}"#,
                None,
            ),
            (r#"{"modelProvider":"mine"}"#, "{}", other),
            (
                r#"{"modelProvider":"openai"}"#,
                r#"{"model_provider":"mine"}"#,
                None,
            ),
            (r#"{"config":{"model_provider":"mine"}}"#, "{}", other),
            (
                r#"{"config":{"openai_base_url":"https://h.example"}}"#,
                "{}",
                own,
            ),
            (r#"{"config":{"openai_base_url":7}}"#, "{}", own),
            (
                r#"{"config":{"openai_base_url":""}}"#,
                r#"{"openai_base_url":"http://127.0.0.1:9/v1"}"#,
                None,
            ),
        ] {
            assert_eq!(judged(params, config), expected, "{params} {config}");
        }
    }
}
