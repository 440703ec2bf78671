//! Floor 6: the drivers of the three standard streams.

mod aside;
pub mod errors;
pub mod inbound;
pub mod outbound;
pub mod own;
pub mod pipe;
pub mod taking;
pub mod waiting;
pub mod warner;
pub mod writer;
