//! Floor 3: what becomes of one request to the model.

pub mod admission;
pub mod body;
pub mod classify;
pub mod handshake;
pub mod instructions;
pub mod passing;
pub mod plan;
pub mod refusal;
pub mod repacking;
