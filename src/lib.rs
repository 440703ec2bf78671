//! codex-relay.

pub mod base;
pub mod child;
pub mod context;
pub mod exchange;
pub mod feed;
pub mod lifecycle;
pub mod relay;
pub mod session;
pub mod stdio;
pub mod telemetry;
pub mod upstream;
pub mod wire;
pub mod workspace;
