//! Floor 7: from argv and environment to the configuration of every floor below.

pub mod args;
mod bearer;
pub mod env;
pub mod feed;
pub mod file;
pub mod settings;
pub mod standin;
pub mod way_out;
