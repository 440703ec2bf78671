//! Where log lines go: stderr or a file, never stdout.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line.
    Json,
    /// Words.
    #[default]
    Text,
}

/// What is logged, and where.
#[derive(Clone, Debug)]
pub struct Config {
    /// The least important level that is shown.
    pub level: LevelFilter,
    /// How a line looks.
    pub format: Format,
    /// A file in place of stderr; lines are appended.
    pub file: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            level: LevelFilter::WARN,
            format: Format::Text,
            file: None,
        }
    }
}

/// Starts logging. The second call in a process changes nothing.
pub fn start(config: &Config) -> io::Result<()> {
    match &config.file {
        Some(path) => {
            let file = File::options().append(true).create(true).open(path)?;
            install(config, file, false);
        }
        None => install(config, io::stderr, true),
    }
    Ok(())
}

fn install<W>(config: &Config, writer: W, is_stderr: bool)
where
    W: for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static,
{
    // Only our own lines: a library's debug output may show headers, and with them credentials.
    let ours = tracing_subscriber::filter::Targets::new().with_target("codex_relay", config.level);
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_target(false)
        .with_writer(writer);
    let registry = tracing_subscriber::registry();
    let _ = match config.format {
        Format::Json => registry.with(layer.json().with_filter(ours)).try_init(),
        Format::Text if is_stderr => registry
            .with(layer.without_time().with_filter(ours))
            .try_init(),
        Format::Text => registry.with(layer.with_filter(ours)).try_init(),
    };
}
