//! Which request that codex sent is which request that arrived, and what happened to it between.
//!
//! It compares bytes and reads JSON by `serde_json` alone: no code of the relay is its own judge.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::record::{Kind, Recorded};

/// Every request of two accounts, matched.
#[derive(Clone, Debug, Default)]
pub struct Pairing {
    /// Requests that were sent and arrived, in the order of arrival.
    pub pairs: Vec<Pair>,
    /// Requests that were sent and never arrived.
    pub lost: Vec<Arc<Recorded>>,
    /// Requests that arrived and that codex never sent.
    pub foreign: Vec<Arc<Recorded>>,
}

/// One request, at both ends.
#[derive(Clone, Debug)]
pub struct Pair {
    /// As codex sent it.
    pub sent: Arc<Recorded>,
    /// As it arrived.
    pub arrived: Arc<Recorded>,
}

/// The one stretch of a body in which two accounts differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What codex sent there.
    pub removed: Bytes,
    /// What arrived there.
    pub inserted: Bytes,
}

/// Matches the requests that pass `which`, thread by thread.
///
/// A request is matched to the first one of its transport and thread that differs in one stretch
/// at most, and there in nothing but `instructions`; what is left is matched in order.
pub fn pair(
    sent: &[Arc<Recorded>],
    arrived: &[Arc<Recorded>],
    which: impl Fn(&Recorded) -> bool,
) -> Pairing {
    let mut waiting: BTreeMap<_, Vec<Arc<Recorded>>> = BTreeMap::new();
    for request in sent.iter().filter(|request| which(request)) {
        let line = waiting.entry(key(request)).or_default();
        line.push(Arc::clone(request));
    }
    let mut slots: Vec<_> = arrived
        .iter()
        .filter(|request| which(request))
        .map(|request| (Arc::clone(request), None))
        .collect();
    for strict in [true, false] {
        for (arrived, sent) in &mut slots {
            let Some(line) = waiting.get_mut(&key(arrived)).filter(|_| sent.is_none()) else {
                continue;
            };
            let same = |sent: &Arc<Recorded>| !strict || is_same(sent, arrived);
            *sent = line.iter().position(same).map(|at| line.remove(at));
        }
    }
    let mut pairing = Pairing::default();
    for (arrived, sent) in slots {
        match sent {
            Some(sent) => pairing.pairs.push(Pair { sent, arrived }),
            None => pairing.foreign.push(arrived),
        }
    }
    pairing.lost = waiting.into_values().flatten().collect();
    pairing.lost.sort_by_key(|request| request.number);
    pairing
}

impl Pair {
    /// Says whether body or payload are the same bytes on the wire, compression included.
    pub fn is_identical(&self) -> bool {
        self.sent.body == self.arrived.body
    }

    /// Counts the copies of a text in the `instructions` that arrived.
    pub fn copies(&self, text: &str) -> usize {
        let instructions = self.arrived.instructions().unwrap_or_default();
        instructions.matches(text).count()
    }

    /// The stretch in which the bodies differ, both inflated; nothing if they don't, or can't be read.
    pub fn change(&self) -> Option<Change> {
        change(&self.sent, &self.arrived)
    }

    /// Says whether the bodies are the same bytes but for one stretch, and the same JSON but for `instructions`.
    pub fn is_same_outside_instructions(&self) -> bool {
        is_same(&self.sent, &self.arrived)
    }

    /// Names the end-to-end headers that differ in a value, or are at one end only.
    pub fn changed_headers(&self) -> Vec<String> {
        let gather = |request: &Recorded| {
            let mut headers: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
            for (name, value) in &request.head.headers {
                if !of_this_hop(name) {
                    headers.entry(name.clone()).or_default().push(value.clone());
                }
            }
            headers
        };
        let (sent, arrived) = (gather(&self.sent), gather(&self.arrived));
        let mut changed: Vec<_> = sent.keys().chain(arrived.keys()).cloned().collect();
        changed.sort();
        changed.dedup();
        changed.retain(|name| sent.get(name) != arrived.get(name));
        changed
    }
}

fn key(request: &Recorded) -> (Kind, Option<String>) {
    (request.kind, request.thread().map(str::to_owned))
}

fn is_same(sent: &Recorded, arrived: &Recorded) -> bool {
    if sent.body == arrived.body {
        return true;
    }
    let (Some(before), Some(after)) = (sent.json(), arrived.json()) else {
        return false;
    };
    let (Some(before), Some(after)) = (before.as_object(), after.as_object()) else {
        return false;
    };
    let outside = |(name, _): &(&String, _)| name.as_str() != "instructions";
    before
        .iter()
        .filter(outside)
        .eq(after.iter().filter(outside))
        && change(sent, arrived).is_some_and(|change| change.is_of_instructions(sent))
}

impl Change {
    /// Says whether nothing was taken away but an empty or null `instructions`.
    fn is_of_instructions(&self, sent: &Recorded) -> bool {
        if self.removed.is_empty() {
            return true;
        }
        let before = sent.json().and_then(|json| json.get("instructions"));
        before.is_some_and(serde_json::Value::is_null) && b"null".ends_with(&self.removed)
    }
}

fn change(sent: &Recorded, arrived: &Recorded) -> Option<Change> {
    let (before, after) = (sent.plain()?, arrived.plain()?);
    if before == after {
        return None;
    }
    let start = common(before.iter(), after.iter());
    let shorter = before.len().min(after.len());
    let end = common(before.iter().rev(), after.iter().rev()).min(shorter - start);
    let middle = |body: &Bytes| {
        let range: Range<usize> = start..body.len() - end;
        body.slice(range)
    };
    Some(Change {
        removed: middle(&before),
        inserted: middle(&after),
    })
}

fn common<'a>(one: impl Iterator<Item = &'a u8>, other: impl Iterator<Item = &'a u8>) -> usize {
    one.zip(other)
        .take_while(|(one, other)| one == other)
        .count()
}

/// Headers that each hop writes anew.
fn of_this_hop(name: &str) -> bool {
    const NAMES: [&str; 8] = [
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    NAMES.contains(&name) || name.starts_with("sec-websocket-") || name.starts_with("proxy-")
}

#[cfg(test)]
mod tests {
    use super::super::record::Head;
    use super::*;

    fn requests(bodies: &[String]) -> Vec<Arc<Recorded>> {
        let make = |(number, body): (usize, &String)| {
            let body = Bytes::copy_from_slice(body.as_bytes());
            let head = Head {
                method: "GET".to_owned(),
                ..Head::default()
            };
            Arc::new(Recorded::new(number, 0, Kind::Message, head, body))
        };
        bodies.iter().enumerate().map(make).collect()
    }

    fn body(instructions: &str, thread: &str, step: usize) -> String {
        format!(
            r#"{{"type":"response.create",{instructions}"input":[{step}],"client_metadata":{{"x-codex-turn-metadata":"{{\"thread_id\":\"{thread}\"}}"}}}}"#
        )
    }

    #[test]
    fn requests_are_matched_around_one_that_was_refused() {
        let sent = [
            body("", "a", 1),
            body("", "kid", 1),
            body("", "a", 2),
            body(r#""instructions":"base","#, "a", 3),
            body(r#""instructions":null,"#, "a", 4),
        ];
        let arrived = [
            body("", "kid", 1),
            body(r#""instructions":"SOUL","#, "a", 2),
            body(r#""instructions":"base\n\nSOUL","#, "a", 3),
            body(r#""instructions":"SOUL","#, "a", 4),
            body("", "b", 1),
        ];
        let pairing = pair(&requests(&sent), &requests(&arrived), |_| true);
        let numbers: Vec<_> = pairing
            .pairs
            .iter()
            .map(|pair| (pair.sent.number, pair.arrived.number, pair.copies("SOUL")))
            .collect();
        assert_eq!(numbers, [(1, 0, 0), (2, 1, 1), (3, 2, 1), (4, 3, 1)]);
        assert!(pairing.pairs[0].is_identical());
        assert!(pairing.pairs.iter().all(Pair::is_same_outside_instructions));
        assert_eq!(pairing.lost[0].number, 0);
        assert_eq!(pairing.foreign[0].number, 4);
    }

    #[test]
    fn change_outside_the_instructions_is_seen() {
        let sent = [body("", "a", 1)];
        let arrived = [body(r#""instructions":"SOUL","#, "a", 2)];
        let pairing = pair(&requests(&sent), &requests(&arrived), |_| true);
        assert!(!pairing.pairs[0].is_same_outside_instructions());
    }
}
