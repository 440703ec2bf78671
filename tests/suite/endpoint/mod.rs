//! The private endpoint on the relay's binary, codex and the upstream played with raw sockets.

mod answers;
mod bodies;
mod early;
mod framing;
mod handshake;
mod http;
mod interrupts;
mod limits;
mod registrations;
mod reuse;
mod websocket;
