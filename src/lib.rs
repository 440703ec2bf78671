//! codex-relay.

pub mod base;
pub mod context;
pub mod lifecycle;
pub mod session;
pub mod wire;
