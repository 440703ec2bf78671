//! Floor 4: codex as a supervised child.

pub mod command;
pub mod find;
pub mod group;
pub mod signals;
#[expect(unsafe_code, reason = "pre_exec, and only here")]
mod sys;
