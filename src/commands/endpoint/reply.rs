//! What the model endpoint answers: a script of whole replies, each a list of steps.

use std::fmt;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::commands::witness::Recorded;

/// Decides what the endpoint answers; any `Fn(&Recorded) -> Reply` is one.
pub trait Script: Send + Sync + 'static {
    /// Answers a request to the model: `POST …/responses`, or any message on a WebSocket.
    fn reply(&self, request: &Recorded) -> Reply;

    /// Answers the request that asks for a WebSocket.
    fn upgrade(&self, request: &Recorded) -> Upgrade {
        let _ = request;
        Upgrade::accept()
    }

    /// Answers any other HTTP request: an empty list of models, else 404.
    fn other(&self, request: &Recorded) -> Reply {
        if request.head.method == "GET" && request.path().ends_with("/models") {
            return Reply::json(StatusCode::OK, &json!({"models": []}));
        }
        Reply::text(StatusCode::NOT_FOUND, "no such thing here")
    }
}

impl<F: Fn(&Recorded) -> Reply + Send + Sync + 'static> Script for F {
    fn reply(&self, request: &Recorded) -> Reply {
        self(request)
    }
}

/// A script whose endpoint refuses every WebSocket with 426, so that codex goes over HTTP.
#[derive(Clone, Copy, Debug)]
pub struct OverHttp<S>(
    /// What is answered over HTTP.
    pub S,
);

impl<S: Script> Script for OverHttp<S> {
    fn reply(&self, request: &Recorded) -> Reply {
        self.0.reply(request)
    }

    fn upgrade(&self, _request: &Recorded) -> Upgrade {
        Upgrade::Refuse(Reply::text(StatusCode::UPGRADE_REQUIRED, "http only"))
    }

    fn other(&self, request: &Recorded) -> Reply {
        self.0.other(request)
    }
}

/// The answer to a request for a WebSocket.
#[derive(Clone, Debug)]
pub enum Upgrade {
    /// 101, with these headers besides the handshake's own.
    Accept(Vec<(String, String)>),
    /// A plain 101 once the signal has been given.
    AcceptAfter(Signal),
    /// This instead of a WebSocket.
    Refuse(Reply),
}

impl Upgrade {
    /// Makes a plain 101.
    pub fn accept() -> Self {
        Self::Accept(Vec::new())
    }
}

/// One answer: a head, then steps in order.
///
/// On a WebSocket the head is left out, and replies to messages that arrive meanwhile wait in line.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status; events come with 200.
    pub status: StatusCode,
    /// Headers, besides those that HTTP itself needs.
    pub headers: Vec<(String, String)>,
    /// What happens after the head.
    pub steps: Vec<Step>,
    /// Whether steps of earlier replies on the same WebSocket that still wait are dropped.
    pub supersedes: bool,
}

/// One step of an answer.
#[derive(Clone, Debug)]
pub enum Step {
    /// Wait until the signal is given. At the start of an answer the head waits as well.
    Await(Signal),
    /// A close frame; over HTTP the connection is dropped.
    Close {
        /// The code of the close frame.
        code: u16,
        /// Its reason, at most 123 bytes.
        reason: String,
    },
    /// Drop the connection without a word.
    Drop,
    /// One event: an SSE event over HTTP, a text message on a WebSocket.
    Event(Value),
    /// Bytes as they are: a piece of the body; on a WebSocket a text message, or a binary one if
    /// they aren't UTF-8.
    Raw(Bytes),
}

impl Reply {
    /// Makes an answer of events.
    pub fn events(events: impl IntoIterator<Item = Value>) -> Self {
        Self::steps(events.into_iter().map(Step::Event))
    }

    /// Makes an answer of steps, under the head of an event stream.
    pub fn steps(steps: impl IntoIterator<Item = Step>) -> Self {
        let kind = ("content-type".to_owned(), "text/event-stream".to_owned());
        Self {
            status: StatusCode::OK,
            headers: vec![kind],
            steps: steps.into_iter().collect(),
            supersedes: false,
        }
    }

    /// Makes an HTTP answer whose body comes in these pieces.
    pub fn raw(
        status: StatusCode,
        headers: Vec<(String, String)>,
        body: impl IntoIterator<Item = Bytes>,
    ) -> Self {
        let steps = body.into_iter().map(Step::Raw).collect();
        Self {
            status,
            headers,
            steps,
            supersedes: false,
        }
    }

    /// Makes an HTTP answer of plain text.
    pub fn text(status: StatusCode, text: &str) -> Self {
        let kind = ("content-type".to_owned(), "text/plain".to_owned());
        Self::raw(
            status,
            vec![kind],
            [Bytes::copy_from_slice(text.as_bytes())],
        )
    }

    /// Makes an HTTP answer of JSON.
    pub fn json(status: StatusCode, value: &Value) -> Self {
        let kind = ("content-type".to_owned(), "application/json".to_owned());
        Self::raw(status, vec![kind], [Bytes::from(value.to_string())])
    }

    /// Makes no answer: the connection is dropped.
    pub fn drop_connection() -> Self {
        Self::steps([Step::Drop])
    }

    /// Makes no answer at all; on a WebSocket the connection just stays open.
    pub fn silence() -> Self {
        Self::steps([])
    }

    /// Holds the answer back until the signal is given.
    #[must_use]
    pub fn after(mut self, signal: &Signal) -> Self {
        self.steps.insert(0, Step::Await(signal.clone()));
        self
    }

    /// Adds steps at the end.
    #[must_use]
    pub fn then(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.steps.extend(steps);
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Drops what earlier replies on the same WebSocket have still to say.
    #[must_use]
    pub fn superseding(mut self) -> Self {
        self.supersedes = true;
        self
    }
}

/// A signal that is given once and stays given.
#[derive(Clone)]
pub struct Signal(watch::Sender<bool>);

impl Signal {
    /// Makes a signal that hasn't been given.
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Gives the signal.
    pub fn give(&self) {
        self.0.send_replace(true);
    }

    /// Waits until the signal has been given.
    pub async fn given(&self) {
        let mut receiver = self.0.subscribe();
        // The only error is a sender that is gone, and this is one.
        let _ = receiver.wait_for(|given| *given).await;
    }
}

impl Default for Signal {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Signal").field(&*self.0.borrow()).finish()
    }
}
