//! What a guardian tells the relay: one line for each thing that happened.

use std::fmt;

use crate::base::exit::ExitReason;

/// One thing that happened to codex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// It ended, and nothing that it owned is left.
    Ended(ExitReason),
    /// It can't be started; the number of the system's error.
    Failed(i32),
    /// It runs, under this process id.
    Started(u32),
}

impl Report {
    /// Reads a line without its newline.
    pub(super) fn read(line: &str) -> Option<Self> {
        let (word, number) = line.split_once(' ').unwrap_or((line, "0"));
        let number = number.parse().ok()?;
        match word {
            "code" => Some(Self::Ended(ExitReason::CodexCode(number))),
            "failed" => Some(Self::Failed(number)),
            "signal" => Some(Self::Ended(ExitReason::CodexSignal(number))),
            "started" => Some(Self::Started(u32::try_from(number).ok()?)),
            _ => None,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(ExitReason::CodexCode(code)) => writeln!(f, "code {code}"),
            Self::Ended(ExitReason::CodexSignal(signal)) => writeln!(f, "signal {signal}"),
            Self::Ended(reason) => writeln!(f, "code {}", reason.code()),
            Self::Failed(errno) => writeln!(f, "failed {errno}"),
            Self::Started(pid) => writeln!(f, "started {pid}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_report_reads_as_it_was_written() {
        for report in [
            Report::Ended(ExitReason::CodexCode(3)),
            Report::Ended(ExitReason::CodexSignal(9)),
            Report::Failed(2),
            Report::Started(77),
        ] {
            assert_eq!(Report::read(report.to_string().trim_end()), Some(report));
        }
        assert_eq!(Report::read("code x"), None);
        assert_eq!(Report::read(""), None);
    }
}
