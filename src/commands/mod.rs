//! Small commands beside the relay itself, and the witnesses that they and the tests stand on.

pub mod endpoint;
pub mod events;
pub mod journal;
mod link;
pub mod pairing;
mod pieces;
pub mod record;
pub mod reply;
mod sockets;
pub mod tap;
pub mod tape;
