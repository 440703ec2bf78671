//! codex-relay.

pub mod wire;
