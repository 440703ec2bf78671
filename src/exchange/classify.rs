//! Who sent a model request, and what for: the carriers of its metadata, put together.
//!
//! Sources: `client_metadata["x-codex-turn-metadata"]` of the body and the header of the same name
//! hold the same JSON object; flat members and headers repeat some of it. Names and versions:
//! `proto/model-request.toml`.

use std::ops::Range;

use http::HeaderMap;

use crate::base::ids::{Generation, ThreadId, TurnId};
use crate::base::limits::MAX_METADATA_BYTES;
use crate::base::reason::Reason;
use crate::exchange::body::Body;
use crate::session::methods::GENERATION_MEMBER;
use crate::session::parent::decide::{ParentRequest, Purpose};
use crate::session::parent::tally::{About, Counted};
use crate::wire::envelope::text;
use crate::wire::headers::{PARENT_THREAD, SUBAGENT, TURN_METADATA};
use crate::wire::literal;
use crate::wire::scan::{self, Members, ScanError, is_null, string_within};

/// What a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Class {
    /// A step or prewarm of a thread without a parent.
    Parent(ParentRequest),
    /// Its metadata is a text of so many bytes, more than is read.
    TooLong(usize),
    /// We can't tell.
    Unreadable(Reason),
    /// A child's, a compaction or a memory job: never touched.
    Untouched,
}

/// What the carriers say, first to last.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, not states"
)]
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// A mark of a child, or of compaction or memory: whatever else is said.
    marked: bool,
    /// Two carriers disagree.
    contradictory: bool,
    /// A carrier couldn't be read.
    unreadable: bool,
    /// The size of metadata over the bound.
    too_long: Option<usize>,
    /// Among the marks is one of a child.
    is_child: bool,
    /// Whose child it is.
    parent: Option<String>,
    /// The thread and the turn that it goes back to in the end: of accounts alone.
    root: Option<String>,
    root_turn: Option<String>,
    /// The body's own metadata was there.
    in_body: bool,
    thread: Option<String>,
    turn: Option<String>,
    kind: Option<String>,
    generation: Option<String>,
}

impl Identity {
    /// Reads the headers of an HTTP request.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let mut identity = Self::default();
        for name in [SUBAGENT, PARENT_THREAD] {
            let is_marked = headers.get_all(name).iter().any(|value| !value.is_empty());
            identity.mark_child(is_marked);
        }
        let parent = headers
            .get(PARENT_THREAD)
            .and_then(|value| value.to_str().ok());
        identity.parent = parent.filter(|id| !id.is_empty()).map(str::to_owned);
        for value in headers.get_all(TURN_METADATA) {
            identity.read_metadata(value.as_bytes());
        }
        identity
    }

    /// Whether the request is known to pass untouched, whatever its body says.
    pub fn is_marked(&self) -> bool {
        self.marked
    }

    /// What is counted of the request, whatever becomes of it.
    pub fn about(&self) -> About {
        let purpose = match self.kind.as_deref() {
            _ if self.is_child => Counted::Child,
            Some("turn") => Counted::Turn,
            Some("prewarm") => Counted::Prewarm,
            Some("compaction") => Counted::Compaction,
            Some("memory") => Counted::Memory,
            Some(_) | None => Counted::Other,
        };
        let (thread, turn) = if self.is_child {
            (&self.parent, &self.root_turn)
        } else {
            (&self.thread, &self.turn)
        };
        About {
            thread: thread.clone(),
            root: self.root.clone().filter(|_| self.is_child),
            turn: turn.clone(),
            is_of_client: self.generation.is_some(),
            purpose,
        }
    }

    /// What the head of a WebSocket says of its messages: whose they are. What it says of a turn and a
    /// purpose is of the moment when it was opened.
    pub fn about_messages(&self) -> About {
        let about = self.about();
        let purpose = match about.purpose {
            Counted::Child => Counted::Child,
            Counted::Turn
            | Counted::Prewarm
            | Counted::Compaction
            | Counted::Memory
            | Counted::Other => Counted::Other,
        };
        About {
            turn: None,
            is_of_client: false,
            purpose,
            ..about
        }
    }

    /// Thread and turn, where both are told, whoever the request belongs to.
    pub fn named_turn(&self) -> Option<(&str, &str)> {
        Some((self.thread.as_deref()?, self.turn.as_deref()?))
    }

    /// The thread that the headers name, unless they carry a mark of a child. Only a hint: a
    /// WebSocket's headers are those of the moment when it was opened.
    pub fn hinted_thread(&self) -> Option<&str> {
        self.thread.as_deref().filter(|_| !self.marked)
    }

    /// Reads the metadata of a body or message.
    pub fn read_body(&mut self, bytes: &[u8], body: &Body) {
        for range in &body.metadata {
            if self.read_client_metadata(bytes, range.start).is_err() {
                self.unreadable = true;
            }
        }
    }

    /// Reads the metadata of a body that has passed, each copy of the map on its own.
    pub fn read_copies(&mut self, copies: &[Vec<u8>]) {
        for copy in copies {
            if self.read_client_metadata(copy, 0).is_err() {
                self.unreadable = true;
            }
        }
    }

    /// The request that the headers alone name, to be confirmed by the body.
    pub fn claimed(&self) -> Option<ParentRequest> {
        let mut claimed = self.clone();
        claimed.in_body = true;
        match claimed.class() {
            Class::Parent(request) => Some(request),
            Class::TooLong(_) | Class::Unreadable(_) | Class::Untouched => None,
        }
    }

    /// Puts it all together: rows 1, 2 and 7 of the interface's table.
    pub fn class(self) -> Class {
        if self.marked {
            return Class::Untouched;
        }
        if let Some(bytes) = self.too_long {
            return Class::TooLong(bytes);
        }
        if self.contradictory {
            return Class::Unreadable(Reason::MetadataContradictory);
        }
        let purpose = match self.kind.as_deref() {
            Some("turn") => Purpose::Turn,
            Some("prewarm") => Purpose::Prewarm,
            _ => return Class::Unreadable(Reason::MetadataUnrecognized),
        };
        match self.thread.and_then(ThreadId::new) {
            Some(thread) if self.in_body && !self.unreadable => Class::Parent(ParentRequest {
                thread,
                turn: self.turn.and_then(TurnId::new),
                generation: self.generation.and_then(Generation::new),
                purpose,
            }),
            _ => Class::Unreadable(Reason::MetadataUnrecognized),
        }
    }

    fn mark_child(&mut self, is_marked: bool) {
        self.is_child |= is_marked;
        self.marked |= is_marked;
    }

    fn note_parent(&mut self, parent: Option<String>) {
        let parent = parent.filter(|id| !id.is_empty());
        self.parent = self.parent.take().or(parent);
    }

    /// Reads the map at byte `at`: flat members and the nested metadata.
    fn read_client_metadata(&mut self, bytes: &[u8], at: usize) -> Result<(), ScanError> {
        let mut members = Members::at(bytes, at)?;
        while let Some(member) = members.next_member()? {
            let name = scan::name(bytes, &member.key);
            let is = |wanted: &str| *name == *wanted.as_bytes();
            if is(TURN_METADATA) {
                self.read_string(bytes, &member.value);
            } else if is(SUBAGENT) || is(PARENT_THREAD) {
                // A mark that isn't text is a mark all the same.
                let value = text(bytes, &member.value);
                self.mark_child(value.as_deref() != Some(""));
                if is(PARENT_THREAD) {
                    self.note_parent(value);
                }
            } else if is("thread_id") {
                let value = text(bytes, &member.value);
                agree(&mut self.thread, value, &mut self.contradictory);
            } else if is("turn_id") {
                let value = text(bytes, &member.value);
                agree(&mut self.turn, value, &mut self.contradictory);
            }
        }
        Ok(())
    }

    /// Reads the metadata in the string at `value`; its bound is one for the text, which escapes
    /// make longer on its way.
    fn read_string(&mut self, bytes: &[u8], value: &Range<usize>) {
        let within = string_within(bytes, value).and_then(|within| bytes.get(within));
        // A text is never longer than what stands for it.
        let long = within.filter(|within| within.len() > MAX_METADATA_BYTES);
        match long.map(literal::length) {
            Some(Ok(length)) if length > MAX_METADATA_BYTES => {
                self.too_long = self.too_long.max(Some(length));
            }
            None | Some(Ok(_)) if let Some(metadata) = text(bytes, value) => {
                self.in_body = true;
                self.read_metadata(metadata.as_bytes());
            }
            _ => self.unreadable = true,
        }
    }

    /// Reads one copy of the turn's metadata.
    fn read_metadata(&mut self, metadata: &[u8]) {
        if metadata.len() > MAX_METADATA_BYTES {
            self.too_long = self.too_long.max(Some(metadata.len()));
        } else if self.read_members(metadata).is_err() {
            self.unreadable = true;
        }
    }

    fn read_members(&mut self, metadata: &[u8]) -> Result<(), ScanError> {
        let mut members = Members::at(metadata, 0)?;
        while let Some(member) = members.next_member()? {
            let name = scan::name(metadata, &member.key);
            let is = |wanted: &str| *name == *wanted.as_bytes();
            let value = || text(metadata, &member.value);
            if is("parent_thread_id") || is("subagent_kind") {
                let value = value();
                let is_none = value.as_deref() == Some("") || is_null(metadata, &member.value);
                self.mark_child(!is_none);
                if is("parent_thread_id") {
                    self.note_parent(value);
                }
            } else if is("request_kind") {
                let kind = value();
                self.marked |= matches!(kind.as_deref(), Some("compaction" | "memory"));
                agree(&mut self.kind, kind, &mut self.contradictory);
            } else if is("thread_id") {
                agree(&mut self.thread, value(), &mut self.contradictory);
            } else if is("turn_id") {
                agree(&mut self.turn, value(), &mut self.contradictory);
            } else if is("session_id") {
                self.root = self.root.take().or_else(value);
            } else if is("root_turn_id") {
                self.root_turn = self.root_turn.take().or_else(value);
            } else if is(GENERATION_MEMBER) {
                self.unreadable |= value().is_none() && !is_null(metadata, &member.value);
                agree(&mut self.generation, value(), &mut self.contradictory);
            }
        }
        Ok(())
    }
}

/// Takes `value` where nothing is known yet; an empty one counts as absent.
fn agree(known: &mut Option<String>, value: Option<String>, contradictory: &mut bool) {
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return;
    };
    match known {
        Some(known) => *contradictory |= *known != value,
        None => *known = Some(value),
    }
}

#[cfg(test)]
#[path = "classify_tests.rs"]
mod tests;
