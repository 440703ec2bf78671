//! Whether a thread gets the private route, and how.

pub mod asking;
pub mod config_edit;
pub mod eligibility;
pub mod rejoin;
pub mod routes;
