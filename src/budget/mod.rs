//! Floor 5: the memory for messages in flight, one budget for all.

pub mod share;
