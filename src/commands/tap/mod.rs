//! The witness of what codex really sends.

mod link;
mod pieces;
mod process;
mod tape;

pub use process::{TapConfig, run};
pub use tape::sent;
