//! What the client is told when codex ends while it is still needed.

use bytes::Bytes;
use serde_json::json;

use crate::base::ids::RequestId;
use crate::session::machine::Session;
use crate::wire::envelope::{Envelope, error_line};

impl Session {
    /// Notes that a line stays behind others: its client is told where codex ends meanwhile.
    pub fn hold(&mut self, line: &Bytes) {
        self.held.extend(request(line));
    }

    /// Notes that a line that was held goes on.
    pub fn release(&mut self, line: &Bytes) {
        if let Some(id) = request(line)
            && let Some(at) = self.held.iter().position(|held| *held == id)
        {
            self.held.remove(at);
        }
    }

    /// The lines that end what codex left open: an error for each request, an end for each turn.
    pub fn on_codex_gone(&mut self, how: &str) -> Vec<Bytes> {
        let message = format!("codex-relay: codex {how} before it answered");
        let error = json!({ "code": INTERNAL_ERROR, "message": message });
        let mut lines: Vec<Bytes> = self
            .pending
            .take_ids()
            .iter()
            .chain(&std::mem::take(&mut self.held))
            .map(|id| error_line(id, &error))
            .collect();
        let reason = format!("codex-relay: codex {how} while the turn ran");
        for (thread, turn) in self.running_turns() {
            let notification = json!({
                "method": "turn/completed",
                "params": {
                    "threadId": thread.as_str(),
                    "turn": {
                        "id": turn.as_str(),
                        "items": [],
                        "status": "failed",
                        "error": { "message": reason },
                    },
                },
            });
            lines.push(Bytes::from(format!("{notification}\n")));
        }
        lines
    }
}

/// The id of a request.
fn request(line: &Bytes) -> Option<RequestId> {
    let envelope = Envelope::read(line)?;
    envelope.id.filter(|_| envelope.method.is_some())
}

/// JSON-RPC's code for a fault of the server.
const INTERNAL_ERROR: i32 = -32603;
