//! A renewal that can't go on: the client is subscribed again, and its turn is refused.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::base::limits::MAX_SAID_CHARS;
use crate::base::reason::Reason;
use crate::context::orders::Text;
use crate::session::instructions::orders::Renewing;
use crate::session::instructions::renewal::{Permissions, Step, Trouble};
use crate::session::intercept::{Ask, ClientVerdict, Patience, Then};
use crate::session::machine::{Denial, Session};
use crate::session::parent::turn::Ready;
use crate::wire::envelope::member_text;

impl Session {
    /// Subscribes the client again to a thread that was left and not loaded anew, then refuses.
    pub(super) fn rejoin(
        &mut self,
        ready: Ready,
        text: Text,
        failed: (Trouble, Option<String>),
    ) -> ClientVerdict {
        let step = Step::Look;
        let (own, question) =
            self.ask_step(&ready.turn.thread, step, (&text, Permissions::default()));
        let renewing = Renewing {
            ready,
            text,
            steps: VecDeque::new(),
            step,
            own,
            before: None,
            failed: Some(failed),
        };
        ClientVerdict::Ask(Ask {
            question,
            id: own,
            patience: Patience::Renewal,
            thread: Some(renewing.ready.turn.thread.clone()),
            then: Then::Renew(Box::new(renewing)),
        })
    }

    pub(super) fn refuse_renewal(
        &mut self,
        ready: Ready,
        trouble: Trouble,
        said: Option<String>,
    ) -> ClientVerdict {
        let thread = ready.turn.thread.as_str();
        tracing::warn!(
            thread,
            "turn refused, its developer instructions can't be renewed: {trouble}"
        );
        self.ledger.done(thread);
        let id = ready.turn.thread.clone();
        let reason = Reason::PolicyChangeUnsupported.code();
        self.warn(Some(id), reason, trouble.to_string());
        self.refuse(
            ready.turn.request.id,
            Denial::PolicyChange { trouble, said },
        )
    }

    /// What codex says of an error, unless the private route is in it.
    pub(super) fn said(&self, answer: &Bytes) -> Option<String> {
        let words = member_text(answer, &(0..answer.len()), &["error", "message"])?;
        let mut parts = self.config.base_url.split('/');
        if parts.any(|part| part.len() >= SECRET_CHARS && words.contains(part)) {
            return None;
        }
        Some(words.chars().take(MAX_SAID_CHARS).collect())
    }
}

/// What is shorter in the route's URL is no secret.
const SECRET_CHARS: usize = 20;
