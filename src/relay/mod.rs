//! Floor 6: the drivers of the private endpoint.

pub mod body;
mod cut;
pub mod down;
mod frames;
mod gather;
pub mod http;
pub mod judge;
pub mod listener;
pub mod onward;
mod passing;
mod peer;
pub mod repack;
mod reply;
pub mod up;
pub mod upgrade;
mod upload;
pub mod websocket;
mod zip;
