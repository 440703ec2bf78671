//! What a client has received: lines in order, and waiting for one.

use serde_json::Value;
use tokio::sync::watch;

use super::PATIENCE;

/// One line that came from the other side.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// The line as it came, without its newline.
    pub(crate) raw: String,
    /// The JSON in it; null if it is none.
    pub(crate) value: Value,
}

impl Line {
    /// The method, if it is a request or a notification.
    pub(crate) fn method(&self) -> Option<&str> {
        self.value.get("method")?.as_str()
    }

    /// Says whether it is a request of the other side's.
    pub(crate) fn is_request(&self) -> bool {
        self.method().is_some() && self.value.get("id").is_some()
    }
}

#[derive(Debug, Default)]
struct Received {
    lines: Vec<Line>,
    ended: bool,
}

/// The lines of one client; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inbox(watch::Sender<Received>);

impl Inbox {
    /// Notes a line.
    pub(crate) fn push(&self, line: Line) {
        self.0.send_modify(|it| it.lines.push(line));
    }

    /// Notes that no more will come.
    pub(crate) fn end(&self) {
        self.0.send_modify(|it| it.ended = true);
    }

    /// How many lines there are so far.
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().lines.len()
    }

    /// The lines from `from` on.
    pub(crate) fn since(&self, from: usize) -> Vec<Line> {
        self.0.borrow().lines[from..].to_vec()
    }

    /// Waits for a line that `found` wants, the first `from` lines left out.
    pub(crate) async fn wait(
        &self,
        what: &str,
        from: usize,
        mut found: impl FnMut(&Line) -> bool,
    ) -> Line {
        let mut looked = from;
        let mut line = None;
        let mut watcher = self.0.subscribe();
        let search = watcher.wait_for(|received| {
            let fresh = received.lines.iter().skip(looked);
            line = fresh.clone().find(|it| found(it)).cloned();
            looked = received.lines.len();
            line.is_some() || received.ended
        });
        let over = tokio::time::timeout(PATIENCE, search).await.is_err();
        line.unwrap_or_else(|| {
            let why = if over { "in time" } else { "before the end" };
            panic!("no {what} {why}; got:\n{}", self.summary(from))
        })
    }

    /// Waits until the stream has ended.
    pub(crate) async fn wait_for_end(&self) {
        let mut watcher = self.0.subscribe();
        let end = watcher.wait_for(|received| received.ended);
        let ended = tokio::time::timeout(PATIENCE, end).await.is_ok();
        assert!(ended, "stdout doesn't end; got:\n{}", self.summary(0));
    }

    fn summary(&self, from: usize) -> String {
        let lines = self.since(from);
        let shown = lines.iter().rev().take(20).rev();
        let heads = shown.map(|it| it.raw.chars().take(400).collect::<String>());
        heads.collect::<Vec<_>>().join("\n")
    }
}
