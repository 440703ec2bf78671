//! A model endpoint on loopback: it writes down what arrives and answers from a script.

pub mod events;
mod journal;
mod reply;
mod server;
mod sockets;

pub use journal::{Ended, Journal, Summary, WaitError};
pub use reply::{OverHttp, Reply, Script, Signal, Step, Upgrade};
pub use server::Endpoint;
