//! Bytes of the frames that go to the upstream.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};

use crate::wire::frames::{FrameHead, MAX_HEAD_BYTES, OpCode, apply_mask};

/// Appends what comes next of `pieces` to `part`, until that is `end` bytes long.
pub(super) fn fill(part: &mut Vec<u8>, end: usize, pieces: &mut VecDeque<Bytes>) {
    while let Some(piece) = pieces.front_mut() {
        let count = piece.len().min(end - part.len());
        part.extend_from_slice(piece.get(..count).unwrap_or_default());
        piece.advance(count);
        if !piece.is_empty() {
            return;
        }
        pieces.pop_front();
    }
}

/// The answer to a ping, as a client sends it.
pub(super) fn pong(payload: &[u8]) -> Vec<u8> {
    let mut key = [0; 4];
    let _ = getrandom::fill(&mut key);
    let mut frame = Vec::with_capacity(payload.len() + MAX_HEAD_BYTES);
    let length = u64::try_from(payload.len()).unwrap_or(0);
    FrameHead {
        mask: Some(key),
        ..FrameHead::last(OpCode::Pong, length)
    }
    .encode(&mut frame);
    let start = frame.len();
    frame.extend_from_slice(payload);
    apply_mask(frame.get_mut(start..).unwrap_or_default(), key, 0);
    frame
}
