//! The demo's table and its verdict.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use super::stage::{Stored, WORDS};
use crate::commands::witness::{Pair, Pairing, Recorded};

/// What a demo showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything that the relay promises.
    Holds,
    /// Not everything.
    Broken,
}

/// What is judged.
pub(super) struct Evidence {
    /// Every request that codex sent.
    pub(super) sent: Vec<Arc<Recorded>>,
    /// Every request that arrived.
    pub(super) arrived: Vec<Arc<Recorded>>,
    /// Which of them is which.
    pub(super) pairing: Pairing,
    /// What codex stored.
    pub(super) stored: Stored,
}

/// What happened to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Every byte arrived as it was sent.
    Untouched,
    /// Each word of the persona once, in `instructions`, and nothing else changed.
    Injected,
    /// Anything else.
    Damaged,
}

/// One thing that must hold.
struct Check {
    holds: bool,
    text: String,
}

impl Evidence {
    /// Writes the table and the verdict.
    pub(super) fn report(&self, out: &mut dyn Write) -> io::Result<Verdict> {
        writeln!(out)?;
        writeln!(
            out,
            "{:<4} {:<9} {:<9} {:<13} {:<18} {:>10} {:>11}  {:<9} rest identical",
            "", "transport", "thread", "agent", "purpose", "from codex", "at endpoint", "outcome"
        )?;
        for (at, pair) in self.model_requests().enumerate() {
            writeln!(out, "{}", Row { at, pair })?;
        }
        writeln!(out)?;
        let checks = self.checks();
        for check in &checks {
            let mark = if check.holds { "ok    " } else { "FAILED" };
            writeln!(out, "{mark}  {}", check.text)?;
        }
        writeln!(out)?;
        if checks.iter().all(|check| check.holds) {
            writeln!(
                out,
                "The persona reached the parent's requests, and nothing else."
            )?;
            return Ok(Verdict::Holds);
        }
        writeln!(out, "Not everything held: see above.")?;
        Ok(Verdict::Broken)
    }

    fn model_requests(&self) -> impl Iterator<Item = &Pair> {
        let pairs = self.pairing.pairs.iter();
        pairs.filter(|pair| pair.arrived.is_model_request())
    }

    fn checks(&self) -> Vec<Check> {
        let (children, parents): (Vec<_>, Vec<_>) = self
            .model_requests()
            .partition(|pair| pair.arrived.is_child());
        let turns: Vec<_> = parents
            .iter()
            .filter(|pair| pair.arrived.purpose().as_deref() == Some("turn"))
            .collect();
        let with_persona = turns
            .iter()
            .filter(|pair| outcome(pair) == Outcome::Injected);
        let with_persona = with_persona.count();
        let untouched = children
            .iter()
            .filter(|pair| outcome(pair) == Outcome::Untouched);
        let untouched = untouched.count();
        let damaged = self
            .pairing
            .pairs
            .iter()
            .filter(|pair| outcome(pair) == Outcome::Damaged);
        let damaged = damaged.count();
        let (sent, arrived) = (self.sent.len(), self.arrived.len());
        let stored = &self.stored;
        vec![
            Check {
                holds: with_persona > 0 && with_persona == turns.len(),
                text: format!(
                    "the persona is exactly once in {with_persona} of the parent's {} turn requests",
                    turns.len()
                ),
            },
            Check {
                holds: untouched > 0 && untouched == children.len(),
                text: format!(
                    "{untouched} of the sub-agent's {} requests arrived untouched, byte for byte",
                    children.len()
                ),
            },
            Check {
                holds: damaged == 0,
                text: format!("{damaged} requests differ anywhere but in the inserted text"),
            },
            Check {
                holds: sent == arrived
                    && self.pairing.lost.is_empty()
                    && self.pairing.foreign.is_empty(),
                text: format!(
                    "codex sent {sent} requests, upgrades included, and {arrived} arrived"
                ),
            },
            Check {
                holds: stored.holders.is_empty() && stored.files > 0,
                text: format!(
                    "{} of the {} files ({} bytes) that codex stored hold anything of the persona",
                    stored.holders.len(),
                    stored.files,
                    grouped(stored.bytes)
                ),
            },
        ]
    }
}

struct Row<'a> {
    at: usize,
    pair: &'a Pair,
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pair { sent, arrived } = self.pair;
        let purpose = arrived.purpose();
        let (outcome, identical) = match outcome(self.pair) {
            Outcome::Untouched => ("untouched", "yes"),
            Outcome::Injected => ("injected", "yes"),
            Outcome::Damaged => ("damaged", "NO"),
        };
        write!(
            f,
            "{:<4} {:<9} {:<9} {:<13} {:<18} {:>10} {:>11}  {outcome:<9} {identical}",
            self.at + 1,
            arrived.transport().to_string(),
            short(arrived.thread().unwrap_or("-")),
            arrived.agent().unwrap_or("-"),
            purpose.as_deref().unwrap_or("-"),
            grouped(sent.body.len()),
            grouped(arrived.body.len()),
        )
    }
}

fn outcome(pair: &Pair) -> Outcome {
    if pair.is_identical() {
        return Outcome::Untouched;
    }
    let once = WORDS.iter().all(|word| {
        let before = pair.sent.body.len();
        before > 0 && pair.copies(word) == 1
    });
    if once && pair.is_same_outside_instructions() {
        return Outcome::Injected;
    }
    Outcome::Damaged
}

/// The end of an id: its beginning is the time, and alike in threads of one run.
fn short(id: &str) -> String {
    match id.char_indices().rev().nth(7) {
        Some((at, _)) if at > 0 => format!("…{}", id.get(at..).unwrap_or(id)),
        _ => id.to_owned(),
    }
}

/// A number with its thousands set apart.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
