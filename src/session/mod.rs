//! Floor 2: what must be remembered between two messages.

pub mod given;
pub mod instructions;
pub mod intercept;
pub mod machine;
pub mod methods;
pub mod observe;
pub mod own;
pub mod parent;
pub mod parting;
pub mod pending;
pub mod reading;
pub mod route;
pub mod shared;
pub mod turnstile;
pub mod version;
mod warnings;
