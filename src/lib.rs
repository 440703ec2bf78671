//! codex-relay.

pub mod base;
pub mod commands;
pub mod context;
pub mod exchange;
pub mod lifecycle;
pub mod session;
pub mod wire;
