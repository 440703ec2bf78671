//! The private endpoint on the relay's binary, codex and the upstream played with raw sockets.

mod early;
mod framing;
mod handshake;
mod http;
mod interrupts;
mod limits;
mod registrations;
mod websocket;
