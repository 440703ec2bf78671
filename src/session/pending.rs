//! Requests of the client that codex hasn't answered yet.

use std::collections::BTreeMap;

use crate::base::ids::RequestId;

/// Unanswered requests by id, each with what its answer will mean.
///
/// Codex takes duplicate ids and answers them in some order: they queue here, oldest first.
#[derive(Debug)]
pub struct Pending<T> {
    open: BTreeMap<RequestId, Vec<T>>,
    /// Invariant: the sum of the queues' lengths, at most `capacity`.
    count: usize,
    capacity: usize,
}

impl<T> Pending<T> {
    /// Makes a table for at most `capacity` requests.
    pub fn new(capacity: usize) -> Self {
        Self {
            open: BTreeMap::new(),
            count: 0,
            capacity,
        }
    }

    /// Notes a request; false where the table is full.
    #[must_use]
    pub fn try_note(&mut self, id: RequestId, meaning: T) -> bool {
        if self.is_full() {
            return false;
        }
        self.count += 1;
        self.open.entry(id).or_default().push(meaning);
        true
    }

    /// Says what the answer to the newest request with this id will mean; notes one where there is
    /// none.
    pub fn settle(&mut self, id: RequestId, meaning: T) {
        match self.open.get_mut(&id).and_then(|queue| queue.last_mut()) {
            Some(newest) => *newest = meaning,
            // Codex is gone meanwhile: nobody will answer.
            None => drop(self.try_note(id, meaning)),
        }
    }

    /// Forgets the newest request with this id: it doesn't go on.
    pub fn withdraw(&mut self, id: &RequestId) {
        let Some(queue) = self.open.get_mut(id) else {
            return;
        };
        if queue.pop().is_some() {
            self.count -= 1;
        }
        if queue.is_empty() {
            self.open.remove(id);
        }
    }

    /// How many open requests mean something like this.
    pub fn count(&self, is_one: impl Fn(&T) -> bool) -> usize {
        self.open.values().flatten().filter(|it| is_one(it)).count()
    }

    /// Whether one more request would be too many.
    pub fn is_full(&self) -> bool {
        self.count >= self.capacity
    }

    /// Takes the oldest request with this id.
    pub fn answered(&mut self, id: &RequestId) -> Option<T> {
        let queue = self.open.get_mut(id)?;
        let meaning = (!queue.is_empty()).then(|| queue.remove(0));
        if queue.is_empty() {
            self.open.remove(id);
        }
        if meaning.is_some() {
            self.count -= 1;
        }
        meaning
    }

    /// Takes the ids of all that is open.
    pub fn take_ids(&mut self) -> Vec<RequestId> {
        self.count = 0;
        std::mem::take(&mut self.open)
            .into_iter()
            .flat_map(|(id, queue)| std::iter::repeat_n(id, queue.len()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn id(raw: &'static str) -> RequestId {
        RequestId::new(Bytes::from_static(raw.as_bytes()))
    }

    #[test]
    fn duplicates_are_answered_in_order_and_the_bound_holds() {
        let mut pending = Pending::new(3);
        assert!(pending.try_note(id("1"), "first"));
        assert!(pending.try_note(id("1"), "second"));
        assert!(pending.try_note(id("\"1\""), "text"));
        assert!(!pending.try_note(id("2"), "over"));
        assert_eq!(pending.count(|it| *it != "text"), 2);
        assert_eq!(pending.answered(&id("1")), Some("first"));
        assert_eq!(pending.answered(&id("1")), Some("second"));
        assert_eq!(pending.answered(&id("1")), None);
        assert!(pending.try_note(id("\"1\""), "held"));
        pending.settle(id("\"1\""), "settled");
        assert_eq!(pending.answered(&id("\"1\"")), Some("text"));
        assert_eq!(pending.answered(&id("\"1\"")), Some("settled"));
        assert!(pending.try_note(id("\"1\""), "text"));
        assert!(pending.try_note(id("\"1\""), "withdrawn"));
        pending.withdraw(&id("\"1\""));
        assert_eq!(pending.take_ids(), [id("\"1\"")]);
        assert!(!pending.is_full());
    }
}
