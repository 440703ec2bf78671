//! What was typed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand};

use crate::context::turn_kind::TurnKind;

/// A sidecar for `codex app-server`: gives the agent a persona in the model requests of the
/// parent thread alone. Everything else passes byte for byte.
#[derive(Clone, Debug, Parser)]
#[command(name = "codex-relay", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub struct Args {
    /// The options before the command.
    #[command(flatten)]
    pub options: Options,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command. Values are read later, so that all mistakes are told at once.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// The configuration file [default: ~/.codex-relay/config.toml if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<OsString>,
    /// The codex executable [default: the first codex on PATH that is not this program]
    #[arg(long, value_name = "PATH")]
    pub codex: Option<OsString>,
    /// The agent workspace [default: ~/.codex-relay/workspace if it exists, else none]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<OsString>,
    /// The agent workspace whose memory the memory tools serve [default: the workspace]
    #[arg(long, value_name = "DIR")]
    pub memory_workspace: Option<OsString>,
    /// Whose personal overlay, users/ID/USER.md, is added [default: nobody's]
    #[arg(long, value_name = "ID")]
    pub profile: Option<OsString>,
    /// Where the context comes from: workspace, client or none [default: workspace]
    #[arg(long, value_name = "SOURCE")]
    pub context: Option<OsString>,
    /// A file with the developer policy of every thread: seen by the model, by compaction and by children [default: none]
    #[arg(long, value_name = "PATH")]
    pub policy_file: Option<OsString>,
    /// The model endpoint's base URL: https, or http to a loopback address [default: by account]
    #[arg(long, value_name = "URL")]
    pub upstream: Option<OsString>,
    /// The environment variable that holds the upstream's credential; codex doesn't get it
    #[arg(long, value_name = "NAME")]
    pub upstream_bearer_env: Option<OsString>,
    /// The file that holds the upstream's credential, on one line; read again when it changes
    #[arg(long, value_name = "PATH")]
    pub upstream_bearer_file: Option<OsString>,
    /// The shell command that prints the upstream's credential; run again when the upstream says 401
    #[arg(long, value_name = "CMD")]
    pub upstream_bearer_command: Option<OsString>,
    /// The proxy for the way to the upstream: http, https or socks5 [default: that of the environment, as with curl]
    #[arg(long, value_name = "URL")]
    pub proxy: Option<OsString>,
    /// Hosts that are reached without a proxy: names, addresses, CIDR blocks, each with or without a port; * is all [default: those of the environment]
    #[arg(long, value_name = "LIST")]
    pub no_proxy: Option<OsString>,
    /// Root certificates to trust beside the system's, as PEM; what the environment names for codex, OpenSSL and Node counts too
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<OsString>,
    /// The bound of a prepared context; may be lowered, never raised [default: 262144]
    #[arg(long, value_name = "N")]
    pub max_context_bytes: Option<OsString>,
    /// What happens to a model request whose metadata can't be read: refuse or pass [default: refuse]
    #[arg(long, value_name = "ACTION")]
    pub on_unrecognized: Option<OsString>,
    /// The least important level that is logged: error, warn, info, debug or trace [default: warn]
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<OsString>,
    /// How a log line looks: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<OsString>,
    /// A file that log lines are appended to [default: stderr]
    #[arg(long, value_name = "PATH")]
    pub log_file: Option<OsString>,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Relay: the arguments go to `codex app-server` unchanged
    #[command(disable_help_flag = true)]
    AppServer {
        /// Arguments of `codex app-server`
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "CODEX_ARGS"
        )]
        codex_args: Vec<OsString>,
    },
    /// Show the whole path, offline: a real codex, a built-in model endpoint, a sub-agent
    Demo {
        /// How codex reaches the model
        #[arg(long, value_enum, default_value_t = Transport::Ws)]
        transport: Transport,
    },
    /// Print the context that a turn would get, byte for byte; its account goes to stderr
    Render {
        /// Print the context, its account and the reference blocks as one JSON object
        #[arg(long)]
        json: bool,
        /// The tools that the thread has, by name, with commas between them
        #[arg(long, value_name = "NAMES", value_delimiter = ',')]
        thread_tools: Vec<String>,
        /// What the turn is for
        #[arg(long, value_name = "KIND", default_value = "user", value_parser = turn_kind())]
        kind: TurnKind,
    },
    /// Write a starter workspace; what is there already is never overwritten
    Init {
        /// Its folder [default: --workspace, else ~/.codex-relay/workspace]
        dir: Option<PathBuf>,
    },
    /// Look at codex, workspace, account, route, proxy and TLS, and say what to mend
    ///
    /// Changes nothing. Exit code 0 where all is well, 1 where something has to be mended.
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// The demo's witness: stands where codex is expected and writes down what the real one sends
    #[command(hide = true)]
    Tap {
        /// The real codex
        #[arg(long)]
        codex: PathBuf,
        /// The folder for what it sends
        #[arg(long)]
        record: PathBuf,
        /// Arguments of codex
        #[arg(last = true)]
        codex_args: Vec<OsString>,
    },
}

/// How codex reaches the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Transport {
    /// HTTP with server-sent events.
    Http,
    /// WebSocket.
    Ws,
}

fn turn_kind() -> impl TypedValueParser<Value = TurnKind> {
    PossibleValuesParser::new(TurnKind::ALL.map(|(word, _)| word))
        .map(|word| TurnKind::from_word(&word).unwrap_or_default())
}

const EXIT_CODES: &str = "Every option can also be set in the environment (--max-context-bytes is CODEX_RELAY_MAX_CONTEXT_BYTES) and in the configuration file (max_context_bytes). The flag beats the environment, the environment beats the file.

Exit codes: codex's own; 128+n when codex died of signal n; 64 usage or configuration; 69 codex missing or not startable; 70 a fault of the relay.";
