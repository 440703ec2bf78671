//! The parts of the rig.

pub(crate) mod bodies;
pub(crate) mod client;
#[expect(dead_code, reason = "one of its functions is for tests alone")]
#[path = "../../tests/suite/support/debian.rs"]
pub(crate) mod debian;
pub(crate) mod goals;
pub(crate) mod latency;
pub(crate) mod memory;
pub(crate) mod model;
pub(crate) mod nginx;
pub(crate) mod process;
pub(crate) mod random;
pub(crate) mod relay;
pub(crate) mod report;
pub(crate) mod sessions;
pub(crate) mod sockets;
pub(crate) mod stage;
pub(crate) mod standin;
pub(crate) mod stats;
pub(crate) mod stdio;
pub(crate) mod streams;
pub(crate) mod tls;
pub(crate) mod zip;
