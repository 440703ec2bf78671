//! Floor 4: codex as a supervised child.

pub mod codex;
pub mod command;
pub mod find;
pub mod group;
pub mod guardian;
mod kin;
mod order;
pub mod pipe;
mod report;
pub mod signals;
#[expect(
    unsafe_code,
    reason = "pre_exec and an inherited descriptor, and only here"
)]
mod sys;
