//! What a thread needs so that its model goes by a text in its next turn.
//!
//! Codex unloads no thread whose last turn has failed (`systemError`; 0.155.1 and 0.171.0): such a
//! thread is told the text, and stays on its way to the model until a turn has succeeded. One with
//! commands in its background, or on which a turn may start by itself, is told the text too, since they
//! would end with it.

use crate::context::orders::Text;
use crate::session::instructions::ledger::Ledger;
use crate::session::instructions::renewal::{Step, Trouble};
use crate::session::instructions::told::{Storage, Told};
use crate::session::parent::turn::Starter;

/// What a thread needs before its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// These steps, in order.
    Steps(Vec<Step>),
    /// The turn can't go on.
    Refuse(Trouble),
}

/// A turn that is asked for.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct Asked {
    /// Its thread is meant to go over the route: one that codex has in its memory keeps its way until it
    /// is loaded anew.
    pub is_routed: bool,
    /// The client is subscribed to the thread.
    pub is_subscribed: bool,
    /// Codex must say what it shows the thread, which it does when it loads it.
    pub must_ask: bool,
    /// Who starts it: behind a renewal only a `turn/start` can set again what that has lost.
    pub starter: Starter,
}

impl Ledger {
    /// What must happen so that the model of `thread` goes by `text` in the turn.
    pub(in crate::session) fn need(&self, thread: &str, text: &Text, asked: Asked) -> Need {
        let Asked {
            is_routed,
            is_subscribed,
            must_ask,
            starter,
        } = asked;
        let Some(told) = self.find(thread) else {
            return Need::Nothing;
        };
        let can_move = told.storage == Storage::Written || text.is_ours || told.past.has_ours;
        let is_on_its_way =
            told.is_routed == is_routed || told.storage == Storage::Ephemeral || !can_move;
        if !text.is_ours && !told.past.has_ours && is_on_its_way && !must_ask {
            return Need::Nothing;
        }
        let open = told.open.as_ref().filter(|open| open.outcome.is_none());
        if open.is_some_and(|open| open.is_awaited) {
            return Need::Refuse(Trouble::Unknown);
        }
        let is_sent = open.is_some_and(|open| open.text == text.digest);
        let is_seen = is_sent || told.past.seen == Some(text.digest);
        let is_ephemeral = told.storage == Storage::Ephemeral;
        if is_ephemeral && told.policy_loaded != text.policy {
            return Need::Refuse(Trouble::Ephemeral);
        }
        // A thread that must not be unloaded can't go its other way.
        let is_at_work = told.is_loaded && told.work.may_begin();
        if is_at_work && !is_on_its_way {
            return Need::Refuse(Trouble::AtWork);
        }
        let is_current =
            told.is_loaded && told.loaded == Some(text.digest) && is_on_its_way && !must_ask;
        // The model goes by the message; the rest follows at the first turn before which the thread
        // can be loaded anew.
        let stays = starter == Starter::Codex
            || told.must_stay_loaded() && (told.has_failed || is_on_its_way);
        if is_ephemeral || is_current || stays {
            let tell = Need::Steps(vec![Step::Tell]);
            return if is_seen { Need::Nothing } else { tell };
        }
        let mut steps = Vec::new();
        // What was never written down can't be resumed; a message writes it down.
        let is_written = told.storage == Storage::Written;
        if !is_written {
            steps.push(Step::Tell);
        }
        if told.is_loaded {
            steps.extend([Step::Look, Step::Leave]);
        }
        steps.push(Step::Return);
        if is_written && !is_seen && !told.past.is_untold {
            steps.push(Step::Tell);
        }
        if !is_subscribed {
            steps.push(Step::Part);
        }
        Need::Steps(steps)
    }

    /// Whether a thread that is resumed stays on its way, though it is meant to go another.
    pub fn must_stay(&self, thread: &str, is_routed: bool) -> bool {
        let told = self.find(thread);
        told.is_some_and(|told| {
            told.is_loaded && told.keeps_its_way() && told.is_routed != is_routed
        })
    }
}

impl Told {
    /// Whether codex can't, or shouldn't, unload it now.
    pub fn must_stay_loaded(&self) -> bool {
        self.is_loaded && (self.is_busy || self.keeps_its_way())
    }

    /// Whether it can't be loaded anew, not even to go another way.
    pub(super) fn keeps_its_way(&self) -> bool {
        self.has_failed || self.work.may_begin()
    }
}
