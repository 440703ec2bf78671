//! Floor 8: everything put together.

pub mod dispatch;
pub mod parts;
pub mod run;
