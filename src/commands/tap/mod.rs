//! The witness of what codex really sends.

mod link;
mod pieces;
mod process;
mod tape;
mod wrapper;

pub use process::{TapConfig, run};
pub use tape::sent;
pub use wrapper::write_wrapper;
