//! Floor 0: the words and bounds that every other floor uses.

pub mod bounded;
pub mod chain;
pub mod exit;
pub mod ids;
pub mod limits;
pub mod reason;
pub mod secret;
