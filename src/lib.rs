//! codex-relay.

pub mod base;
pub mod wire;
