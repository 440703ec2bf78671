//! Floor 1: what is spoken in the relay's own name space, `relay/…`, as types.
//!
//! `proto/relay.schema.json` is made of them, and the suite reads every answer back into them.

pub mod account;
pub mod answers;
pub mod params;
pub mod schema;
