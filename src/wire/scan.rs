//! Members of JSON objects as ranges: no tree, no copy, bounded depth.
//!
//! The scanner validates what it passes over (RFC 8259) except that the text is UTF-8, which only
//! the reader of a string needs to know. Duplicate members are all reported, in order.

use std::borrow::Cow;
use std::ops::Range;

use crate::base::limits::MAX_JSON_DEPTH;
use crate::wire::literal;
use crate::wire::nesting::Nesting;
use crate::wire::strings::content_end;

/// One member of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name, between its quotes.
    pub key: Range<usize>,
    /// The value, white space around it excluded.
    pub value: Range<usize>,
}

/// Why bytes can't be scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// The value isn't an object.
    #[error("expected a JSON object at byte {at}")]
    NotAnObject {
        /// Where the value begins.
        at: usize,
    },
    /// The bytes aren't JSON.
    #[error("not valid JSON at byte {at}")]
    Syntax {
        /// The first byte that can't stand there.
        at: usize,
    },
    /// Containers are nested too deeply.
    #[error("JSON nested deeper than {MAX_JSON_DEPTH} levels at byte {at}")]
    TooDeep {
        /// Where the bound is passed.
        at: usize,
    },
}

/// The members of one object, in order.
#[derive(Debug)]
pub struct Members<'a>(Container<'a>);

/// One object or array on the way through it.
#[derive(Debug)]
struct Container<'a> {
    text: &'a [u8],
    at: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    First,
    Later,
    Ended,
}

impl<'a> Members<'a> {
    /// Begins with the object that starts at byte `at` of `text`, behind any white space.
    pub fn at(text: &'a [u8], at: usize) -> Result<Self, ScanError> {
        let at = white_space(text, at);
        if text.get(at) != Some(&b'{') {
            return Err(ScanError::NotAnObject { at });
        }
        Ok(Self(Container::behind(text, at)))
    }

    /// Takes the next member; `None` behind the closing brace.
    pub fn next_member(&mut self) -> Result<Option<Member>, ScanError> {
        let Some(at) = self.0.next(b'}')? else {
            return Ok(None);
        };
        let (key, start) = key_and_colon(self.0.text, at)?;
        let value = self.0.value(start)?;
        Ok(Some(Member { key, value }))
    }

    /// Where the scan stands; behind the closing brace once `None` was taken.
    pub fn position(&self) -> usize {
        self.0.at
    }
}

impl<'a> Container<'a> {
    /// Begins behind the opening bracket at byte `at`.
    fn behind(text: &'a [u8], at: usize) -> Self {
        Self {
            text,
            at: at + 1,
            state: State::First,
        }
    }

    /// Where what comes next begins; `None` behind the bracket that closes it.
    fn next(&mut self, closing: u8) -> Result<Option<usize>, ScanError> {
        let at = white_space(self.text, self.at);
        match (self.state, self.text.get(at)) {
            (State::Ended, _) => Ok(None),
            (State::First | State::Later, Some(byte)) if *byte == closing => {
                self.at = at + 1;
                self.state = State::Ended;
                Ok(None)
            }
            (State::First, _) => Ok(Some(at)),
            (State::Later, Some(b',')) => Ok(Some(white_space(self.text, at + 1))),
            (State::Later, _) => Err(ScanError::Syntax { at }),
        }
    }

    /// Takes the value that begins at byte `start`.
    fn value(&mut self, start: usize) -> Result<Range<usize>, ScanError> {
        let end = value_end(self.text, start)?;
        self.at = end;
        self.state = State::Later;
        Ok(start..end)
    }
}

/// The last copy of a member, and how many copies there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The value of the last copy: the one that codex takes.
    pub last: Option<Range<usize>>,
    /// How often the name occurs.
    pub count: usize,
}

/// Finds the members called `names` in the object at byte `at`, and reads the object to its end.
pub fn find<const N: usize>(
    text: &[u8],
    at: usize,
    names: [&str; N],
) -> Result<[Found; N], ScanError> {
    find_among(text, &mut Members::at(text, at)?, names)
}

/// Finds the members called `names` in an object that is all of `text`.
pub fn find_whole<const N: usize>(text: &[u8], names: [&str; N]) -> Result<[Found; N], ScanError> {
    let mut members = Members::at(text, 0)?;
    let found = find_among(text, &mut members, names)?;
    ends_at(text, members.position())?;
    Ok(found)
}

fn find_among<const N: usize>(
    text: &[u8],
    members: &mut Members<'_>,
    names: [&str; N],
) -> Result<[Found; N], ScanError> {
    let mut found = [const {
        Found {
            last: None,
            count: 0,
        }
    }; N];
    each_called(text, members, &names.into_iter(), |at, value| {
        if let Some(found) = found.get_mut(at) {
            found.last = Some(value);
            found.count += 1;
        }
    })?;
    Ok(found)
}

/// Goes through `members` to their end, and tells of each that has one of `names`: which of them, and
/// its value.
pub(super) fn each_called<'n>(
    text: &[u8],
    members: &mut Members<'_>,
    names: &(impl Iterator<Item = &'n str> + Clone),
    mut tell: impl FnMut(usize, Range<usize>),
) -> Result<(), ScanError> {
    while let Some(member) = members.next_member()? {
        let name = name(text, &member.key);
        let at = names.clone().position(|wanted| *name == *wanted.as_bytes());
        if let Some(at) = at {
            tell(at, member.value);
        }
    }
    Ok(())
}

/// The name between the quotes at `key`, escapes resolved; empty where it isn't text.
pub fn name<'a>(text: &'a [u8], key: &Range<usize>) -> Cow<'a, [u8]> {
    let raw = text.get(key.clone()).unwrap_or_default();
    if memchr::memchr(b'\\', raw).is_none() {
        return raw.into();
    }
    literal::unescape(raw)
        .unwrap_or_default()
        .into_bytes()
        .into()
}

/// Whether the name between the quotes at `key` reads as `wanted`, escapes resolved.
pub fn key_is(text: &[u8], key: &Range<usize>, wanted: &str) -> bool {
    *name(text, key) == *wanted.as_bytes()
}

/// Checks that nothing but white space follows byte `at`.
pub fn ends_at(text: &[u8], at: usize) -> Result<(), ScanError> {
    let at = white_space(text, at);
    if at == text.len() {
        return Ok(());
    }
    Err(ScanError::Syntax { at })
}

/// The bytes between the quotes if the value at `range` is a string.
pub fn string_within(text: &[u8], range: &Range<usize>) -> Option<Range<usize>> {
    let raw = text.get(range.clone())?;
    let quoted = raw.len() >= 2 && raw.first() == Some(&b'"');
    quoted.then(|| range.start + 1..range.end - 1)
}

/// Whether the value at `range` is `null`.
pub fn is_null(text: &[u8], range: &Range<usize>) -> bool {
    text.get(range.clone()) == Some(b"null")
}

/// Whether the value at `range` is an object.
pub fn is_object(text: &[u8], range: &Range<usize>) -> bool {
    text.get(range.start) == Some(&b'{')
}

/// The elements of one array, in order.
#[derive(Debug)]
pub struct Elements<'a>(Container<'a>);

impl<'a> Elements<'a> {
    /// Begins with the array that starts at byte `at` of `text`, behind any white space.
    pub fn at(text: &'a [u8], at: usize) -> Result<Self, ScanError> {
        let at = white_space(text, at);
        if text.get(at) != Some(&b'[') {
            return Err(ScanError::Syntax { at });
        }
        Ok(Self(Container::behind(text, at)))
    }

    /// Takes the next element; `None` behind the closing bracket.
    pub fn next_element(&mut self) -> Result<Option<Range<usize>>, ScanError> {
        let next = self.0.next(b']')?;
        next.map(|at| self.0.value(at)).transpose()
    }
}

fn white_space(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    let skipped = rest
        .iter()
        .position(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    at + skipped.unwrap_or(rest.len())
}

/// The name at byte `at`, and where the value behind its colon begins.
fn key_and_colon(text: &[u8], at: usize) -> Result<(Range<usize>, usize), ScanError> {
    if text.get(at) != Some(&b'"') {
        return Err(ScanError::Syntax { at });
    }
    let end = string_end(text, at)?;
    let colon = white_space(text, end);
    if text.get(colon) != Some(&b':') {
        return Err(ScanError::Syntax { at: colon });
    }
    Ok((at + 1..end - 1, white_space(text, colon + 1)))
}

/// Where the value that begins at byte `at` ends.
fn value_end(text: &[u8], at: usize) -> Result<usize, ScanError> {
    value_end_within(text, at, Nesting::default())
}

/// The same with room for containers as `open`, in which none is open, has it.
pub(super) fn value_end_within(
    text: &[u8],
    mut at: usize,
    mut open: Nesting,
) -> Result<usize, ScanError> {
    loop {
        at = match text.get(at) {
            Some(b'{') => {
                opened(&mut open, true, at)?;
                let inner = white_space(text, at + 1);
                if text.get(inner) == Some(&b'}') {
                    inner
                } else {
                    at = key_and_colon(text, inner)?.1;
                    continue;
                }
            }
            Some(b'[') => {
                opened(&mut open, false, at)?;
                let inner = white_space(text, at + 1);
                if text.get(inner) == Some(&b']') {
                    inner
                } else {
                    at = inner;
                    continue;
                }
            }
            _ => scalar_end(text, at)?,
        };
        match close(text, at, &mut open)? {
            Next::Value(next) => at = next,
            Next::End(end) => return Ok(end),
        }
    }
}

fn opened(open: &mut Nesting, object: bool, at: usize) -> Result<(), ScanError> {
    if open.push(object) {
        return Ok(());
    }
    Err(ScanError::TooDeep { at })
}

enum Next {
    Value(usize),
    End(usize),
}

/// Closes containers behind the value that ends at byte `at`, up to the next comma.
fn close(text: &[u8], mut at: usize, open: &mut Nesting) -> Result<Next, ScanError> {
    while let Some(in_object) = open.top() {
        at = white_space(text, at);
        match (in_object, text.get(at)) {
            (true, Some(b'}')) | (false, Some(b']')) => {
                open.pop();
                at += 1;
            }
            (true, Some(b',')) => {
                let key = white_space(text, at + 1);
                return Ok(Next::Value(key_and_colon(text, key)?.1));
            }
            (false, Some(b',')) => return Ok(Next::Value(white_space(text, at + 1))),
            _ => return Err(ScanError::Syntax { at }),
        }
    }
    Ok(Next::End(at))
}

fn scalar_end(text: &[u8], at: usize) -> Result<usize, ScanError> {
    let rest = text.get(at..).unwrap_or_default();
    match rest.first() {
        Some(b'"') => string_end(text, at),
        Some(b't') if rest.starts_with(b"true") => Ok(at + 4),
        Some(b'f') if rest.starts_with(b"false") => Ok(at + 5),
        Some(b'n') if rest.starts_with(b"null") => Ok(at + 4),
        Some(b'-' | b'0'..=b'9') => number_end(text, at),
        _ => Err(ScanError::Syntax { at }),
    }
}

fn number_end(text: &[u8], mut at: usize) -> Result<usize, ScanError> {
    if text.get(at) == Some(&b'-') {
        at += 1;
    }
    at = match text.get(at) {
        Some(b'0') => at + 1,
        _ => digits(text, at)?,
    };
    if text.get(at) == Some(&b'.') {
        at = digits(text, at + 1)?;
    }
    if let Some(b'e' | b'E') = text.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = text.get(at) {
            at += 1;
        }
        at = digits(text, at)?;
    }
    Ok(at)
}

fn digits(text: &[u8], at: usize) -> Result<usize, ScanError> {
    let rest = text.get(at..).unwrap_or_default();
    let count = rest
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(rest.len());
    if count == 0 {
        return Err(ScanError::Syntax { at });
    }
    Ok(at + count)
}

/// Where the string whose opening quote stands at byte `at` ends, behind its closing quote.
fn string_end(text: &[u8], at: usize) -> Result<usize, ScanError> {
    content_end(text, at + 1).map_err(|at| ScanError::Syntax { at })
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
