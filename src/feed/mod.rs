//! Floor 5: where contexts come from.

pub mod source;
