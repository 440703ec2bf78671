//! A body that gets its context while it passes: decided by its headers, confirmed by its own
//! metadata before its last byte goes on.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::base::limits::{CONFIRMED_METADATA_BYTES, HELD_BODY_BYTES};
use crate::base::reason::Reason;
use crate::context::snapshot::Snapshot;
use crate::exchange::body::Body;
use crate::exchange::classify::{Class, Identity};
use crate::exchange::instructions::splice;
use crate::session::parent::decide::ParentRequest;
use crate::wire::edit::pieces;
use crate::wire::scan::{self, Found};
use crate::wire::walk::{Event, Walk};

/// One body on its way.
#[derive(Debug)]
pub struct Passing {
    headers: Identity,
    request: ParentRequest,
    snapshot: Arc<Snapshot>,
    walk: Walk,
    told: Vec<Event>,
    member: Member,
    /// The parts that wait for the edit to be known; they are the body's beginning.
    held: Vec<Bytes>,
    held_bytes: usize,
    instructions: Found,
    /// The member has begun behind which codex writes no `instructions` any more.
    has_input: bool,
    /// Where a first member would stand, and whether there is none yet.
    first: usize,
    is_empty: bool,
    /// What the body gains, once it is known.
    growth: Option<usize>,
    /// The last byte that came: it waits for the next one, or for the end. By itself, so that it keeps
    /// no buffer from being used again.
    last: Option<u8>,
    /// Every copy of `client_metadata`.
    metadata: Vec<Vec<u8>>,
}

/// The member whose value passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    /// The one that is edited.
    Instructions,
    /// The one that says whose the body is.
    Metadata,
    /// The one that all others are short beside.
    Input,
    Other,
}

/// Why a body doesn't pass to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It must not go on.
    Refuse(Reason),
    /// It can't be edited in passing; read whole it may. Nothing of it has gone on.
    Unfit,
    /// It opens to more than the limit with its context.
    TooLarge,
    /// It has `instructions` where codex writes none. Its beginning has gone on without them, its end
    /// must not: sent again and read whole, it can be edited.
    Late,
}

impl Passing {
    /// Takes the body of `request`, which `headers` alone have named.
    pub fn new(headers: Identity, request: ParentRequest, snapshot: Arc<Snapshot>) -> Self {
        Self {
            headers,
            request,
            snapshot,
            walk: Walk::new(),
            told: Vec::new(),
            member: Member::Other,
            held: Vec::new(),
            held_bytes: 0,
            instructions: Found::default(),
            has_input: false,
            first: 0,
            is_empty: true,
            growth: None,
            last: None,
            metadata: Vec::new(),
        }
    }

    /// Takes the next part and appends what may go on to `out`.
    ///
    /// # Errors
    /// Where the body can't pass. Nothing more of it may go on then.
    pub fn push(&mut self, part: Bytes, out: &mut VecDeque<Bytes>) -> Result<(), Stop> {
        let begin = self.walk.position();
        let walked = self.walk.push(&part, &mut self.told);
        if self.growth.is_none() {
            self.held_bytes += part.len();
            self.held.push(part.clone());
        }
        self.learn(begin, &part)?;
        walked.map_err(|_| Stop::Refuse(Reason::BodyInvalid))?;
        if self.growth.is_some() {
            self.release(part, out);
            return Ok(());
        }
        let is_open = self.member == Member::Instructions;
        let is_found = self.instructions.count > 0;
        if !is_open && (is_found || self.has_input) {
            return self.settle(out);
        }
        let most = if is_open {
            4 * HELD_BODY_BYTES
        } else {
            HELD_BODY_BYTES
        };
        if self.held_bytes > most {
            return Err(Stop::Unfit);
        }
        Ok(())
    }

    /// The parts that were held, all that came so far, for whoever reads the body whole.
    pub fn into_held(self) -> Vec<Bytes> {
        self.held
    }

    /// How many bytes the body gains, once that is known: from then on parts go on.
    pub fn growth(&self) -> Option<usize> {
        self.growth
    }

    /// Takes the end of the body: its last byte goes on where everything in it is as the headers
    /// said.
    ///
    /// # Errors
    /// Where it isn't.
    pub fn finish(&mut self, out: &mut VecDeque<Bytes>) -> Result<(), Stop> {
        if !self.walk.is_over() {
            return Err(Stop::Refuse(Reason::BodyInvalid));
        }
        let mut identity = std::mem::take(&mut self.headers);
        identity.read_copies(&self.metadata);
        match identity.class() {
            Class::Parent(request) if request == self.request => {}
            Class::Parent(_) | Class::Untouched => {
                return Err(Stop::Refuse(Reason::MetadataContradictory));
            }
            Class::TooLong(_) => return Err(Stop::Refuse(Reason::MetadataUnrecognized)),
            Class::Unreadable(reason) => return Err(Stop::Refuse(reason)),
        }
        if self.growth.is_none() {
            return Err(Stop::Unfit);
        }
        out.extend(self.last.take().map(alone));
        Ok(())
    }

    /// Goes through what the walk told of `part`, which begins at byte `begin` of the body.
    fn learn(&mut self, begin: usize, part: &[u8]) -> Result<(), Stop> {
        // Where in the body the value begins, as far as it is in this part.
        let mut from = begin;
        for event in std::mem::take(&mut self.told) {
            match event {
                Event::Begin(at) => self.first = at,
                Event::Key(key) => {
                    self.is_empty = false;
                    self.member = Member::called(&key);
                }
                Event::Value(at) => {
                    from = at;
                    self.begin(at)?;
                }
                Event::ValueEnd(at) => {
                    self.keep(part, from.saturating_sub(begin)..at.saturating_sub(begin))?;
                    if let (Member::Instructions, Some(value)) =
                        (self.member, &mut self.instructions.last)
                    {
                        value.end = at;
                    }
                    self.member = Member::Other;
                }
            }
        }
        self.keep(part, from.saturating_sub(begin)..part.len())
    }

    fn begin(&mut self, at: usize) -> Result<(), Stop> {
        match self.member {
            Member::Instructions => {
                self.instructions.count += 1;
                if self.instructions.count > 1 {
                    return Err(Stop::Refuse(Reason::BodyInvalid));
                }
                if self.growth.is_some() {
                    return Err(Stop::Late);
                }
                self.instructions.last = Some(at..at);
            }
            Member::Metadata => self.metadata.push(Vec::new()),
            Member::Input => self.has_input = true,
            Member::Other => {}
        }
        Ok(())
    }

    /// Keeps what the body says of itself.
    fn keep(&mut self, part: &[u8], range: Range<usize>) -> Result<(), Stop> {
        if self.member != Member::Metadata {
            return Ok(());
        }
        let value = part.get(range).unwrap_or_default();
        let kept: usize = self.metadata.iter().map(Vec::len).sum();
        if kept + value.len() > CONFIRMED_METADATA_BYTES {
            return Err(match self.growth {
                Some(_) => Stop::Refuse(Reason::MetadataUnrecognized),
                None => Stop::Unfit,
            });
        }
        if let Some(copy) = self.metadata.last_mut() {
            copy.extend_from_slice(value);
        }
        Ok(())
    }

    /// Edits what was held, and lets it go.
    fn settle(&mut self, out: &mut VecDeque<Bytes>) -> Result<(), Stop> {
        let held = joined(std::mem::take(&mut self.held));
        let found = Body {
            instructions: self.instructions.clone(),
            metadata: Vec::new(),
            is_create: false,
            first: self.first,
            is_empty: self.is_empty,
            fault: None,
        };
        let edit = splice(&held, &found, &self.snapshot).map_err(Stop::Refuse)?;
        self.growth = Some(edit.with.len().saturating_sub(edit.range.len()));
        for piece in pieces(&held, vec![edit]) {
            self.release(piece, out);
        }
        Ok(())
    }

    /// Lets `part` go, but for its last byte.
    fn release(&mut self, mut part: Bytes, out: &mut VecDeque<Bytes>) {
        let Some(last) = part.last().copied() else {
            return;
        };
        out.extend(self.last.replace(last).map(alone));
        part.truncate(part.len() - 1);
        if !part.is_empty() {
            out.push_back(part);
        }
    }
}

impl Member {
    fn called(key: &[u8]) -> Self {
        let name = scan::name(key, &(0..key.len()));
        let is = |wanted: &str| *name == *wanted.as_bytes();
        if is("instructions") {
            Self::Instructions
        } else if is("client_metadata") {
            Self::Metadata
        } else if is("input") {
            Self::Input
        } else {
            Self::Other
        }
    }
}

fn alone(byte: u8) -> Bytes {
    Bytes::copy_from_slice(&[byte])
}

fn joined(parts: Vec<Bytes>) -> Bytes {
    let mut parts = parts.into_iter();
    let first = parts.next().unwrap_or_default();
    if parts.len() == 0 {
        return first;
    }
    let mut whole = BytesMut::from(&first[..]);
    parts.for_each(|part| whole.extend_from_slice(&part));
    whole.freeze()
}

#[cfg(test)]
#[path = "passing_tests.rs"]
mod tests;
