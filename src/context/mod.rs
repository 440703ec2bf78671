//! Floor 1: what the model should see, as text with bounds.

pub mod budget;
pub mod fragment;
pub mod render;
pub mod snapshot;
