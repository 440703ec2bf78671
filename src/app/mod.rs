//! Floor 8: everything put together.

pub mod dispatch;
#[expect(unsafe_code, reason = "mallopt and malloc_trim, and only there")]
mod heap;
pub mod parts;
pub mod process;
pub mod run;
