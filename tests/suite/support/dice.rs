//! Chance for tests, the same in every run.

/// Numbers that are random enough.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }

    /// A number below `below`.
    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// Turns of a long run: the default, or as many as a longer one by hand asks for.
pub(crate) fn turns(default: u64) -> u64 {
    let asked = std::env::var("SUITE_TURNS").ok();
    asked.and_then(|it| it.parse().ok()).unwrap_or(default)
}
