//! The context for a turn, read afresh within a deadline.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{error::Elapsed, timeout};

use crate::base::ids::ProfileId;
use crate::base::limits::{CONTEXT_DEADLINE, MAX_SHARED_CONTEXTS, MAX_TOLD_WARNINGS};
use crate::context::budget::Budgets;
use crate::context::compose::{Prepared, compose};
use crate::context::given::{compose_given, replace_references};
use crate::context::supplier::Supplier;
use crate::context::wish::Wish;
use crate::workspace::load::{LoadError, Loaded, Workspace};

/// Where contexts come from.
#[derive(Clone, Debug)]
pub enum Feed {
    /// Nobody supplies one: every request passes untouched.
    Nobody,
    /// The client alone; of the configuration only the word on the memory counts.
    Client(Arc<Local>),
    /// The user's own machine; clones share what they remember.
    Local(Arc<Local>),
}

/// The files of an agent workspace, and what the configuration adds.
#[derive(Debug, Default)]
pub struct Local {
    /// The workspace, if there is one.
    pub workspace: Option<Workspace>,
    /// Whose overlay a turn gets that names nobody.
    pub profile: Option<ProfileId>,
    /// What shapes the files.
    pub budgets: Budgets,
    /// What the model is told of its memory.
    pub memory_guidance: String,
    /// Warnings that were logged: each is logged once.
    pub told: Told,
    /// What was prepared last.
    pub shared: Shared,
}

/// Contexts that several threads may hold; the one that was wanted last stands last.
#[derive(Debug, Default)]
pub struct Shared(Mutex<Vec<Arc<Prepared>>>);

/// Warnings that somebody was told of.
#[derive(Debug, Default)]
pub struct Told(Mutex<BTreeSet<String>>);

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

/// A context, and what somebody may want to know of the workspace.
#[derive(Debug)]
pub struct Read {
    /// The context.
    pub prepared: Prepared,
    /// What becomes of files that aren't loaded.
    pub notes: Vec<String>,
}

impl Feed {
    /// Whether nothing is injected unless the client gives something: until then no request needs to
    /// be read, or understood.
    pub fn is_silent(&self) -> bool {
        match self {
            Self::Nobody => true,
            // The client will give something: what can't be read then must not pass now.
            Self::Client(_) => false,
            Self::Local(local) => {
                local.workspace.is_none() && local.memory_guidance.trim().is_empty()
            }
        }
    }

    /// Who supplies contexts.
    pub fn supplier(&self) -> Supplier {
        match self {
            Self::Nobody => Supplier::Nobody,
            Self::Client(_) => Supplier::Client,
            Self::Local(_) => Supplier::Workspace,
        }
    }

    /// Reads the current context for a wish; what was lost is logged.
    pub async fn prepare(&self, wish: &Wish) -> Result<Arc<Prepared>, FeedError> {
        let (Self::Client(local) | Self::Local(local)) = self else {
            return Ok(Arc::new(Prepared::nothing()));
        };
        if let Some(given) = &wish.given {
            let mut prepared = compose_given(given, &local.memory_guidance, wish);
            let references = wish.references.as_deref().unwrap_or_default();
            replace_references(&mut prepared, references, wish);
            return Ok(local.shared.one_of(prepared));
        }
        let reading = spawn_blocking({
            let (local, wish) = (Arc::clone(local), wish.clone());
            move || local.read(&wish)
        });
        let mut prepared = timeout(CONTEXT_DEADLINE, reading).await???.prepared;
        if let Some(references) = &wish.references {
            replace_references(&mut prepared, references, wish);
        }
        for warning in local.told.news(&prepared.warnings) {
            tracing::warn!("agent workspace: {warning}");
        }
        Ok(local.shared.one_of(prepared))
    }
}

impl Local {
    /// Reads the current context for a wish.
    #[expect(
        clippy::disallowed_methods,
        reason = "how old a file is decides whether it must be read again"
    )]
    pub fn read(&self, wish: &Wish) -> Result<Read, LoadError> {
        let now = SystemTime::now();
        let profile = wish.profile.as_ref().or(self.profile.as_ref());
        let loaded = match &self.workspace {
            Some(workspace) => workspace.load(profile, wish.folder.as_deref(), now)?,
            None => Loaded::default(),
        };
        let mut material = loaded.material;
        material.memory_guidance.clone_from(&self.memory_guidance);
        let mut prepared = compose(material, wish, self.budgets);
        prepared.warnings.splice(..0, loaded.warnings);
        Ok(Read {
            prepared,
            notes: loaded.notes,
        })
    }
}

impl Shared {
    /// The copy of `prepared` that is there already, else `prepared` itself.
    fn one_of(&self, prepared: Prepared) -> Arc<Prepared> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.iter().position(|it| **it == prepared);
        let one = known.map_or_else(|| Arc::new(prepared), |at| kept.remove(at));
        if kept.len() >= MAX_SHARED_CONTEXTS {
            kept.remove(0);
        }
        kept.push(Arc::clone(&one));
        one
    }
}

impl Told {
    /// The warnings that were not told yet; they are from now on.
    fn news<'a>(&self, warnings: &'a [String]) -> Vec<&'a String> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = |warning: &&String| {
            if told.len() >= MAX_TOLD_WARNINGS {
                told.clear();
            }
            told.insert((*warning).clone())
        };
        warnings.iter().filter(is_new).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_contexts_are_one() {
        let shared = Shared::default();
        let one = |text: &str| shared.one_of(Prepared::of_text(text.to_owned()));
        let first = one("a");
        assert!(Arc::ptr_eq(&first, &one("a")));
        for other in 0..MAX_SHARED_CONTEXTS {
            one(&other.to_string());
        }
        assert!(!Arc::ptr_eq(&first, &one("a")));
    }

    #[test]
    fn each_warning_is_told_once() {
        let told = Told::default();
        let warnings = ["a", "b", "a"].map(str::to_owned);
        assert_eq!(told.news(&warnings), ["a", "b"]);
        assert!(told.news(&warnings).is_empty());
    }
}
