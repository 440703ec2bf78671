//! Which context a parent's model request gets.

use std::sync::Arc;

use crate::base::ids::{Generation, ThreadId, TurnId};
use crate::base::reason::Reason;
use crate::context::snapshot::Snapshot;
use crate::session::given::registrations::Registrations;
use crate::session::parent::registry::{GivenFor, Registry};

/// What a request without any child mark says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentRequest {
    /// The thread it is for.
    pub thread: ThreadId,
    /// Its turn; a prewarm has none.
    pub turn: Option<TurnId>,
    /// The generation of the registration that admitted it.
    pub generation: Option<Generation>,
    /// What it is made for.
    pub purpose: Purpose,
}

/// What a parent's request is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It warms the connection up for the turn that follows.
    Prewarm,
    /// A step of a turn.
    Turn,
}

/// What the registry says of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Gets this text.
    Inject(Arc<Snapshot>),
    /// Codex started the turn itself: its text must be read first.
    Prepare(ParentRequest),
    /// Must not go on.
    Refuse(Reason),
    /// Must not go on: codex started the turn itself, and the thread had a text for one turn alone.
    RefuseOwnTurn,
    /// Isn't the client's to speak for: goes on as it is.
    Untouched,
}

/// Decides rows 3 to 6b of the interface's table. `has_generations` says whether the requests of the
/// client's turns carry one: then one without is of a turn that codex started itself.
pub fn decide(
    registry: &Registry,
    registrations: &Registrations,
    has_generations: bool,
    request: &ParentRequest,
) -> Decision {
    let Some(thread) = registry.find(request.thread.as_str()) else {
        // A thread that nobody told us of yet (fork, cold resume), or one of codex's own.
        return match (&request.generation, request.purpose) {
            (Some(_), Purpose::Turn) => Decision::Refuse(Reason::ThreadUnknown),
            (None, _) | (_, Purpose::Prewarm) => Decision::Untouched,
        };
    };
    let id = request.thread.as_str();
    let inject = |text: &Arc<Snapshot>| Decision::Inject(Arc::clone(text));
    let is_for_one_turn = thread.given_for == GivenFor::OneTurn || registrations.turn(id).is_some();
    let has_no_other = registrations.thread(id).is_none();
    // A turn of codex's own keeps its text as well, also where the client steers it.
    let native = request.turn.as_ref();
    let native = native.and_then(|turn| thread.text_of_native(turn));
    match (request.purpose, &request.generation) {
        (Purpose::Prewarm, _) => thread.current.as_ref().map_or(Decision::Untouched, inject),
        (Purpose::Turn, Some(generation)) => thread
            .admitted()
            .text_of(generation, request.turn.as_ref())
            .or_else(|| registrations.text_of(id, generation))
            .map(|text| native.unwrap_or(text))
            .map_or(Decision::Refuse(Reason::GenerationStale), inject),
        (Purpose::Turn, None) => native
            .or_else(|| {
                let admitted = thread.admitted();
                admitted.text_of_turn(request.turn.as_ref(), has_generations)
            })
            .map_or_else(
                || {
                    if is_for_one_turn && has_no_other {
                        Decision::RefuseOwnTurn
                    } else {
                        Decision::Prepare(request.clone())
                    }
                },
                inject,
            ),
    }
}
