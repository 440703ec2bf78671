//! Small commands beside the relay itself, and the witnesses that they and the tests stand on.

pub mod demo;
pub mod doctor;
pub mod endpoint;
pub mod init;
pub mod render;
pub mod tap;
pub mod witness;
