//! The pieces that a context is made of.

use std::sync::Arc;

/// What a file of the workspace is for, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Who the agent is.
    Soul,
    /// What it is called and how it appears.
    Identity,
    /// Whom it works for.
    User,
    /// What one person of those it works for adds.
    Overlay,
    /// What it is to do first on a new thread.
    Bootstrap,
    /// What it has noted for later.
    Memory,
}

impl Kind {
    /// The kinds that have one fixed place, in order.
    pub const FIXED: [(Self, &'static str); 5] = [
        (Self::Soul, "SOUL.md"),
        (Self::Identity, "IDENTITY.md"),
        (Self::User, "USER.md"),
        (Self::Bootstrap, "BOOTSTRAP.md"),
        (Self::Memory, MEMORY_FILE),
    ];

    /// Whether it belongs to the persona; the others are references.
    pub fn is_persona(self) -> bool {
        self < Self::Bootstrap
    }
}

/// The file of the agent's memory.
pub const MEMORY_FILE: &str = "MEMORY.md";

/// The content of one workspace file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// What it is for.
    pub kind: Kind,
    /// Its path below the workspace root.
    pub path: String,
    /// Its text as far as it was read, not yet cut.
    pub text: Arc<str>,
    /// How much more of it there is.
    pub unread_bytes: usize,
}
