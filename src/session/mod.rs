//! Floor 2: what must be remembered between two messages.

pub mod asking;
pub mod config_edit;
pub mod decide;
pub mod delivery;
pub mod eligibility;
pub mod given_params;
pub mod intercept;
pub mod machine;
mod memory;
pub mod methods;
pub mod observe;
pub mod own;
pub mod parting;
pub mod pending;
pub mod registrations;
pub mod registry;
pub mod relay_member;
pub mod relay_methods;
pub mod routes;
pub mod shared;
pub mod threads;
pub mod turns;
pub mod version;
