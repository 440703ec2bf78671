//! `codex-relay doctor`: looks at every part that a turn needs, says what is wrong and what mends it.
//!
//! It changes nothing and prints no secret: addresses without their credentials, kinds of accounts
//! without their names.

mod app_server;
mod network;
mod report;
mod run;

pub use report::{Check, Report, Status};
pub use run::{DoctorConfig, run};
