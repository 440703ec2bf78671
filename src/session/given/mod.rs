//! What the client itself gives: contexts, their registrations, and what it asks about them.

pub mod given_params;
pub mod registrations;
pub mod relay_member;
pub mod relay_methods;
pub(in crate::session) mod status;
