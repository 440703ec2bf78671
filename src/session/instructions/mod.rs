//! The developer instructions of threads: what they hold, what the model was told, and how they are
//! renewed.

pub(in crate::session) mod commands;
pub mod documents;
pub mod errands;
pub mod heartbeat;
pub mod ledger;
pub mod need;
pub mod opening;
pub mod orders;
pub mod places;
mod refused;
pub mod renewal;
pub mod sandbox;
pub mod since;
pub mod strays;
pub mod told;
pub(in crate::session) mod updates;
pub mod work;
