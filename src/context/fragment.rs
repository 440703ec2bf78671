//! The pieces that a context is made of.

/// Which file of the workspace a fragment comes from, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Who the agent is.
    Soul,
    /// What it is called and how it appears.
    Identity,
    /// Whom it works for.
    User,
}

impl Kind {
    /// Every kind, in order.
    pub const ALL: [Self; 3] = [Self::Soul, Self::Identity, Self::User];

    /// The file's name below the workspace root.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Soul => "SOUL.md",
            Self::Identity => "IDENTITY.md",
            Self::User => "USER.md",
        }
    }
}

/// The content of one workspace file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Which file it is.
    pub kind: Kind,
    /// Its text, not yet cut.
    pub text: String,
}
