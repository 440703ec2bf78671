//! `codex-relay demo`: the whole path on one machine, with the real codex and without an account.

mod client;
mod error;
mod find;
mod plot;
mod report;
mod run;
mod stage;

pub use error::{DemoError, Trouble};
pub use report::Verdict;
pub use run::{DemoConfig, run};
