//! One body or message, judged: the steps that HTTP and WebSocket share.

use bytes::Bytes;

use crate::base::chain::Chain;
use crate::base::ids::ThreadId;
use crate::base::limits::MAX_BODY_BYTES;
use crate::exchange::body::Body;
use crate::exchange::classify::Identity;
use crate::exchange::instructions::splice;
use crate::exchange::plan::{Plan, from_decision, plan};
use crate::exchange::refusal::{Measured, Refusal};
use crate::relay::shared::Relay;
use crate::session::parent::decide::ParentRequest;
use crate::session::parent::tally::{About, Outcome};
use crate::upstream::calls::Call;
use crate::wire::edit::pieces;

/// What becomes of it.
#[derive(Debug)]
pub enum Judged {
    /// It goes on as it came.
    Forward,
    /// It goes on with the context in it, once.
    Inject {
        /// The whole, in pieces that share the memory of what came.
        pieces: Vec<Bytes>,
        /// Their size together.
        size: usize,
        /// The size of the text.
        text: usize,
        /// Whose request it is.
        thread: ThreadId,
    },
    /// It doesn't go on.
    Refuse(Refusal),
}

/// Notes whose turn a request is under way for.
pub(super) fn note_call(identity: &Identity, call: &Call) {
    if let Some((thread, turn)) = identity.named_turn() {
        call.begin(thread, turn);
    }
}

/// Judges `bytes`, whose other carriers `identity` has read already.
pub async fn judge(
    relay: &Relay,
    (bytes, body): (&Bytes, &Body),
    mut identity: Identity,
    call: &Call,
    measured: Measured,
) -> Judged {
    identity.read_body(bytes, body);
    note_call(&identity, call);
    let about = identity.about();
    let judged = decide(relay, (bytes, body), identity, measured).await;
    let outcome = match &judged {
        Judged::Forward => Outcome::Untouched,
        Judged::Inject { text, .. } => Outcome::Injected(*text),
        Judged::Refuse(refusal) => refused(refusal),
    };
    relay.note(&about, outcome);
    judged
}

impl Relay {
    /// Counts what became of a request.
    pub(super) fn note(&self, about: &About, outcome: Outcome) {
        self.session
            .with(|session| session.note_outcome(about, outcome));
    }

    /// Counts a request that was refused.
    pub(super) fn note_refused(&self, about: &About, refusal: &Refusal) {
        self.note(about, refused(refusal));
    }
}

/// What is counted of a refusal.
fn refused(refusal: &Refusal) -> Outcome {
    Outcome::Refused {
        reason: refusal.reason().code(),
        line: refusal.line(),
    }
}

async fn decide(
    relay: &Relay,
    (bytes, body): (&Bytes, &Body),
    identity: Identity,
    measured: Measured,
) -> Judged {
    let mut claimed = None;
    let mut planned = plan(identity, body, relay.on_unrecognized, |request| {
        claimed = Some(request.thread.clone());
        relay.session.with(|session| {
            session.note_request(request);
            session.decide(request)
        })
    });
    if let Plan::Prepare(request) = planned {
        planned = prepare(relay, &request).await;
    }
    let (snapshot, thread) = match (planned, claimed) {
        (Plan::Inject(snapshot), Some(thread)) => (snapshot, thread),
        (Plan::Forward | Plan::Prepare(_) | Plan::Inject(_), _) => return Judged::Forward,
        (Plan::ForwardWithWarning(reason), _) => {
            tracing::warn!(%reason, "model request without readable metadata passed on");
            return Judged::Forward;
        }
        (Plan::Refuse(reason), _) => return Judged::Refuse(Refusal::new(reason)),
        (Plan::RefuseMetadata(bytes), _) => {
            return Judged::Refuse(Refusal::metadata_too_long(bytes));
        }
        (Plan::RefuseOwnTurn, _) => return Judged::Refuse(Refusal::own_turn()),
    };
    match splice(bytes, body, &snapshot) {
        Err(reason) => Judged::Refuse(Refusal::new(reason)),
        Ok(edit) => {
            let pieces = pieces(bytes, vec![edit]);
            let size: usize = pieces.iter().map(Bytes::len).sum();
            if size > MAX_BODY_BYTES {
                let size = u64::try_from(size).unwrap_or(u64::MAX);
                return Judged::Refuse(Refusal::too_large(measured, size));
            }
            Judged::Inject {
                pieces,
                size,
                text: snapshot.text().len(),
                thread,
            }
        }
    }
}

/// Reads the text for a turn that codex started itself.
async fn prepare(relay: &Relay, request: &ParentRequest) -> Plan {
    let wish = relay
        .session
        .with(|session| session.usual_wish(request.thread.as_str()));
    let prepared = match relay.feed.prepare(&wish).await {
        Ok(prepared) => Some(prepared),
        Err(error) => {
            tracing::warn!(
                "no context for a turn that codex started: {}",
                Chain(&error)
            );
            None
        }
    };
    let decision = relay
        .session
        .with(|session| session.on_native_context(request, prepared.as_deref()));
    from_decision(decision)
}
