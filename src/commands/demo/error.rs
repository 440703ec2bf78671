//! Why a demo could not be played to its end.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::base::exit;

/// A demo that did not come to a verdict.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The path that was given is no executable file.
    #[error("{} is not an executable file; give --codex the path of a codex", .path.display())]
    CodexMissing {
        /// The path.
        path: PathBuf,
    },
    /// The model endpoint of the demo could not be started.
    #[error("cannot open a port on loopback for the model endpoint")]
    Endpoint(#[source] io::Error),
    /// A signal ended it.
    #[error("interrupted")]
    Interrupted,
    /// npm ran and failed.
    #[error(
        "npm could not install {package} ({outcome}); install codex yourself and give its path with --codex; npm said: {said}"
    )]
    Npm {
        /// What was to be installed.
        package: &'static str,
        /// How npm ended.
        outcome: String,
        /// The end of what it wrote.
        said: String,
    },
    /// There is no codex and nothing that could fetch one.
    #[error(
        "no codex on PATH, and no npm to fetch {package}; install either, or give --codex the path of a codex"
    )]
    NpmMissing {
        /// What would be fetched.
        package: &'static str,
    },
    /// The table could not be written.
    #[error("cannot write the report")]
    Report(#[from] io::Error),
    /// The scratch folder could not be made or read.
    #[error("cannot use the scratch folder in {}", .dir.display())]
    Scratch {
        /// Where it is.
        dir: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The relay could not be started.
    #[error("cannot start {}", .program.display())]
    Start {
        /// What was started.
        program: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A step went wrong.
    #[error("step {step}: {trouble}; standard error ends: {tail}")]
    Step {
        /// Which one.
        step: &'static str,
        /// What went wrong.
        trouble: Trouble,
        /// The end of what the relay and codex wrote to standard error.
        tail: String,
    },
}

impl DemoError {
    /// The exit code of a demo that ends so.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::CodexMissing { .. } | Self::Npm { .. } | Self::NpmMissing { .. } => {
                exit::UNAVAILABLE
            }
            Self::Interrupted => 130,
            Self::Endpoint(_)
            | Self::Report(_)
            | Self::Scratch { .. }
            | Self::Start { .. }
            | Self::Step { .. } => exit::SOFTWARE,
        }
    }
}

/// What went wrong in a step.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The relay closed its standard output, or doesn't read.
    #[error("the relay is gone")]
    Gone,
    /// The answer is an error.
    #[error("refused: {0}")]
    Refused(String),
    /// Nothing came.
    #[error("no answer within {0:?}")]
    Silent(Duration),
}
