//! Floor 1: what the model should see, as text with bounds.

pub mod account;
pub mod agents;
pub mod budget;
pub mod compose;
pub mod digest;
pub mod fragment;
pub mod front_matter;
pub mod given;
pub mod orders;
pub mod reference;
pub mod skills;
pub mod snapshot;
pub mod supplier;
pub mod turn_kind;
pub mod wish;
