//! Requests as they were seen, and which of them belong together.

mod pairing;
mod record;

pub use pairing::{Change, Pair, Pairing, pair};
pub use record::{Head, Kind, Recorded, Transport};
