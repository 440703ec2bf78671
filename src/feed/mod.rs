//! Floor 5: where contexts come from.

pub mod history;
pub mod orders;
pub mod source;
