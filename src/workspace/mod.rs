//! Floor 4: the agent workspace on disk.

pub mod cache;
pub mod files;
pub mod load;
pub mod skills;
