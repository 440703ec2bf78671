//! What a turn is for, and what its context does for it.

/// The kind of a turn: a closed list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TurnKind {
    /// Somebody wrote something.
    #[default]
    User,
    /// The agent is to look around and act on its own.
    Heartbeat,
    /// A job is due.
    Cron,
    /// A job is due that needs nothing of the agent's own.
    CronLightweight,
    /// The agent may answer and do nothing else.
    MessageOnly,
    /// The turn has no tools.
    ToolsDisabled,
    /// The turn looks after the agent itself.
    RingZero,
}

impl TurnKind {
    /// Every kind, with its word.
    pub const ALL: [(&'static str, Self); 7] = [
        ("user", Self::User),
        ("heartbeat", Self::Heartbeat),
        ("cron", Self::Cron),
        ("cron-lightweight", Self::CronLightweight),
        ("message-only", Self::MessageOnly),
        ("tools-disabled", Self::ToolsDisabled),
        ("ring-zero", Self::RingZero),
    ];

    /// Finds a kind by its word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(known, _)| *known == word)
            .map(|(_, kind)| *kind)
    }

    /// Whether the turn can use memory tools, where there are some.
    pub fn has_tools(self) -> bool {
        match self {
            Self::User
            | Self::Heartbeat
            | Self::Cron
            | Self::CronLightweight
            | Self::MessageOnly => true,
            Self::ToolsDisabled | Self::RingZero => false,
        }
    }

    /// Whether anything of the workspace is shown.
    pub fn has_workspace(self) -> bool {
        self != Self::CronLightweight
    }

    /// Whether BOOTSTRAP.md is introduced.
    pub fn has_bootstrap(self) -> bool {
        self.has_workspace() && self != Self::Heartbeat
    }

    /// What stands first in the context.
    pub fn opening(self) -> Option<&'static str> {
        matches!(self, Self::Cron | Self::CronLightweight).then_some(CRON)
    }

    /// What stands last in the context.
    pub fn closing(self) -> Option<&'static str> {
        (self == Self::Heartbeat).then_some(HEARTBEAT)
    }
}

/// A job brings all it needs: reading the workspace first costs time on every run.
const CRON: &str = "# Scheduled job\n\n\
    This turn was started by a schedule, not by a person. Its message is the whole job: do it \
    directly. Don't load the workspace's documents, memory or project notes first, unless the job \
    itself asks for them. Nobody is waiting to answer questions: decide, do, and say in the end what \
    was done.";

/// A heartbeat has no question to answer: without guidance the model asks for one.
const HEARTBEAT: &str = "# Heartbeat\n\n\
    This turn was started by a timer, so that you can look around; nobody has written to you. Take \
    up what is due or useful within what you are allowed to do, finish what you began, and follow up \
    on what you promised. Don't repeat what you have reported already. If nothing needs you, do \
    nothing and say so in one short line.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_kinds_and_nothing_else() {
        for (word, kind) in TurnKind::ALL {
            assert_eq!(TurnKind::from_word(word), Some(kind));
        }
        for other in ["", "User", "cron ", "heartbeats"] {
            assert_eq!(TurnKind::from_word(other), None, "{other}");
        }
    }
}
