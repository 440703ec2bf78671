//! A turn on its way from the client's request to codex.

use std::sync::Arc;

use serde_json::Value;

use crate::base::ids::{Generation, ThreadId};
use crate::context::compose::Prepared;
use crate::context::orders::Orders;
use crate::context::wish::Wish;
use crate::session::instructions::places::Whereabouts;
use crate::session::reading::Request;

/// A turn that waits for its context.
#[derive(Debug, PartialEq)]
pub(in crate::session) struct StartTurn {
    pub(in crate::session) request: Request,
    pub(in crate::session) thread: ThreadId,
    /// Who starts it.
    pub(in crate::session) starter: Starter,
    pub(super) scratch: Option<String>,
    /// The client has given a text for this turn alone.
    pub(super) is_given: bool,
    /// The turn itself has brought it.
    pub(super) has_own: bool,
    /// Nobody has said that it has no tools for the memory.
    pub(in crate::session) may_have_memory: bool,
    /// What its thread needs first, and what has come of it.
    pub(in crate::session) renewed: Renewed,
}

/// Who starts a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Starter {
    /// The client, with the request.
    Client,
    /// Codex, once it has what the request brings. Nothing of a thread's settings can be set with it.
    Codex,
}

/// What a renewal for a turn has come to.
#[derive(Debug, Default, PartialEq)]
pub(in crate::session) struct Renewed {
    /// What it has lost of the thread's settings.
    pub(super) lost: Vec<(String, Value)>,
    /// Where the turn goes, where that isn't simply where its thread is.
    pub(in crate::session) place: Option<Whereabouts>,
    /// The profile of permissions that the turn runs under, as far as known.
    pub(in crate::session) profile: Option<Arc<str>>,
    /// Codex has told what it shows of AGENTS.md, in this renewal.
    pub(in crate::session) is_checked: bool,
    /// Codex has told whether commands run in the thread's background.
    pub(in crate::session) has_counted: bool,
}

impl Renewed {
    /// Has the turn set this, whatever a renewal has lost.
    pub(in crate::session) fn sets(&mut self, name: &str, value: Value) {
        self.lost.retain(|(known, _)| known != name);
        self.lost.push((name.to_owned(), value));
    }

    /// What is to be set again.
    pub(in crate::session) fn lost(&self) -> &[(String, Value)] {
        &self.lost
    }

    /// Notes what a renewal has lost; what one before it has lost is lost still.
    pub(in crate::session) fn loses(&mut self, lost: Vec<(String, Value)>) {
        for (name, value) in lost {
            if self.lost.iter().all(|(known, _)| *known != name) {
                self.lost.push((name, value));
            }
        }
    }
}

impl StartTurn {
    /// A turn that codex is going to start itself, as `request` asks for.
    pub(in crate::session) fn of_codex(request: Request, thread: ThreadId) -> Self {
        Self {
            request,
            thread,
            starter: Starter::Codex,
            scratch: None,
            is_given: false,
            has_own: false,
            may_have_memory: false,
            renewed: Renewed::default(),
        }
    }
}

/// A turn that has its context.
#[derive(Debug, PartialEq)]
pub(in crate::session) struct Ready {
    pub(in crate::session) turn: StartTurn,
    pub(in crate::session) wish: Wish,
    pub(in crate::session) prepared: Arc<Prepared>,
    pub(in crate::session) orders: Orders,
    pub(super) fresh: Generation,
}

/// A turn that waits until its thread was told of the references.
#[derive(Debug, PartialEq)]
pub(in crate::session) struct Delivering {
    pub(super) ready: Ready,
    pub(super) files: Vec<String>,
}
