//! Which references each thread has been told of: the table of the interface's section 7.

use std::collections::BTreeMap;

use crate::base::bounded::BoundedMap;
use crate::base::ids::ThreadId;
use crate::base::limits::MAX_THREADS;
use crate::context::digest::Digest;
use crate::context::reference::Reference;
use crate::session::own::OwnId;

/// What was delivered to which thread, as long as this process lives.
///
/// ```text
///           sent              answered without error
///   due ───────────▶ on its way ────────────────────▶ delivered
///    ▲                │  error, no answer, disturbed     │
///    ├────────────────┘                                  │
///    └───────────────────────────────────────────────────┘
///      another content; compaction, revert, unload; the thread forgotten
/// ```
#[derive(Debug)]
pub struct Delivery {
    /// A thread that isn't here has been told nothing.
    threads: BoundedMap<ThreadId, Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// By path, the content that stands in the thread's history.
    delivered: BTreeMap<String, Digest>,
    /// What codex was asked to put there and hasn't answered for.
    sent: Option<Sent>,
}

#[derive(Debug)]
struct Sent {
    own: OwnId,
    files: Vec<(String, Digest)>,
    /// The history has lost something since: the block may be gone with it.
    is_disturbed: bool,
}

impl Delivery {
    /// Starts with nothing delivered.
    pub fn new() -> Self {
        Self {
            threads: BoundedMap::new(MAX_THREADS),
        }
    }

    /// Those of `references` that the thread must be told of now.
    pub fn due(&self, thread: &str, references: &[Reference]) -> Vec<Reference> {
        let delivered = self.threads.find(thread).map(|known| &known.delivered);
        let is_due = |it: &&Reference| {
            let digest = delivered.and_then(|delivered| delivered.get(&it.path));
            digest != Some(&it.digest)
        };
        references.iter().filter(is_due).cloned().collect()
    }

    /// Where a reference stands on its way into the thread, in a word.
    pub fn state(&self, thread: &str, path: &str, digest: &Digest) -> &'static str {
        let Some(known) = self.threads.find(thread) else {
            return "due";
        };
        let is_it = |(name, content): &(String, Digest)| name == path && content == digest;
        let sent = known.sent.as_ref();
        if known.delivered.get(path) == Some(digest) {
            "delivered"
        } else if sent.is_some_and(|sent| sent.files.iter().any(is_it)) {
            "sent"
        } else {
            "due"
        }
    }

    /// Notes that `references` were sent to the thread with the request `own`.
    pub fn sent(&mut self, thread: &ThreadId, own: OwnId, references: &[Reference]) {
        let sent = Sent {
            own,
            files: references
                .iter()
                .map(|it| (it.path.clone(), it.digest))
                .collect(),
            is_disturbed: false,
        };
        if let Some(known) = self.threads.find_mut(thread.as_str()) {
            known.sent = Some(sent);
            return;
        }
        let known = Known {
            sent: Some(sent),
            ..Known::default()
        };
        if let Err(full) = self.threads.try_insert(thread.clone(), known) {
            tracing::debug!(%full, "what this thread is told is not noted: it will be told again");
        }
    }

    /// Notes codex's answer to the request `own`.
    pub fn answered(&mut self, own: OwnId, is_ok: bool) {
        let is_it = |known: &Known| known.sent.as_ref().is_some_and(|sent| sent.own == own);
        let thread = self.threads.iter().find(|(_, known)| is_it(known));
        let Some(thread) = thread.map(|(thread, _)| thread.clone()) else {
            return;
        };
        let Some(known) = self.threads.find_mut(thread.as_str()) else {
            return;
        };
        let sent = known.sent.take().filter(|sent| is_ok && !sent.is_disturbed);
        known
            .delivered
            .extend(sent.into_iter().flat_map(|sent| sent.files));
    }

    /// Notes that the thread's history may have lost what was delivered: compaction, revert, or a
    /// thread that was unloaded.
    pub fn lost(&mut self, thread: &str) {
        if let Some(known) = self.threads.find_mut(thread) {
            known.delivered.clear();
            if let Some(sent) = &mut known.sent {
                sent.is_disturbed = true;
            }
        }
    }

    /// Forgets a thread that is closed, archived, deleted or unsubscribed from.
    pub fn forget(&mut self, thread: &str) {
        self.threads.remove(thread);
    }
}

impl Default for Delivery {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::session::own::OwnRequests;

    struct Story {
        delivery: Delivery,
        own: OwnRequests,
    }

    impl Story {
        fn new() -> Self {
            Self {
                delivery: Delivery::new(),
                own: OwnRequests::new("own-".to_owned()),
            }
        }

        fn due(&self, thread: &str, references: &[Reference]) -> Vec<String> {
            let due = self.delivery.due(thread, references);
            due.into_iter().map(|it| it.path).collect()
        }

        fn send(&mut self, thread: &str, references: &[Reference]) -> OwnId {
            let (own, _) = self.own.ask("thread/inject_items", &json!({}));
            let due = self.delivery.due(thread, references);
            self.delivery.sent(&id(thread), own, &due);
            own
        }

        fn deliver(&mut self, thread: &str, references: &[Reference]) {
            let own = self.send(thread, references);
            self.delivery.answered(own, true);
        }
    }

    fn id(thread: &str) -> ThreadId {
        ThreadId::new(thread).unwrap()
    }

    fn files(contents: &[(&str, &str)]) -> Vec<Reference> {
        let file = |(path, text): &(&str, &str)| Reference::new("/w", (*path).to_owned(), text);
        contents.iter().map(file).collect()
    }

    fn both() -> Vec<Reference> {
        files(&[("BOOTSTRAP.md", "b"), ("MEMORY.md", "m")])
    }

    #[test]
    fn first_turn_is_due_and_a_warm_one_is_not() {
        let mut story = Story::new();
        assert_eq!(story.due("t", &both()), ["BOOTSTRAP.md", "MEMORY.md"]);
        story.deliver("t", &both());
        assert_eq!(story.due("t", &both()), [""; 0]);
    }

    #[test]
    fn changed_file_is_due_alone_and_an_absent_one_never() {
        let mut story = Story::new();
        story.deliver("t", &both());
        let edited = files(&[("BOOTSTRAP.md", "b"), ("MEMORY.md", "n")]);
        assert_eq!(story.due("t", &edited), ["MEMORY.md"]);
        story.deliver("t", &edited);
        assert_eq!(story.due("t", &edited), [""; 0]);
        assert_eq!(
            story.due("t", &both()),
            ["MEMORY.md"],
            "changed back is changed"
        );
        // A heartbeat leaves BOOTSTRAP.md out; it stands in the history all the same.
        assert_eq!(story.due("t", &edited[1..]), [""; 0]);
        assert_eq!(story.due("t", &[]), [""; 0]);
        assert_eq!(story.due("t", &edited), [""; 0]);
    }

    #[test]
    fn error_or_no_answer_leaves_it_due() {
        let mut story = Story::new();
        let own = story.send("t", &both());
        assert_eq!(story.due("t", &both()).len(), 2, "not answered yet");
        story.delivery.answered(own, false);
        assert_eq!(story.due("t", &both()).len(), 2);
        story.delivery.answered(own, true);
        assert_eq!(story.due("t", &both()).len(), 2, "answered once");
    }

    #[test]
    fn late_answer_counts_until_another_was_sent() {
        let mut story = Story::new();
        let first = story.send("t", &both());
        let second = story.send("t", &both());
        story.delivery.answered(first, true);
        assert_eq!(story.due("t", &both()).len(), 2);
        story.delivery.answered(second, true);
        assert_eq!(story.due("t", &both()).len(), 0);
    }

    #[test]
    fn what_was_lost_is_due_again() {
        let mut story = Story::new();
        story.deliver("t", &both());
        story.delivery.lost("t");
        assert_eq!(story.due("t", &both()).len(), 2);
        story.deliver("t", &both());
        assert_eq!(story.due("t", &both()).len(), 0);
    }

    #[test]
    fn loss_between_sending_and_answer_leaves_it_due() {
        let mut story = Story::new();
        let own = story.send("t", &both());
        story.delivery.lost("t");
        story.delivery.answered(own, true);
        assert_eq!(story.due("t", &both()).len(), 2);
    }

    #[test]
    fn forgotten_thread_is_due_and_a_late_answer_changes_nothing() {
        let mut story = Story::new();
        story.deliver("t", &both());
        story.delivery.forget("t");
        assert_eq!(story.due("t", &both()).len(), 2);
        let own = story.send("t", &both());
        story.delivery.forget("t");
        story.delivery.answered(own, true);
        assert_eq!(story.due("t", &both()).len(), 2);
    }

    #[test]
    fn threads_are_told_apart() {
        let mut story = Story::new();
        let (first, second) = (story.send("t", &both()), story.send("u", &both()));
        story.delivery.lost("u");
        story.delivery.answered(second, true);
        story.delivery.answered(first, true);
        assert_eq!(story.due("t", &both()).len(), 0);
        assert_eq!(story.due("u", &both()).len(), 2);
        story.deliver("u", &both());
        story.delivery.forget("t");
        assert_eq!(story.due("u", &both()).len(), 0);
    }
}
