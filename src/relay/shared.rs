//! What the exchanges of one endpoint share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::budget::share::Budget;
use crate::exchange::admission::Gate;
use crate::exchange::plan::OnUnrecognized;
use crate::feed::source::Feed;
use crate::relay::repack::Kept;
use crate::session::machine::Session;
use crate::session::shared::SharedSession;
use crate::upstream::bearer::Bearer;
use crate::upstream::calls::Calls;
use crate::upstream::client::Upstream;
use crate::upstream::destination::Destination;

/// What every exchange shares.
#[derive(Clone, Debug)]
pub struct Relay {
    /// Who may speak.
    pub gate: Arc<Gate>,
    /// Which requests get which text.
    pub session: SharedSession,
    /// Where contexts come from.
    pub feed: Feed,
    /// How an upstream is chosen.
    pub destination: Destination,
    /// The credential to go there with; none leaves codex's own as it is.
    pub bearer: Option<Arc<Bearer>>,
    /// The way there.
    pub upstream: Upstream,
    /// What happens to requests that can't be read.
    pub on_unrecognized: OnUnrecognized,
    /// What is under way.
    pub calls: Calls,
    /// The memory for messages in flight.
    pub budget: Budget,
    /// What compressed bodies are opened and closed with.
    pub tools: Arc<Kept>,
    /// A large body came in another order than codex writes: none is edited in passing any more.
    pub reads_whole: Arc<AtomicBool>,
}

impl Relay {
    /// The same, with connections of its own to the upstream.
    pub(super) fn beside(&self) -> Self {
        Self {
            upstream: self.upstream.beside(),
            ..self.clone()
        }
    }

    /// Whether a model request that comes now needs not be read, or understood, because nothing is
    /// injected so far.
    pub(super) fn passes_unread(&self) -> bool {
        self.feed.is_silent() && self.session.with(Session::passes_unread)
    }
}
