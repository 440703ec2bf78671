//! The threads that the client drives, their turns, and what becomes of their model requests.

pub mod admitted;
pub mod decide;
pub mod delivery;
pub(in crate::session) mod memory;
pub mod registry;
pub mod tally;
pub mod threads;
pub(in crate::session) mod turn;
pub mod turns;
