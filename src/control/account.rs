//! Accounts: what a context is made of, and what became of requests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A prepared context.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Account {
    /// Who gave it: `turn`, `thread`, `default`, `workspace` or `none`.
    pub from: String,
    /// Its size as UTF-8.
    pub bytes: usize,
    /// What each source gave.
    pub sources: Vec<Source>,
}

/// What one source gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Source {
    /// Its name, or its path below the workspace.
    pub name: String,
    /// How it reaches the model: `context`, `developer_instructions` for the context of a thread
    /// without a route, or `reference`.
    pub carrier: String,
    /// Its own size.
    pub raw_bytes: usize,
    /// Its share of what the model sees, headings included.
    pub bytes: usize,
    /// What was done to it, in words.
    pub treatment: String,
}

/// What became of model requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Requests {
    /// Those that got a context, by what they were for.
    pub injected: Purposes,
    /// Those that went on as they came.
    pub untouched: Purposes,
    /// Those that went no further.
    pub refused: u64,
}

/// Requests, by what they were for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Purposes {
    /// Steps of a turn.
    pub turn: u64,
    /// Connections that were warmed up.
    pub prewarm: u64,
    /// Compactions of a history.
    pub compaction: u64,
    /// Memory jobs.
    pub memory: u64,
    /// Everything of sub-agents and reviewers.
    pub child: u64,
    /// What didn't say.
    pub other: u64,
}
