//! codex-relay: a sidecar for `codex app-server` that gives an agent its context in the model
//! requests of the parent thread alone.
//!
//! # Five ideas
//! 1. Decide below, act above: floors 0 to 3 are pure, floors 4 and up act and never decide.
//! 2. Bytes are forwarded, not re-made: a change is an [`wire::edit::Edit`], all else is bit-identical.
//! 3. Everything has a bound ([`base::limits`]) and an owner.
//! 4. One message, one verdict: each machine answers an input with an exhaustive enum.
//! 5. The tree is the manual: a floor is a folder, and a test keeps it true.
//!
//! # The floors
//! | floor | module | what stands there |
//! |---|---|---|
//! | 0 | [`base`] | words and bounds |
//! | 1 | [`wire`], [`context`], [`control`] | bytes and ranges; what the model should see; what is spoken as `relay/…` |
//! | 2 | [`session`], [`lifecycle`] | what is remembered between messages, and between moments |
//! | 3 | [`exchange`] | what becomes of one request to the model |
//! | 4 | [`telemetry`], [`workspace`], [`upstream`], [`child`] | log, files, the way out, codex |
//! | 5 | [`budget`], [`feed`] | the memory for messages in flight; where contexts come from |
//! | 6 | [`stdio`], [`relay`] | the drivers of the streams and of the private endpoint |
//! | 7 | [`config`] | arguments and environment |
//! | 8 | [`commands`] | the demo and its witnesses |
//! | 9 | [`app`] | everything put together |
//!
//! # The flows
//! ```text
//! (1) client ─▶ stdio::inbound ─▶ session::intercept ─▶ [feed] ─▶ wire::edit ─▶ codex's stdin
//! (2) codex's stdout ─▶ stdio::outbound ─▶ session::observe ─▶ wire::redact ─▶ client
//! (3) codex ─▶ relay::{http,websocket} ─▶ exchange::{admission,classify,plan,instructions} ─▶ upstream
//!                                       ◀──────────── bytes as they come ◀────────────────
//! (4) files ─▶ workspace::load ─▶ context::{budget,render} ─▶ Snapshot ─▶ feed
//! (5) signals, end of stdin, codex's exit, deadline ─▶ lifecycle::machine ─▶ child::group
//! ```

pub mod app;
pub mod base;
pub mod budget;
pub mod child;
pub mod commands;
pub mod config;
pub mod context;
pub mod control;
pub mod exchange;
pub mod feed;
pub mod lifecycle;
pub mod relay;
pub mod session;
pub mod stdio;
pub mod telemetry;
pub mod upstream;
pub mod wire;
pub mod workspace;
