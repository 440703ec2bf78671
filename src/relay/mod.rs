//! Floor 6: the drivers of the private endpoint.

pub mod body;
mod cut;
pub mod down;
mod gather;
pub mod http;
pub mod judge;
mod lanes;
pub mod listener;
mod masking;
pub mod onward;
mod passing;
mod peer;
pub mod repack;
mod reply;
pub mod shared;
pub mod up;
pub mod upgrade;
mod upload;
pub mod websocket;
mod zip;
