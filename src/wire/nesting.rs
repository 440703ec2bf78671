//! Which containers of a JSON text are open: a bit each, set for an object.

use crate::base::limits::MAX_JSON_DEPTH;

/// A stack of bounded depth.
#[derive(Debug)]
pub(super) struct Nesting {
    words: [u64; MAX_JSON_DEPTH / 64],
    depth: usize,
    /// So many may be open.
    room: usize,
}

impl Default for Nesting {
    fn default() -> Self {
        Self {
            words: [0; MAX_JSON_DEPTH / 64],
            depth: 0,
            room: MAX_JSON_DEPTH,
        }
    }
}

impl Nesting {
    /// For what stands within these.
    pub(super) fn within(&self) -> Self {
        Self {
            room: self.room.saturating_sub(self.depth),
            ..Self::default()
        }
    }

    /// Opens a container; false where too many are open.
    pub(super) fn push(&mut self, object: bool) -> bool {
        if self.depth >= self.room {
            return false;
        }
        let Some(word) = self.words.get_mut(self.depth / 64) else {
            return false;
        };
        let bit = 1 << (self.depth % 64);
        if object {
            *word |= bit;
        } else {
            *word &= !bit;
        }
        self.depth += 1;
        true
    }

    /// Closes the innermost one.
    pub(super) fn pop(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// Whether the innermost open container is an object; none is open at the top.
    pub(super) fn top(&self) -> Option<bool> {
        let last = self.depth.checked_sub(1)?;
        let word = self.words.get(last / 64)?;
        Some(word >> (last % 64) & 1 == 1)
    }
}
