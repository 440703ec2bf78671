//! Lines of the client that wait for codex: for an answer to a request of our own, or for a thread.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::{Sleep, sleep};

use crate::base::ids::ThreadId;
use crate::base::limits::{
    OPTIONAL_ANSWER_DEADLINE, OVERLOAD_PAUSE, OWN_ANSWER_DEADLINE, RENEWAL_DEADLINE,
};
use crate::session::intercept::{Ask, Patience, Waiting as Opening};
use crate::session::own::OwnAnswer;
use crate::session::turnstile::Ticket;
use crate::wire::envelope::member;

/// The lines that wait.
#[derive(Debug, Default)]
pub struct WaitingLines {
    lines: Vec<Waiting>,
    /// Codex's stdout has ended: nothing is answered any more.
    is_deaf: bool,
}

/// What has happened to a line that waited.
#[derive(Debug)]
pub enum Event {
    /// Codex had too much to do: it is to be asked once more.
    Again(Bytes),
    /// Codex has answered; none where it didn't in time.
    Answered {
        /// Which line.
        ticket: Ticket,
        /// The line.
        line: Bytes,
        /// What it waited for.
        ask: Box<Ask>,
        /// Codex's answer.
        answer: Option<Bytes>,
    },
    /// Codex has opened the thread, or has had its time.
    Opened {
        /// Which line.
        ticket: Ticket,
        /// The line.
        line: Bytes,
        /// The turn that waited.
        opening: Box<Opening>,
    },
    /// Codex has opened some thread: see [`WaitingLines::notice`].
    Passed,
}

#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    line: Bytes,
    until: Pin<Box<Sleep>>,
    what: What,
}

#[derive(Debug)]
enum What {
    Answer {
        ask: Box<Ask>,
        /// What codex said last, which stands where it has no time for more.
        last: Option<Bytes>,
        is_answered: bool,
        pause: Duration,
        /// When it is asked again.
        again: Option<Pin<Box<Sleep>>>,
    },
    Opening {
        opening: Box<Opening>,
        is_open: bool,
    },
}

impl WaitingLines {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Has a line wait for an answer that codex was asked for just now.
    pub fn ask(&mut self, ticket: Ticket, line: Bytes, ask: Ask) {
        let patience = match ask.patience {
            Patience::Long => OWN_ANSWER_DEADLINE,
            Patience::Renewal => RENEWAL_DEADLINE,
            Patience::Short => OPTIONAL_ANSWER_DEADLINE,
        };
        let what = What::Answer {
            ask: Box::new(ask),
            last: None,
            is_answered: false,
            pause: OVERLOAD_PAUSE,
            again: None,
        };
        self.wait(ticket, line, patience, what);
    }

    /// Has a line wait until codex has opened its thread.
    pub fn open(&mut self, ticket: Ticket, line: Bytes, opening: Opening) {
        let what = What::Opening {
            opening: Box::new(opening),
            is_open: false,
        };
        self.wait(ticket, line, OWN_ANSWER_DEADLINE, what);
    }

    fn wait(&mut self, ticket: Ticket, line: Bytes, patience: Duration, what: What) {
        self.lines.push(Waiting {
            ticket,
            line,
            until: Box::pin(sleep(patience)),
            what,
        });
    }

    /// Notes which threads are still being opened.
    pub fn notice(&mut self, is_opening: impl Fn(&ThreadId) -> bool) {
        for waiting in &mut self.lines {
            if let What::Opening { opening, is_open } = &mut waiting.what {
                *is_open = !is_opening(&opening.thread);
            }
        }
    }

    /// Waits for what happens next; for ever where no line waits. Nothing is lost where it is dropped.
    pub async fn event(
        &mut self,
        answers: &mut mpsc::Receiver<OwnAnswer>,
        openings: &mut watch::Receiver<u64>,
    ) -> Event {
        loop {
            let is_opening = |it: &Waiting| matches!(it.what, What::Opening { .. });
            let waits = self.lines.iter().any(is_opening) && !self.is_deaf;
            let is_deaf = self.is_deaf;
            tokio::select! {
                biased;
                // Also those that came too late are taken.
                answer = answers.recv(), if !is_deaf => match answer {
                    Some(answer) => self.answered(answer),
                    None => self.is_deaf = true,
                },
                changed = openings.changed(), if waits => match changed {
                    Ok(()) => return Event::Passed,
                    Err(_) => self.is_deaf = true,
                },
                event = poll_fn(|context| self.ripe(context)) => return event,
            }
        }
    }

    fn answered(&mut self, answer: OwnAnswer) {
        for waiting in &mut self.lines {
            let What::Answer {
                ask,
                last,
                is_answered,
                pause,
                again,
            } = &mut waiting.what
            else {
                continue;
            };
            if ask.id == answer.id {
                *again = is_overloaded(&answer.line).then(|| Box::pin(sleep(*pause)));
                *pause *= 2;
                *is_answered = again.is_none();
                *last = Some(answer.line);
                return;
            }
        }
    }

    fn ripe(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        let mut found = None;
        for (at, waiting) in self.lines.iter_mut().enumerate() {
            let is_late = self.is_deaf || waiting.until.as_mut().poll(context).is_ready();
            let is_over = match &mut waiting.what {
                What::Opening { is_open, .. } => *is_open,
                What::Answer {
                    ask,
                    is_answered,
                    again,
                    ..
                } => {
                    let is_due =
                        |pause: &mut Pin<Box<Sleep>>| pause.as_mut().poll(context).is_ready();
                    if !is_late && again.take_if(is_due).is_some() {
                        return Poll::Ready(Event::Again(ask.question.clone()));
                    }
                    *is_answered
                }
            };
            if is_over || is_late {
                found = Some(at);
                break;
            }
        }
        let Some(at) = found else {
            return Poll::Pending;
        };
        let Waiting {
            ticket, line, what, ..
        } = self.lines.remove(at);
        Poll::Ready(match what {
            What::Answer { ask, last, .. } => Event::Answered {
                ticket,
                line,
                ask,
                answer: last,
            },
            What::Opening { opening, .. } => Event::Opened {
                ticket,
                line,
                opening,
            },
        })
    }
}

/// Whether codex says that it has too much to do.
fn is_overloaded(answer: &Bytes) -> bool {
    let whole = 0..answer.len();
    let code = member(answer, &whole, &["error", "code"]);
    code.is_some_and(|code| answer.get(code) == Some(b"-32001"))
}
