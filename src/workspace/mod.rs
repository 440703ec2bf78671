//! Floor 4: the agent workspace on disk.

pub mod files;
pub mod load;
