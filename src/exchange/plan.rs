//! What becomes of a request: its class, and what the session says of it.

use std::sync::Arc;

use crate::base::reason::Reason;
use crate::context::snapshot::Snapshot;
use crate::exchange::body::Body;
use crate::exchange::classify::{Class, Identity};
use crate::session::parent::decide::{Decision, ParentRequest};

/// What to do with requests that can't be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnrecognized {
    /// They go on as they are, with a warning.
    Pass,
    /// They are refused.
    #[default]
    Refuse,
}

/// What to do with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Every byte goes on as it came.
    Forward,
    /// The same, but somebody should know why.
    ForwardWithWarning(Reason),
    /// The text goes in.
    Inject(Arc<Snapshot>),
    /// The text of a turn that codex started must be read first.
    Prepare(ParentRequest),
    /// Nothing goes on.
    Refuse(Reason),
    /// Nothing goes on: its metadata has so many bytes.
    RefuseMetadata(usize),
    /// Nothing goes on of a turn that codex started itself: the thread's text was for one turn.
    RefuseOwnTurn,
}

/// Plans a request whose carriers are all read; `decide` asks the session.
pub fn plan(
    identity: Identity,
    body: &Body,
    on_unrecognized: OnUnrecognized,
    decide: impl FnOnce(&ParentRequest) -> Decision,
) -> Plan {
    match identity.class() {
        Class::Untouched => Plan::Forward,
        Class::Unreadable(reason) => {
            let reason = if body.fault.is_some() {
                Reason::BodyInvalid
            } else {
                reason
            };
            match on_unrecognized {
                OnUnrecognized::Pass => Plan::ForwardWithWarning(reason),
                OnUnrecognized::Refuse => Plan::Refuse(reason),
            }
        }
        Class::TooLong(bytes) => match on_unrecognized {
            OnUnrecognized::Pass => Plan::ForwardWithWarning(Reason::MetadataUnrecognized),
            OnUnrecognized::Refuse => Plan::RefuseMetadata(bytes),
        },
        Class::Parent(request) => from_decision(decide(&request)),
    }
}

/// Turns the session's word into a plan.
pub fn from_decision(decision: Decision) -> Plan {
    match decision {
        Decision::Inject(snapshot) if snapshot.is_empty() => Plan::Forward,
        Decision::Inject(snapshot) => Plan::Inject(snapshot),
        Decision::Prepare(request) => Plan::Prepare(request),
        Decision::Refuse(reason) => Plan::Refuse(reason),
        Decision::RefuseOwnTurn => Plan::RefuseOwnTurn,
        Decision::Untouched => Plan::Forward,
    }
}
