//! Model requests that are under way, by the turn that makes them: an interrupted turn ends its own at
//! once, whatever codex is doing just then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

/// All of them; clones share one list.
///
/// There are no more than connections of codex: each belongs to one.
#[derive(Clone, Debug, Default)]
pub struct Calls(Arc<Mutex<List>>);

#[derive(Debug, Default)]
struct List {
    next: u64,
    open: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    /// Thread and turn; none while nothing is under way.
    turn: Option<(String, String)>,
    cut: watch::Sender<bool>,
}

/// One connection's place in the list, given back when it is dropped.
#[derive(Debug)]
pub struct Call {
    calls: Calls,
    id: u64,
    cut: watch::Receiver<bool>,
}

impl Calls {
    /// Takes a place; nothing is under way yet.
    pub fn idle(&self) -> Call {
        let (sender, cut) = watch::channel(false);
        let id = self.with(|list| {
            let id = list.next;
            list.next += 1;
            let turn = None;
            list.open.insert(id, Entry { turn, cut: sender });
            id
        });
        let calls = self.clone();
        Call { calls, id, cut }
    }

    /// Ends what a turn has under way.
    pub fn cut(&self, thread: &str, turn: &str) {
        self.with(|list| {
            let is_it = |entry: &&Entry| {
                let named = entry.turn.as_ref();
                named.is_some_and(|named| (&*named.0, &*named.1) == (thread, turn))
            };
            for entry in list.open.values().filter(is_it) {
                entry.cut.send_replace(true);
            }
        });
    }

    fn with<T>(&self, step: impl FnOnce(&mut List) -> T) -> T {
        step(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Call {
    /// Notes that a request of this turn is under way.
    pub fn begin(&self, thread: &str, turn: &str) {
        self.note(Some((thread.to_owned(), turn.to_owned())));
    }

    /// Notes that it has its answer.
    pub fn end(&self) {
        self.note(None);
    }

    /// Waits until the turn is interrupted while its request is under way.
    pub async fn is_cut(&self) {
        let mut cut = self.cut.clone();
        if cut.wait_for(|is_cut| *is_cut).await.is_err() {
            // The list is gone: nobody can interrupt anything.
            std::future::pending::<()>().await;
        }
    }

    fn note(&self, turn: Option<(String, String)>) {
        self.calls.with(|list| {
            if let Some(entry) = list.open.get_mut(&self.id) {
                entry.turn = turn;
            }
        });
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.calls.with(|list| list.open.remove(&self.id));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn only_what_the_turn_has_under_way_is_cut() {
        let calls = Calls::default();
        let [mine, other, idle, over] = [(); 4].map(|()| calls.idle());
        mine.begin("t", "1");
        other.begin("t", "2");
        over.begin("t", "1");
        over.end();
        let is_cut = |call: &Call| call.is_cut().now_or_never().is_some();
        calls.cut("t", "1");
        assert!(is_cut(&mine) && is_cut(&mine));
        assert!(!is_cut(&other) && !is_cut(&idle) && !is_cut(&over));
        drop((mine, other, idle, over));
        assert_eq!(calls.with(|list| list.open.len()), 0);
    }
}
