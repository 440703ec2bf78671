//! What was found, as lines for a person or as JSON.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// As it should be.
    Ok,
    /// It works, and somebody should look at it.
    Warning,
    /// It must be mended.
    Failed,
    /// It couldn't be looked at, or needn't.
    Skipped,
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What it is.
    pub name: &'static str,
    /// How it went.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What mends it.
    pub advice: Option<String>,
    /// How long it took.
    pub took: Duration,
}

impl Check {
    /// A check that took no time worth telling.
    pub fn new(name: &'static str, status: Status, found: impl Into<String>) -> Self {
        Self {
            name,
            status,
            found: found.into(),
            advice: None,
            took: Duration::ZERO,
        }
    }

    /// Adds what mends it.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Adds how long it took.
    #[must_use]
    pub fn took(mut self, took: Duration) -> Self {
        self.took = took;
        self
    }
}

/// Everything that was found, in the order in which a turn needs it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The checks.
    pub checks: Vec<Check>,
}

impl Report {
    /// Whether nothing has to be mended.
    pub fn is_well(&self) -> bool {
        self.checks
            .iter()
            .all(|check| check.status != Status::Failed)
    }

    /// The report for programs; its members only grow.
    pub fn json(&self) -> Value {
        let checks = self.checks.iter().map(|check| {
            json!({
                "name": check.name,
                "status": check.status.word(),
                "found": check.found,
                "advice": check.advice,
                "milliseconds": u64::try_from(check.took.as_millis()).unwrap_or(u64::MAX),
            })
        });
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "ok": self.is_well(),
            "checks": checks.collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for check in &self.checks {
            let status = check.status.word();
            write!(f, "{:<10} {status:<8} {}", check.name, check.found)?;
            if !check.took.is_zero() {
                write!(f, " ({} ms)", check.took.as_millis())?;
            }
            writeln!(f)?;
            if let Some(advice) = &check.advice {
                writeln!(f, "{:19} → {advice}", "")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_well_until_something_failed() {
        let mut report = Report::default();
        report
            .checks
            .push(Check::new("dns", Status::Warning, "slow"));
        assert!(report.is_well());
        let failed = Check::new("tls", Status::Failed, "unknown issuer");
        let took = Duration::from_millis(12);
        report.checks.push(failed.took(took).advise("--ca-file"));
        assert!(!report.is_well());
        assert_eq!(
            report.to_string(),
            "dns        warning  slow\n\
             tls        failed   unknown issuer (12 ms)\n\
             \u{20}                   → --ca-file\n"
        );
        let json = report.json();
        assert_eq!(json["ok"], false);
        assert_eq!(json["checks"][1]["milliseconds"], 12);
        assert_eq!(json["checks"][1]["advice"], "--ca-file");
    }
}
