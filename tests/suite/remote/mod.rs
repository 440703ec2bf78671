//! Commands and files on another machine, codex and the relay on this one; and a relay that is itself far away.
//!
//! The other machine is a sandbox ([`far`]): a network, processes and a file system of its own. The way there is a
//! bridge ([`bridge`]) that writes down every message, so that it can be searched for what belongs here.

mod bridge;
mod confined;
mod cuts;
mod examples;
mod far;
mod model;
mod orders;
mod outages;

mod pipes;
mod placement;
mod search;
mod ssh;
