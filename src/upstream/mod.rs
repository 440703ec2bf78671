//! Floor 4: the way to the model.

pub mod bearer;
pub mod calls;
pub mod client;
pub mod destination;
pub mod dial;
pub mod fault;
pub mod hearing;
pub mod portion;
pub mod proxy;
pub mod resolve;
pub mod roots;
pub mod stream;
pub mod tunnel;
pub mod verify;
