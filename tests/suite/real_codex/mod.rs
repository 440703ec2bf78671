//! The relay in front of the real codex, in every pinned version.
//!
//! The model is an endpoint on loopback that does what the prompt says ([`crate::support::model`]); what codex itself
//! sends is witnessed by a tap behind it.

mod agents;
mod bytes;
mod context;
mod deaths;
mod documents;
mod early;
mod eligibility;
mod gateway;
mod injection;
mod interrupts;
mod moves;
mod oversize;
mod owned;
mod passing;
mod places_of_documents;
mod policy;
mod private_endpoint;
mod programs;
mod references;
mod refused;
mod renewals;
mod routes;
mod sandboxes;
mod scripts;
mod side_by_side;
mod supervision;
mod threads;
mod turn_kinds;
mod untouched;
mod upgrades;
mod way_out;
mod work;
