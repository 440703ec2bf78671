//! The context for a turn, read afresh within a deadline.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{error::Elapsed, timeout};

use crate::base::limits::CONTEXT_DEADLINE;
use crate::context::budget::{Budgets, Cut, shape};
use crate::context::render::render;
use crate::context::snapshot::Snapshot;
use crate::workspace::load::{LoadError, Loaded, load};

/// Where contexts come from.
#[derive(Clone, Debug)]
pub enum Feed {
    /// Nobody supplies one: every request passes untouched.
    Nobody,
    /// The files of an agent workspace.
    Workspace {
        /// Its folder.
        root: PathBuf,
        /// What shapes its files.
        budgets: Budgets,
    },
}

/// Why there is no context.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The workspace can't be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Reading took too long.
    #[error("reading the agent workspace took more than {} s", CONTEXT_DEADLINE.as_secs())]
    Slow(#[from] Elapsed),
    /// The reader failed.
    #[error("reading the agent workspace failed")]
    Reader(#[from] JoinError),
}

impl Feed {
    /// Reads the current context.
    pub async fn snapshot(&self) -> Result<Arc<Snapshot>, FeedError> {
        let Self::Workspace { root, budgets } = self else {
            return Ok(Arc::new(Snapshot::new(String::new(), Vec::new())));
        };
        let (root, budgets) = (root.clone(), *budgets);
        let reading = spawn_blocking(move || load(&root));
        let Loaded {
            fragments,
            left_out,
        } = timeout(CONTEXT_DEADLINE, reading).await???;
        for (file, error) in left_out {
            tracing::warn!(file, "workspace file left out: it {error}");
        }
        let (fragments, cuts) = shape(fragments, budgets);
        for Cut { file, chars, kept } in cuts {
            tracing::warn!(
                file,
                chars,
                kept,
                "workspace file is over its budget and was cut"
            );
        }
        Ok(Arc::new(render(&fragments)))
    }
}
