//! Floor 1: bytes into ranges and ranges into bytes, the same for any message.

pub mod compress;
pub mod edit;
pub mod envelope;
pub mod frames;
pub mod headers;
pub mod known;
pub mod lead;
pub mod lines;
pub mod literal;
mod nesting;
pub mod redact;
pub mod scan;
mod strings;
pub mod walk;
