//! Warnings to the client: a task of their own, so that nothing waits for a client that doesn't read.

use std::sync::Arc;

use tokio::sync::{Notify, watch};

use crate::session::machine::Session;
use crate::session::shared::SharedSession;
use crate::stdio::writer::OwnLines;

/// What the task needs.
#[derive(Debug)]
pub struct Warner {
    /// Whoever has something to say.
    pub session: SharedSession,
    /// The client.
    pub client: OwnLines,
    /// Tells that there is something.
    pub news: Arc<Notify>,
}

impl Warner {
    /// Sends warnings as they come, until codex has ended or the client reads no more.
    pub async fn run(self, mut codex_gone: watch::Receiver<bool>) {
        let ended = async {
            // An error means that whoever would tell is gone as well.
            let _ = codex_gone.wait_for(|gone| *gone).await;
        };
        tokio::select! {
            () = ended => {}
            () = self.send_all() => {}
        }
    }

    async fn send_all(&self) {
        loop {
            self.news.notified().await;
            for line in self.session.with(Session::take_warnings) {
                if self.client.send(line).await.is_err() {
                    return;
                }
            }
        }
    }
}
