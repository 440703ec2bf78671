//! Notifications that a renewal brings: the client, who has asked for none, doesn't see them.

use crate::base::limits::{MAX_SERVER_NAME_BYTES, MAX_STARTING_SERVERS};

/// What one thread may still bring of them.
#[derive(Clone, Debug, Default)]
pub struct Strays {
    /// Whether the relay is renewing the thread.
    pub is_renewing: bool,
    usages: u8,
    goals: u8,
    settings: u8,
    servers: Servers,
}

/// The MCP servers of a thread that are starting: each is told of when it begins and when it is done,
/// and the client should see both or neither.
#[derive(Clone, Debug, Default)]
struct Servers {
    /// Those that the client was told of.
    shown: Vec<String>,
    /// Those that it wasn't told of.
    hidden: Vec<String>,
}

impl Strays {
    /// Expects those of a step of a renewal.
    pub fn expect(&mut self, is_resume: bool) {
        self.is_renewing |= is_resume;
        self.usages = self.usages.saturating_add(u8::from(is_resume));
        self.goals = self.goals.saturating_add(u8::from(is_resume));
    }

    /// Expects the one of settings that a turn sets again and that the client doesn't change with it.
    pub fn expect_settings(&mut self) {
        self.settings = 1;
    }

    /// Expects none any more, but for servers that have begun to start.
    pub fn end(&mut self) {
        self.is_renewing = false;
        self.usages = 0;
        self.goals = 0;
        self.settings = 0;
    }

    /// Whether notifications of this kind can be strays.
    pub fn may_be(method: &str) -> bool {
        method == OF_A_SERVER || OF_A_RESUME.contains(&method) || COUNTED.contains(&method)
    }

    /// Whether this notification is one; then it is expected no more. Of a server it says which, and
    /// how far it is.
    pub fn take(&mut self, method: &str, server: Option<(&str, &str)>) -> bool {
        let count = match (method, server) {
            (OF_A_SERVER, Some((name, status))) => {
                return self.servers.take(name, status, self.is_renewing);
            }
            ("thread/tokenUsage/updated", _) => &mut self.usages,
            ("thread/goal/cleared" | "thread/goal/updated", _) => &mut self.goals,
            ("thread/settings/updated", _) => &mut self.settings,
            _ => return self.is_renewing && OF_A_RESUME.contains(&method),
        };
        let is_stray = *count > 0;
        *count = count.saturating_sub(1);
        is_stray
    }
}

impl Servers {
    fn take(&mut self, name: &str, status: &str, is_renewing: bool) -> bool {
        let remove = |names: &mut Vec<String>| {
            let at = names.iter().position(|known| known == name);
            at.map(|at| names.swap_remove(at)).is_some()
        };
        let (was_hidden, was_shown) = (remove(&mut self.hidden), remove(&mut self.shown));
        if status != STARTING {
            // One that a renewal has ended and started anew ends the start that the client saw.
            return !was_shown && (was_hidden || is_renewing);
        }
        let is_stray = is_renewing;
        if is_stray {
            add(&mut self.hidden, name);
        }
        if was_shown || !is_stray {
            add(&mut self.shown, name);
        }
        is_stray
    }
}

fn add(names: &mut Vec<String>, name: &str) {
    if names.len() < MAX_STARTING_SERVERS && name.len() <= MAX_SERVER_NAME_BYTES {
        names.push(name.to_owned());
    }
}

/// What codex tells of a server of a thread that starts: with its name, and its status.
const OF_A_SERVER: &str = "mcpServer/startupStatus/updated";

/// The status of one that isn't done with it.
const STARTING: &str = "starting";

/// What codex tells of a thread once each time that it is resumed, or that its settings are set again.
const COUNTED: [&str; 4] = [
    "thread/goal/cleared",
    "thread/goal/updated",
    "thread/settings/updated",
    "thread/tokenUsage/updated",
];

/// What codex tells of a thread that it loads.
const OF_A_RESUME: [&str; 3] = [
    "thread/environment/connected",
    "thread/environment/disconnected",
    "thread/status/changed",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_sees_both_ends_of_the_start_of_a_server_or_neither() {
        let mut strays = Strays::default();
        let told = |strays: &mut Strays, status| strays.take(OF_A_SERVER, Some(("s", status)));
        assert!(!told(&mut strays, "starting"));
        assert!(!told(&mut strays, "ready"));
        strays.expect(true);
        assert!(told(&mut strays, "starting"));
        strays.end();
        assert!(told(&mut strays, "ready"), "it began unseen");
        assert!(!told(&mut strays, "starting"));
        strays.expect(true);
        assert!(told(&mut strays, "starting"), "it was seen before");
        assert!(!told(&mut strays, "failed"), "once it is over it is over");
        assert!(told(&mut strays, "ready"));
        strays.end();
        assert!(!told(&mut strays, "ready"));
    }

    #[test]
    fn number_of_servers_has_a_bound() {
        let mut strays = Strays::default();
        for number in 0..=MAX_STARTING_SERVERS {
            strays.take(OF_A_SERVER, Some((&number.to_string(), "starting")));
        }
        assert_eq!(strays.servers.shown.len(), MAX_STARTING_SERVERS);
    }
}
