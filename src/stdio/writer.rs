//! The client's end: one task writes to our stdout, others send it lines.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{self, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::base::limits::{MAX_QUEUED_LINES, MAX_QUEUED_OWN_LINES};
use crate::budget::share::LineShare;

/// Where lines of our own for the client go.
#[derive(Clone, Debug)]
pub struct OwnLines {
    queue: mpsc::Sender<Queued>,
    places: Arc<Semaphore>,
}

/// Where codex's lines for the client go, and parts of those that are too long.
///
/// Full, the sender waits: codex is slowed, nothing is lost. When it is dropped, lines of our own
/// come behind whatever codex said, also where that ended no line.
#[derive(Debug)]
pub struct CodexLines {
    queue: mpsc::Sender<Queued>,
    places: Arc<Semaphore>,
    /// Held by a long line until the client has it.
    long: Arc<Semaphore>,
}

/// What waits for the client; the places are given back when it has it.
#[derive(Debug)]
pub enum Queued {
    /// Lines of codex, or a part of one.
    Codex {
        /// As they came.
        bytes: Bytes,
        /// Their place in the queue.
        place: OwnedSemaphorePermit,
        /// What a long line takes besides.
        load: Option<Load>,
    },
    /// Codex says no more.
    End,
    /// A line of our own.
    Own {
        /// The line.
        line: Bytes,
        /// Its place in the queue.
        place: OwnedSemaphorePermit,
    },
}

/// What a long line takes until the client has it: memory, and the place of long lines, of which
/// there is one.
#[derive(Debug)]
pub struct Load {
    /// Its memory.
    pub share: LineShare,
    _place: Option<OwnedSemaphorePermit>,
}

/// The client reads no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client reads no more")]
pub struct Gone;

/// Makes the queue of lines for the client.
pub fn queue() -> (CodexLines, OwnLines, mpsc::Receiver<Queued>) {
    // Places are counted for each side by itself. One more is for the end.
    let (queue, lines) = mpsc::channel(MAX_QUEUED_LINES + MAX_QUEUED_OWN_LINES + 1);
    let codex = CodexLines {
        queue: queue.clone(),
        places: Arc::new(Semaphore::new(MAX_QUEUED_LINES)),
        long: Arc::new(Semaphore::new(1)),
    };
    let own = OwnLines {
        queue,
        places: Arc::new(Semaphore::new(MAX_QUEUED_OWN_LINES)),
    };
    (codex, own, lines)
}

impl OwnLines {
    /// Sends a line, which comes between those of codex.
    pub async fn send(&self, line: Bytes) -> Result<(), Gone> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|_| Gone)?;
        let queued = Queued::Own { line, place };
        self.queue.send(queued).await.map_err(|_| Gone)
    }
}

impl CodexLines {
    /// Sends bytes as they are.
    pub async fn send(&self, bytes: Bytes, load: Option<Load>) -> Result<(), Gone> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|_| Gone)?;
        let queued = Queued::Codex { bytes, place, load };
        self.queue.send(queued).await.map_err(|_| Gone)
    }

    /// Waits until the client has the long line before this one.
    pub async fn load(&self) -> Load {
        Load {
            share: LineShare::default(),
            // It can't fail: nobody closes the semaphore.
            _place: Arc::clone(&self.long).acquire_owned().await.ok(),
        }
    }
}

impl Drop for CodexLines {
    fn drop(&mut self) {
        // There is room: the places of both sides are fewer.
        let _ = self.queue.try_send(Queued::End);
    }
}

/// Writes lines until every sender is gone; an error means that the client reads no more.
///
/// A line of our own that comes while one of codex is under way in parts waits for its end.
pub async fn write_lines<W>(mut lines: mpsc::Receiver<Queued>, mut to: W) -> io::Result<()>
where
    W: AsyncWrite + Unpin,
{
    let mut stand = Stand::Between;
    // Bounded by the places of our own lines.
    let mut waiting = VecDeque::new();
    while let Some(queued) = lines.recv().await {
        match queued {
            Queued::Codex { bytes, place, load } => {
                to.write_all(&bytes).await?;
                if let Some(last) = bytes.last() {
                    stand = if *last == b'\n' {
                        Stand::Between
                    } else {
                        Stand::Within
                    };
                }
                drop((bytes, place, load));
            }
            Queued::End => {
                if stand == Stand::Within {
                    stand = Stand::Torn;
                }
            }
            Queued::Own { line, place } => waiting.push_back((line, place)),
        }
        while stand != Stand::Within
            && let Some((line, _place)) = waiting.pop_front()
        {
            if stand == Stand::Torn {
                to.write_all(b"\n").await?;
                stand = Stand::Between;
            }
            to.write_all(&line).await?;
        }
        if lines.is_empty() {
            to.flush().await?;
        }
    }
    to.flush().await
}

/// Where in codex's lines the client stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    Between,
    /// More of the line comes.
    Within,
    /// Codex ended in the middle of a line.
    Torn,
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn written(bytes: &[&'static str], own: &'static str, more: &[&'static str]) -> String {
        let (codex, ours, lines) = queue();
        for part in bytes {
            codex.send(Bytes::from(*part), None).await.unwrap();
        }
        ours.send(Bytes::from(own)).await.unwrap();
        for part in more {
            codex.send(Bytes::from(*part), None).await.unwrap();
        }
        drop((codex, ours));
        let mut to = Vec::new();
        write_lines(lines, &mut to).await.unwrap();
        String::from_utf8(to).unwrap()
    }

    #[tokio::test]
    async fn line_of_our_own_waits_for_the_end_of_one_in_parts() {
        let got = written(&["a\n", "lo"], "own\n", &["ng", "\nb\n"]).await;
        assert_eq!(got, "a\nlong\nb\nown\n");
        let got = written(&["a\n"], "own\n", &["b\n"]).await;
        assert_eq!(got, "a\nown\nb\n");
    }

    #[tokio::test]
    async fn line_that_codex_left_open_is_ended_before_one_of_our_own_alone() {
        assert_eq!(written(&["torn"], "own\n", &[]).await, "torn\nown\n");
        let (codex, ours, lines) = queue();
        codex.send(Bytes::from("last"), None).await.unwrap();
        drop((codex, ours));
        let mut to = Vec::new();
        write_lines(lines, &mut to).await.unwrap();
        assert_eq!(to, b"last");
    }
}
