//! The one lock: a session that three drivers share.

use std::sync::{Arc, Mutex, PoisonError};

use crate::session::machine::Session;

/// A handle on the session. Never held over an await: every use is one call.
#[derive(Clone, Debug)]
pub struct SharedSession {
    inner: Arc<Mutex<Session>>,
}

impl SharedSession {
    /// Puts `session` behind the lock.
    pub fn new(session: Session) -> Self {
        Self {
            inner: Arc::new(Mutex::new(session)),
        }
    }

    /// Runs one step of the machine.
    ///
    /// A panic inside a step poisons nothing that matters: the machine's own invariants are kept
    /// per field, and the process is on its way out then.
    pub fn with<T>(&self, step: impl FnOnce(&mut Session) -> T) -> T {
        step(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
