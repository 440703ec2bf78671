//! Which lines of the client go on while others wait for codex, and which stay behind them.
//!
//! Lines about one thread keep their order. While a line about a thread waits, so does whatever names
//! that thread; what names none goes on where it only asks, and stays with all that is behind it
//! where it may change something for every thread. Answers of the client are never held: codex may
//! need them to go on.

use std::collections::VecDeque;

use bytes::Bytes;
use memchr::memmem;

use crate::base::ids::ThreadId;
use crate::base::limits::{MAX_HELD_BYTES, MAX_HELD_LINES, MAX_WAITING_LINES};
use crate::session::methods::{self, Reach};
use crate::wire::envelope::{Envelope, member_text};

/// The order of the client's lines.
#[derive(Debug, Default)]
pub struct Turnstile {
    /// What waits for codex, oldest first.
    waiting: Vec<Waiting>,
    /// What stays behind, oldest first.
    held: VecDeque<Held>,
    next: u64,
}

/// A line that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    /// None: everything stays behind it.
    thread: Option<ThreadId>,
    bytes: usize,
}

#[derive(Debug)]
struct Held {
    line: Bytes,
    about: About,
}

/// What a line is about.
#[derive(Debug, PartialEq, Eq)]
enum About {
    /// An answer to a request of codex's.
    Answer,
    /// One thread.
    Thread(String),
    /// No thread.
    Nothing(Reach),
}

impl Turnstile {
    /// Lets a line go on, by giving it back, or holds it.
    pub fn enter(&mut self, line: Bytes) -> Option<Bytes> {
        if self.is_idle() {
            return Some(line);
        }
        let about = About::of(&line);
        let is_behind = self.waiting.iter().any(|it| it.holds(&line, &about))
            || self.held.iter().any(|it| it.is_before(&line, &about));
        if is_behind {
            self.held.push_back(Held { line, about });
            return None;
        }
        Some(line)
    }

    /// Takes the oldest line that is held and need not be any longer.
    pub fn take(&mut self) -> Option<Bytes> {
        let is_free = |(at, held): (usize, &Held)| {
            let (line, about) = (&held.line, &held.about);
            let mut earlier = self.held.iter().take(at);
            let is_free = !self.waiting.iter().any(|it| it.holds(line, about))
                && !earlier.any(|it| it.is_before(line, about));
            is_free.then_some(at)
        };
        let at = self.held.iter().enumerate().find_map(is_free)?;
        self.held.remove(at).map(|held| held.line)
    }

    /// The line that was held last.
    pub fn newest(&self) -> Option<&Bytes> {
        self.held.back().map(|held| &held.line)
    }

    /// Notes that `line` waits, and all about `thread` with it; without one, everything.
    pub fn wait(&mut self, line: &Bytes, thread: Option<ThreadId>) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.waiting.push(Waiting {
            ticket,
            thread,
            bytes: line.len(),
        });
        ticket
    }

    /// Notes that a line waits no more.
    pub fn done(&mut self, ticket: Ticket) {
        self.waiting.retain(|it| it.ticket != ticket);
    }

    /// Whether no line waits and none is held.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.held.is_empty()
    }

    /// Whether no more lines should come.
    pub fn is_full(&self) -> bool {
        let waiting: usize = self.waiting.iter().map(|it| it.bytes).sum();
        let held: usize = self.held.iter().map(|it| it.line.len()).sum();
        self.waiting.len() >= MAX_WAITING_LINES
            || self.held.len() >= MAX_HELD_LINES
            || waiting + held >= MAX_HELD_BYTES
    }
}

impl Waiting {
    fn holds(&self, line: &[u8], about: &About) -> bool {
        let Some(thread) = &self.thread else {
            return *about != About::Answer;
        };
        match about {
            About::Answer => false,
            About::Nothing(Reach::Threads | Reach::Everything) => true,
            About::Thread(_) | About::Nothing(Reach::Nothing) => {
                names(line, thread.as_str(), about)
            }
        }
    }
}

impl Held {
    /// Whether a line that came later must stay behind.
    fn is_before(&self, line: &[u8], about: &About) -> bool {
        match (&self.about, about) {
            (_, About::Answer) => false,
            (About::Nothing(Reach::Everything), _) | (_, About::Nothing(Reach::Everything)) => true,
            (About::Thread(thread), _) => names(line, thread, about),
            (About::Answer | About::Nothing(_), _) => false,
        }
    }
}

impl About {
    /// Reads what a line is about. One that can't be read is codex's to answer.
    fn of(line: &Bytes) -> Self {
        let Some(envelope) = Envelope::read(line) else {
            return Self::Nothing(Reach::Everything);
        };
        let Some(method) = envelope.method else {
            return Self::Answer;
        };
        let thread = envelope.params.as_ref();
        let thread = thread.and_then(|params| member_text(line, params, &["threadId"]));
        thread.map_or_else(|| Self::Nothing(methods::reach(&method)), Self::Thread)
    }
}

/// Whether a line has to do with a thread: also where it names it anywhere else.
fn names(line: &[u8], thread: &str, about: &About) -> bool {
    matches!(about, About::Thread(named) if named == thread)
        || memmem::find(line, thread.as_bytes()).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(method: &str, params: &str) -> Bytes {
        format!(r#"{{"id":1,"method":"{method}","params":{params}}}"#).into()
    }

    fn of_thread(thread: &str) -> Bytes {
        line("turn/start", &format!(r#"{{"threadId":"{thread}"}}"#))
    }

    /// A turnstile where a line about thread `a` waits.
    fn waiting() -> (Turnstile, Ticket) {
        let mut turnstile = Turnstile::default();
        let ticket = turnstile.wait(&of_thread("a"), ThreadId::new("a-thread"));
        (turnstile, ticket)
    }

    #[test]
    fn other_threads_go_on_and_the_same_one_keeps_its_order() {
        let (mut turnstile, ticket) = waiting();
        let first = of_thread("a-thread");
        let second = line("thread/read", r#"{"threadId":"a-thread"}"#);
        let nested = line("thread/metadata/x", r#"{"threadId":"b","of":"a-thread"}"#);
        for held in [&first, &second, &nested] {
            assert_eq!(turnstile.enter(held.clone()), None);
        }
        for free in [
            of_thread("c"),
            line("model/list", "{}"),
            line("thread/start", "{}"),
            Bytes::from_static(br#"{"id":0,"result":{"a-thread":1}}"#),
        ] {
            assert_eq!(turnstile.enter(free.clone()), Some(free));
        }
        // It is behind a held line of its own thread.
        assert_eq!(turnstile.enter(of_thread("b")), None);
        assert_eq!(turnstile.take(), None);
        turnstile.done(ticket);
        for held in [first, second, nested, of_thread("b")] {
            assert_eq!(turnstile.take(), Some(held));
        }
        assert!(turnstile.is_idle());
    }

    #[test]
    fn what_changes_everything_stays_with_all_behind_it() {
        let (mut turnstile, ticket) = waiting();
        let change = line("config/value/write", "{}");
        assert_eq!(turnstile.enter(change.clone()), None);
        for held in [of_thread("c"), line("model/list", "{}")] {
            assert_eq!(turnstile.enter(held), None);
        }
        let answer = Bytes::from_static(br#"{"id":0,"result":{}}"#);
        assert_eq!(turnstile.enter(answer.clone()), Some(answer));
        turnstile.done(ticket);
        assert_eq!(turnstile.take(), Some(change));
        assert_eq!(turnstile.take(), Some(of_thread("c")));
    }

    #[test]
    fn list_of_threads_waits_and_is_overtaken() {
        let (mut turnstile, ticket) = waiting();
        let list = line("thread/list", "{}");
        assert_eq!(turnstile.enter(list.clone()), None);
        assert_eq!(turnstile.enter(of_thread("c")), Some(of_thread("c")));
        turnstile.done(ticket);
        assert_eq!(turnstile.take(), Some(list));
    }

    #[test]
    fn line_that_a_waiting_one_lets_by_may_begin_to_wait_itself() {
        let (mut turnstile, first) = waiting();
        assert_eq!(turnstile.enter(of_thread("a-thread")), None);
        let second = turnstile.wait(&of_thread("c"), None);
        assert_eq!(turnstile.enter(of_thread("d")), None);
        turnstile.done(first);
        assert_eq!(turnstile.take(), None, "everything is behind the second");
        turnstile.done(second);
        assert_eq!(turnstile.take(), Some(of_thread("a-thread")));
        assert_eq!(turnstile.take(), Some(of_thread("d")));
    }

    #[test]
    fn number_and_bytes_have_a_bound() {
        let (mut turnstile, _) = waiting();
        assert!(!turnstile.is_full());
        let text = "x".repeat(MAX_HELD_BYTES);
        turnstile.enter(line(
            "turn/start",
            &format!(r#"{{"threadId":"a-thread","x":"{text}"}}"#),
        ));
        assert!(turnstile.is_full());
        let (mut turnstile, _) = waiting();
        for _ in 0..MAX_HELD_LINES {
            assert!(!turnstile.is_full());
            turnstile.enter(of_thread("a-thread"));
        }
        assert!(turnstile.is_full());
        let mut turnstile = Turnstile::default();
        for _ in 0..MAX_WAITING_LINES {
            assert!(!turnstile.is_full());
            turnstile.wait(&of_thread("a"), None);
        }
        assert!(turnstile.is_full());
    }
}
