//! The environment: the only file that reads it.

use std::ffi::OsString;

/// Where variables come from; tests bring their own.
pub trait Strings {
    /// The value of `name`; an empty one counts as unset.
    fn find(&self, name: &str) -> Option<OsString>;
    /// Every variable, as it is.
    fn all(&self) -> Vec<(OsString, OsString)>;
}

/// The environment of this process.
#[derive(Clone, Copy, Debug)]
pub struct Environment;

impl Strings for Environment {
    #[expect(clippy::disallowed_methods, reason = "the reader")]
    fn find(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name).filter(|value| !value.is_empty())
    }

    #[expect(clippy::disallowed_methods, reason = "the reader")]
    fn all(&self) -> Vec<(OsString, OsString)> {
        std::env::vars_os().collect()
    }
}

/// The process that a stand-in handed over to the next codex, so that it notices one of its own.
pub const HANDED_OVER: &str = "CODEX_RELAY_HANDED_OVER";
/// `--config`.
pub const CONFIG: &str = "CODEX_RELAY_CONFIG";
/// `--codex`.
pub const CODEX: &str = "CODEX_RELAY_CODEX";
/// `--workspace`.
pub const WORKSPACE: &str = "CODEX_RELAY_WORKSPACE";
/// `--memory-workspace`.
pub const MEMORY_WORKSPACE: &str = "CODEX_RELAY_MEMORY_WORKSPACE";
/// `--profile`.
pub const PROFILE: &str = "CODEX_RELAY_PROFILE";
/// `--context`.
pub const CONTEXT: &str = "CODEX_RELAY_CONTEXT";
/// `--policy-file`.
pub const POLICY_FILE: &str = "CODEX_RELAY_POLICY_FILE";
/// `--upstream`.
pub const UPSTREAM: &str = "CODEX_RELAY_UPSTREAM";
/// `--upstream-bearer-env`.
pub const UPSTREAM_BEARER_ENV: &str = "CODEX_RELAY_UPSTREAM_BEARER_ENV";
/// `--upstream-bearer-file`.
pub const UPSTREAM_BEARER_FILE: &str = "CODEX_RELAY_UPSTREAM_BEARER_FILE";
/// `--upstream-bearer-command`.
pub const UPSTREAM_BEARER_COMMAND: &str = "CODEX_RELAY_UPSTREAM_BEARER_COMMAND";
/// `--ca-file`.
pub const CA_FILE: &str = "CODEX_RELAY_CA_FILE";
/// `--proxy`.
pub const PROXY: &str = "CODEX_RELAY_PROXY";
/// `--no-proxy`.
pub const NO_PROXY: &str = "CODEX_RELAY_NO_PROXY";
/// `--max-context-bytes`.
pub const MAX_CONTEXT_BYTES: &str = "CODEX_RELAY_MAX_CONTEXT_BYTES";
/// `--on-unrecognized`.
pub const ON_UNRECOGNIZED: &str = "CODEX_RELAY_ON_UNRECOGNIZED";
/// `--log`.
pub const LOG: &str = "CODEX_RELAY_LOG";
/// `--log-format`.
pub const LOG_FORMAT: &str = "CODEX_RELAY_LOG_FORMAT";
/// `--log-file`.
pub const LOG_FILE: &str = "CODEX_RELAY_LOG_FILE";
