//! Floor 1: bytes into ranges and ranges into bytes, the same for any message.

pub mod frames;
