//! Edits: replaced ranges of a message, every other byte left alone.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

/// One replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The bytes that go; empty for an insertion.
    pub range: Range<usize>,
    /// The bytes that come in their place.
    pub with: Bytes,
}

impl Edit {
    /// Puts `with` in front of byte `at`.
    pub fn insert(at: usize, with: impl Into<Bytes>) -> Self {
        Self::replace(at..at, with)
    }

    /// Puts `with` in the place of `range`.
    pub fn replace(range: Range<usize>, with: impl Into<Bytes>) -> Self {
        Self {
            range,
            with: with.into(),
        }
    }
}

/// Cuts `message` at its edits into pieces that share its memory.
///
/// Edits are taken in the order of their ranges; one that overlaps an earlier one or lies outside
/// is left out.
pub fn pieces(message: &Bytes, mut edits: Vec<Edit>) -> Vec<Bytes> {
    edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
    let mut out = Vec::with_capacity(edits.len() * 2 + 1);
    let mut at = 0;
    for edit in edits {
        let fits = edit.range.start >= at
            && edit.range.start <= edit.range.end
            && edit.range.end <= message.len();
        if !fits {
            debug_assert!(false, "edit {:?} outside or overlapping", edit.range);
            continue;
        }
        out.push(message.slice(at..edit.range.start));
        out.push(edit.with);
        at = edit.range.end;
    }
    out.push(message.slice(at..));
    out.retain(|piece| !piece.is_empty());
    out
}

/// Applies `edits` into one piece.
pub fn apply(message: &Bytes, edits: Vec<Edit>) -> Bytes {
    if edits.is_empty() {
        return message.clone();
    }
    let pieces = pieces(message, edits);
    let mut whole = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    for piece in pieces {
        whole.extend_from_slice(&piece);
    }
    whole.freeze()
}

/// Takes `ranges` out of `message`, in place where nobody else holds it.
///
/// The ranges are in order and don't overlap; one that isn't so is left in.
pub fn cut(message: Bytes, ranges: &[Range<usize>]) -> Bytes {
    let mut message = message
        .try_into_mut()
        .unwrap_or_else(|held| held[..].into());
    let length = message.len();
    let (mut kept, mut at) = (0, 0);
    for range in ranges.iter().chain([&(length..length)]) {
        let fits = at <= range.start && range.start <= range.end && range.end <= length;
        if !fits {
            debug_assert!(false, "cut {range:?} outside or overlapping");
            continue;
        }
        message.copy_within(at..range.start, kept);
        kept += range.start - at;
        at = range.end;
    }
    message.truncate(kept);
    message.freeze()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn edits_change_their_ranges_alone() {
        let message = Bytes::from_static(b"0123456789");
        let edits = vec![
            Edit::replace(7..9, "x"),
            Edit::insert(0, "<"),
            Edit::insert(10, ">"),
        ];
        assert_eq!(apply(&message, edits), "<0123456x9>");
        assert_eq!(apply(&message, Vec::new()), message);
    }

    #[test]
    fn cuts_are_made_in_place_where_nobody_else_holds_the_message() {
        for ranges in [&[][..], &[0..2, 2..2], &[2..3, 5..5, 8..10], &[0..9, 9..10]] {
            let message = Bytes::from(b"0123456789".to_vec());
            let edits = ranges.iter().map(|range| Edit::replace(range.clone(), ""));
            let expected = apply(&message, edits.collect()).to_vec();
            assert_eq!(cut(message.clone(), ranges), expected);
            let place = message.as_ptr();
            let alone = cut(message, ranges);
            assert_eq!(alone, expected);
            assert!(alone.is_empty() || alone.as_ptr() == place);
        }
    }

    proptest! {
        #[test]
        fn bytes_outside_the_edits_stay(
            message in prop::collection::vec(any::<u8>(), 0..64),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 2..6),
            with in prop::collection::vec(any::<u8>(), 0..8),
        ) {
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(message.len() + 1)).collect();
            at.sort_unstable();
            let edits = at.chunks_exact(2).map(|c| Edit::replace(c[0]..c[1], with.clone())).collect();
            let mut expected = Vec::new();
            let mut from = 0;
            for pair in at.chunks_exact(2) {
                expected.extend_from_slice(&message[from..pair[0]]);
                expected.extend_from_slice(&with);
                from = pair[1];
            }
            expected.extend_from_slice(&message[from..]);
            prop_assert_eq!(apply(&Bytes::from(message), edits), expected);
        }
    }
}
