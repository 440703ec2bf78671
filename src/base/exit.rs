//! How the process leaves: reasons and their exit codes.

/// A usage or configuration fault (`EX_USAGE`).
pub const USAGE: u8 = 64;
/// Codex is missing or can't be started (`EX_UNAVAILABLE`).
pub const UNAVAILABLE: u8 = 69;
/// A fault of the relay itself (`EX_SOFTWARE`).
pub const SOFTWARE: u8 = 70;

/// Why the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// Codex ended with this code.
    CodexCode(i32),
    /// Codex died of this signal.
    CodexSignal(i32),
    /// Codex was never there.
    CodexMissing,
    /// A part of the relay failed.
    RelayFault,
    /// What was typed or configured can't be used.
    Usage,
}

impl ExitReason {
    /// The code that the process ends with.
    pub fn code(self) -> u8 {
        match self {
            Self::CodexCode(code) => u8::try_from(code & 0xFF).unwrap_or(SOFTWARE),
            Self::CodexSignal(signal) => u8::try_from(128 + (signal & 0x7F)).unwrap_or(SOFTWARE),
            Self::CodexMissing => UNAVAILABLE,
            Self::RelayFault => SOFTWARE,
            Self::Usage => USAGE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_follow_the_contract() {
        let codes: Vec<u8> = [
            ExitReason::CodexCode(0),
            ExitReason::CodexCode(3),
            ExitReason::CodexSignal(9),
            ExitReason::CodexMissing,
            ExitReason::RelayFault,
            ExitReason::Usage,
        ]
        .map(ExitReason::code)
        .to_vec();
        assert_eq!(codes, [0, 3, 137, 69, 70, 64]);
    }
}
