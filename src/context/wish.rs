//! What a turn wants its context to be made for.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::ids::ProfileId;
use crate::context::given::Given;
use crate::context::reference::Reference;
use crate::context::turn_kind::TurnKind;

/// Who asks for a context, and for what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// What the turn is for.
    pub kind: TurnKind,
    /// Whose overlay is wanted; nobody's stands for the one of the settings.
    pub profile: Option<ProfileId>,
    /// Whether the turn has tools for the memory.
    pub has_memory_tools: bool,
    /// The folder that the thread works in: codex lists the skills that it finds there itself.
    pub folder: Option<PathBuf>,
    /// What the client gives in place of the workspace's own.
    pub given: Option<Arc<Given>>,
    /// What the client gives in place of the workspace's references.
    pub references: Option<Arc<[Reference]>>,
    /// Whether children may see it too: then it is without what is one person's alone.
    pub is_shared: bool,
}

impl Wish {
    /// Whether the tools that there are can be used in this turn.
    pub fn can_use_memory(&self) -> bool {
        self.has_memory_tools && self.kind.has_tools()
    }
}
