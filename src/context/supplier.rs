//! Who supplies the contexts of a session.

/// Where contexts come from: the option `--context`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Supplier {
    /// The files of an agent workspace, where the client gives nothing of its own.
    #[default]
    Workspace,
    /// The client alone.
    Client,
    /// Nobody: no request is ever touched.
    Nobody,
}

impl Supplier {
    /// Every supplier, with its word.
    pub const ALL: [(&'static str, Self); 3] = [
        ("workspace", Self::Workspace),
        ("client", Self::Client),
        ("none", Self::Nobody),
    ];

    /// The word of the interface.
    pub fn word(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::Client => "client",
            Self::Nobody => "none",
        }
    }
}
