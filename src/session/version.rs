//! Which codex this is: what it says of itself in its answer to `initialize`.

use std::fmt;

/// A version of codex; what follows its three numbers is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodexVersion(pub u32, pub u32, pub u32);

/// What a version means for the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It is within the range that is tested.
    Tested,
    /// It is newer than all that was tested; it probably works.
    Newer,
    /// It lacks what the relay needs.
    TooOld,
}

impl CodexVersion {
    /// The oldest version that the relay works with.
    pub const OLDEST: Self = Self(0, 149, 0);
    /// The newest version that the suite is run with.
    pub const NEWEST_TESTED: Self = Self(0, 171, 0);

    /// The first that writes a thread's developer instructions down when it compacts a history between
    /// two turns (measured on 0.155.1 to 0.171.0); older ones do so at the next turn.
    const TELLS_AT_COMPACTION: Self = Self(0, 162, 0);

    /// The first that is known to take `environments` in `thread/settings/update`; 0.155.1 passes over
    /// them.
    const TAKES_PLACES_IN_SETTINGS: Self = Self(0, 171, 0);

    /// Reads the first version in `text`, as in `codex-cli 0.171.0`.
    pub fn find(text: &str) -> Option<Self> {
        text.split_whitespace().find_map(Self::parse)
    }

    /// Reads the version of a user agent: `NAME/0.171.0 (OS …) …`. `None` for a program that isn't
    /// codex.
    pub fn of_user_agent(agent: &str) -> Option<Self> {
        let (product, rest) = agent.split_once(" (").unwrap_or((agent, ""));
        let (name, version) = product.rsplit_once('/')?;
        let version = Self::parse(version).filter(|_| !name.is_empty())?;
        // Codex says the system and, behind it, who the client is. A shorter word will do where the
        // version is one of codex's.
        let is_codex = rest.contains(") ") || (version.0 == 0 && version.1 >= 100);
        is_codex.then_some(version)
    }

    /// Whether a history that was compacted between two turns holds the thread's developer
    /// instructions only from the next turn on.
    pub fn tells_after_compaction(self) -> bool {
        self != Self(0, 0, 0) && self < Self::TELLS_AT_COMPACTION
    }

    /// Whether `thread/settings/update` takes a thread to other environments.
    pub fn takes_places_in_settings(self) -> bool {
        self == Self(0, 0, 0) || self >= Self::TAKES_PLACES_IN_SETTINGS
    }

    /// What the version means. Builds from source call themselves 0.0.0.
    pub fn support(self) -> Support {
        if self == Self(0, 0, 0) || self > Self::NEWEST_TESTED {
            Support::Newer
        } else if self < Self::OLDEST {
            Support::TooOld
        } else {
            Support::Tested
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let numbers = text.split(['-', '+']).next()?;
        let mut numbers = numbers.trim_start_matches('v').split('.');
        let mut next = || numbers.next()?.parse().ok();
        let version = Self(next()?, next()?, next()?);
        numbers.next().is_none().then_some(version)
    }
}

impl fmt::Display for CodexVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_where_codex_says_them() {
        let of = CodexVersion::of_user_agent;
        let agent = "some client/0.171.0 (Debian 12.0.0; x86_64) unknown (some client; 1)";
        assert_eq!(of(agent), Some(CodexVersion(0, 171, 0)));
        let alpha = "x/0.172.0-alpha.3 (Mac OS 15.0; arm64) vscode (x; 1)";
        assert_eq!(of(alpha), Some(CodexVersion(0, 172, 0)));
        assert_eq!(of("codex/0.171.0"), Some(CodexVersion(0, 171, 0)));
        for other in [
            "",
            "my-server/1.0",
            "curl/8.1.2 (linux)",
            "x/1.2 (a) b",
            "/1.2.3 (a) b",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
        let found = CodexVersion::find("codex-cli 0.155.1\n");
        assert_eq!(found, Some(CodexVersion(0, 155, 1)));
        assert_eq!(CodexVersion::find("no version 1.2"), None);
    }

    #[test]
    fn support_has_an_end_at_both_sides() {
        let support = |minor, patch| CodexVersion(0, minor, patch).support();
        assert_eq!(support(148, 9), Support::TooOld);
        assert_eq!(support(149, 0), Support::Tested);
        assert_eq!(support(171, 0), Support::Tested);
        assert_eq!(support(171, 1), Support::Newer);
        assert_eq!(support(0, 0), Support::Newer);
    }
}
