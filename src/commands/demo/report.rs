//! The demo's table and its verdict.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use super::stage::{Stored, WORDS};
use crate::commands::witness::{Pair, Pairing, Recorded};
use crate::session::methods::GENERATION_MEMBER;

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
    /// Connections to elsewhere that codex asked for and didn't get.
    pub(super) strays: usize,
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
            "{:<3} {:<4} {:<9} {:<13} {:<20} {:>10} {:>11}  {:<9} identical",
            "", "via", "thread", "agent", "purpose", "from codex", "at endpoint", "outcome"
        )?;
        for (at, pair) in self.model_requests().enumerate() {
            writeln!(out, "{}", Row { at, pair })?;
        }
        for request in &self.pairing.lost {
            writeln!(out, "sent by codex, but never arrived: {request:?}")?;
        }
        for request in &self.pairing.foreign {
            writeln!(out, "arrived, but not sent by codex: {request:?}")?;
        }
        writeln!(out)?;
        writeln!(
            out,
            "Sizes are bytes of body or message. Identical: every byte of an untouched request, and every\n\
             byte of an injected one outside the inserted text."
        )?;
        writeln!(out)?;
        let checks = self.checks();
        for check in &checks {
            let mark = if check.holds { "ok    " } else { "FAILED" };
            writeln!(out, "{mark}  {}", check.text)?;
        }
        writeln!(out)?;
        self.remark(out)?;
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

    fn remark(&self, out: &mut dyn Write) -> io::Result<()> {
        let inherits = |pair: &&Pair| {
            let metadata = pair.sent.metadata();
            pair.sent.is_child() && metadata.is_some_and(|all| all.get(GENERATION_MEMBER).is_some())
        };
        let heirs = self.model_requests().filter(inherits).count();
        if heirs > 0 {
            writeln!(
                out,
                "Requests of the sub-agent that inherited the mark of the parent's turn all the same: {heirs}."
            )?;
        }
        if self.strays > 0 {
            let strays = self.strays;
            writeln!(
                out,
                "{strays} connections to elsewhere were asked for; all were refused."
            )?;
        }
        Ok(())
    }

    fn model_requests(&self) -> impl Iterator<Item = &Pair> {
        let pairs = self.pairing.pairs.iter();
        pairs.filter(|pair| pair.arrived.is_model_request())
    }

    fn checks(&self) -> Vec<Check> {
        let (children, parents): (Vec<_>, Vec<_>) = self
            .model_requests()
            .partition(|pair| pair.arrived.is_child());
        let is_turn = |pair: &&Pair| pair.arrived.purpose().as_deref() == Some("turn");
        let turns: Vec<_> = parents.into_iter().filter(is_turn).collect();
        let (injected, turns) = (count(&turns, Outcome::Injected), turns.len());
        let (untouched, children) = (count(&children, Outcome::Untouched), children.len());
        let all: Vec<_> = self.pairing.pairs.iter().collect();
        let damaged = count(&all, Outcome::Damaged);
        vec![
            Check {
                holds: injected > 0 && injected == turns,
                text: format!(
                    "{injected} of the parent's {turns} turn requests carry the persona, once each"
                ),
            },
            Check {
                holds: untouched > 0 && untouched == children,
                text: format!(
                    "{untouched} of the sub-agent's {children} requests arrived untouched, byte for byte"
                ),
            },
            Check {
                holds: damaged == 0,
                text: format!("{damaged} requests differ anywhere but in the inserted text"),
            },
            self.headers_are_kept(),
            self.nothing_is_lost(),
            self.codex_never_knew(),
            self.nothing_is_stored(),
        ]
    }

    fn headers_are_kept(&self) -> Check {
        let changed = |pair: &&Pair| !pair.changed_headers().is_empty();
        let changed = self.pairing.pairs.iter().filter(changed).count();
        Check {
            holds: changed == 0,
            text: format!("{changed} requests differ in a header that goes from end to end"),
        }
    }

    fn nothing_is_lost(&self) -> Check {
        let Pairing { lost, foreign, .. } = &self.pairing;
        let (sent, arrived) = (self.sent.len(), self.arrived.len());
        Check {
            holds: sent == arrived && lost.is_empty() && foreign.is_empty(),
            text: format!("codex sent {sent} requests, upgrades included, and {arrived} arrived"),
        }
    }

    fn codex_never_knew(&self) -> Check {
        let known = self.sent.iter().filter(|request| holds_persona(request));
        let known = known.count();
        Check {
            holds: known == 0,
            text: format!("{known} requests held any of the persona when codex sent them"),
        }
    }

    fn nothing_is_stored(&self) -> Check {
        let Stored {
            files,
            bytes,
            holders,
        } = &self.stored;
        let (holding, bytes) = (holders.len(), grouped(*bytes));
        Check {
            holds: holders.is_empty() && *files > 0,
            text: format!(
                "{holding} of the {files} files ({bytes} bytes) that codex stored hold any of the persona"
            ),
        }
    }
}

fn count(pairs: &[&Pair], of: Outcome) -> usize {
    pairs.iter().filter(|pair| outcome(pair) == of).count()
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
            "{:<3} {:<4} {:<9} {:<13} {:<20} {:>10} {:>11}  {outcome:<9} {identical}",
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
    let once = WORDS.iter().all(|word| pair.copies(word) == 1);
    if once && pair.is_same_outside_instructions() {
        return Outcome::Injected;
    }
    Outcome::Damaged
}

fn holds_persona(request: &Recorded) -> bool {
    let body = request.plain().unwrap_or_default();
    let holds = |word: &&str| memchr::memmem::find(&body, word.as_bytes()).is_some();
    WORDS.iter().any(holds)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::witness::{Head, Kind, pair};

    fn request(instructions: &str, metadata: &str) -> Arc<Recorded> {
        let body = format!(
            r#"{{"type":"response.create",{instructions}"client_metadata":{{"x-codex-turn-metadata":"{{\"request_kind\":\"turn\",{metadata}}}"}}}}"#
        );
        let head = Head::default();
        Arc::new(Recorded::new(0, 0, Kind::Message, head, body.into()))
    }

    fn judge(child_arrives_with: &str) -> (Verdict, String) {
        let all = WORDS.join(" ");
        let injected = format!(r#""instructions":"{all}","#);
        let (parent, child) = (
            r#"\"thread_id\":\"a\""#,
            r#"\"thread_id\":\"b\",\"parent_thread_id\":\"a\""#,
        );
        let sent = vec![request("", parent), request("", child)];
        let arrived = vec![
            request(&injected, parent),
            request(child_arrives_with, child),
        ];
        let pairing = pair(&sent, &arrived, |_| true);
        let stored = Stored {
            files: 1,
            ..Stored::default()
        };
        let evidence = Evidence {
            sent,
            arrived,
            pairing,
            stored,
            strays: 0,
        };
        let mut out = Vec::new();
        let verdict = evidence.report(&mut out).unwrap();
        (verdict, String::from_utf8(out).unwrap())
    }

    #[test]
    fn verdict_holds_only_if_the_child_was_left_alone() {
        let (verdict, text) = judge("");
        assert_eq!(verdict, Verdict::Holds, "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
        let leak = format!(r#""instructions":"{}","#, WORDS.join(" "));
        let (verdict, text) = judge(&leak);
        assert_eq!(verdict, Verdict::Broken, "{text}");
    }

    #[test]
    fn numbers_and_ids_are_readable() {
        let numbers = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(numbers, ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(short("0123456789abcdef"), "…89abcdef");
        assert_eq!(short("01234567"), "01234567");
    }
}
