//! The whole test suite, one binary: it links once.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[macro_use]
mod support;

mod architecture;
mod endpoint;
mod fixtures;
mod fuzzing;
mod protocol;
mod readme;
mod real_codex;
mod remote;
mod requests;
mod standin;
mod stdio;
mod way_out;
mod workspaces;
