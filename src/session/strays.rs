//! Notifications that a resume of our own brings: the client, who has asked for none, doesn't see them.

/// What one thread may still bring of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Strays {
    /// Whether the relay is renewing the thread.
    pub is_renewing: bool,
    usages: u8,
    goals: u8,
}

impl Strays {
    /// Expects those of a step of a renewal.
    pub fn expect(&mut self, is_resume: bool) {
        self.is_renewing = true;
        self.usages = self.usages.saturating_add(u8::from(is_resume));
        self.goals = self.goals.saturating_add(u8::from(is_resume));
    }

    /// Whether notifications of this kind can be strays.
    pub fn may_be(method: &str) -> bool {
        OF_A_RESUME.contains(&method) || ONCE_A_RESUME.contains(&method)
    }

    /// Whether this notification is one; then it is expected no more.
    pub fn take(&mut self, method: &str) -> bool {
        let count = match method {
            "thread/tokenUsage/updated" => &mut self.usages,
            "thread/goal/cleared" | "thread/goal/updated" => &mut self.goals,
            _ => return self.is_renewing && OF_A_RESUME.contains(&method),
        };
        let is_stray = *count > 0;
        *count = count.saturating_sub(1);
        is_stray
    }
}

/// What codex tells of a thread once each time that it is resumed.
const ONCE_A_RESUME: [&str; 3] = [
    "thread/goal/cleared",
    "thread/goal/updated",
    "thread/tokenUsage/updated",
];

/// What codex tells of a thread that it loads.
const OF_A_RESUME: [&str; 5] = [
    "mcpServer/startupStatus/updated",
    "thread/environment/connected",
    "thread/environment/disconnected",
    "thread/settings/updated",
    "thread/status/changed",
];
