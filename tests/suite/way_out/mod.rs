//! The way out, with real proxies and real certificates on loopback.

mod connections;
mod doctor;
mod early;
mod mistakes;
