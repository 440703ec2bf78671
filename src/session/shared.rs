//! The one lock: a session that three drivers share.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::session::machine::Session;

/// A handle on the session. Never held over an await: every use is one call.
#[derive(Clone)]
pub struct SharedSession {
    inner: Arc<Mutex<Session>>,
    /// Told when there are warnings to send.
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for SharedSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSession")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl SharedSession {
    /// Puts `session` behind the lock.
    pub fn new(session: Session) -> Self {
        Self::waking(session, || {})
    }

    /// Puts `session` behind the lock; `wake` is called, outside of it, whenever it has warnings to
    /// send.
    pub fn waking(session: Session, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            inner: Arc::new(Mutex::new(session)),
            wake: Arc::new(wake),
        }
    }

    /// Runs one step of the machine.
    ///
    /// A panic inside a step poisons nothing that matters: the machine's own invariants are kept
    /// per field, and the process is on its way out then.
    pub fn with<T>(&self, step: impl FnOnce(&mut Session) -> T) -> T {
        let (result, has_warnings) = {
            let mut session = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            let result = step(&mut session);
            (result, session.has_warnings())
        };
        if has_warnings {
            (self.wake)();
        }
        result
    }
}
