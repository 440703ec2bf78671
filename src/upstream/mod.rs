//! Floor 4: the way to the model.

pub mod client;
pub mod destination;
pub mod fault;
pub mod tls;
