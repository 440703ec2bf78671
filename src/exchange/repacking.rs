//! A compressed body that gets its context while it comes: opened, edited and closed again in parts.
//!
//! Only the common case stands here: one frame, from codex as its headers tell.
//! What is otherwise in any way stops, and is judged as a whole as long as it is here.

use std::collections::VecDeque;
use std::io;

use bytes::{Bytes, BytesMut};

use crate::base::limits::{GATHERED_PLAIN_BYTES, MAX_BODY_BYTES, MAX_WINDOW_LOG};
use crate::base::reason::Reason;
use crate::exchange::passing::{Passing, Stop};
use crate::wire::compress::{Packer, Unpacker};

/// What a body is opened and closed with; costly to make, and as new for every body.
#[derive(Debug)]
pub struct Tools {
    unpacker: Unpacker,
    packer: Packer,
}

impl Tools {
    /// Makes new ones.
    ///
    /// # Errors
    /// None but for want of memory.
    pub fn new() -> io::Result<Self> {
        let unpacker = Unpacker::new(MAX_WINDOW_LOG)?;
        let packer = Packer::new()?;
        Ok(Self { unpacker, packer })
    }
}

/// One body on its way.
#[derive(Debug)]
pub struct Repacking<'a> {
    tools: &'a mut Tools,
    passing: Passing,
    /// What its frame says that it opens to; codex's say nothing.
    size: Option<usize>,
    /// What it may become, compressed.
    most: usize,
    /// How much it has opened to so far.
    opened: usize,
    is_over: bool,
    is_begun: bool,
    buffer: BytesMut,
    /// What is edited, and waits to be compressed.
    edited: VecDeque<Bytes>,
}

impl<'a> Repacking<'a> {
    /// Begins with a body whose frame says that it opens to `size` bytes, if it says so, and which may
    /// become `most`, compressed.
    ///
    /// # Errors
    /// Where it opens to too much.
    pub fn new(
        tools: &'a mut Tools,
        passing: Passing,
        size: Option<usize>,
        most: usize,
    ) -> Result<Self, Stop> {
        if size.is_some_and(|size| size > MAX_BODY_BYTES) {
            return Err(Stop::Unfit);
        }
        tools.unpacker.begin().map_err(|_| Stop::Unfit)?;
        Ok(Self {
            tools,
            passing,
            size,
            most,
            opened: 0,
            is_over: false,
            is_begun: false,
            buffer: BytesMut::new(),
            edited: VecDeque::new(),
        })
    }

    /// Takes some of the next `part` off it; whether there is more to do, with what is left of it or
    /// without.
    ///
    /// # Errors
    /// Where the body isn't the common case.
    pub fn step(&mut self, part: &mut Bytes) -> Result<bool, Stop> {
        if self.is_over {
            // Another frame, or what is none.
            return if part.is_empty() {
                Ok(false)
            } else {
                Err(Stop::Unfit)
            };
        }
        self.buffer.resize(STEP_BYTES, 0);
        let step = self.tools.unpacker.push(part, &mut self.buffer);
        let step = step.map_err(|_| BROKEN)?;
        self.is_over = step.is_over;
        self.opened += step.bytes;
        let growth = self.passing.growth().unwrap_or(0);
        if self.opened + growth > MAX_BODY_BYTES {
            return Err(Stop::TooLarge);
        }
        let opened = self.buffer.split_to(step.bytes).freeze();
        self.passing.push(opened, &mut self.edited)?;
        self.close(false)?;
        Ok(!part.is_empty() || step.bytes == STEP_BYTES)
    }

    /// Takes the end of the body, and gives it with its context, compressed, in pieces.
    ///
    /// # Errors
    /// Where the body isn't the common case.
    pub fn finish(mut self) -> Result<Vec<Bytes>, Stop> {
        if !self.is_over {
            return Err(BROKEN);
        }
        self.passing.finish(&mut self.edited)?;
        self.close(true)?;
        self.tools.packer.finish().map_err(|_| Stop::Unfit)
    }

    /// Whether its end has begun to be compressed: what stops from now on is seldom codex's.
    pub fn is_settled(&self) -> bool {
        self.is_begun
    }

    /// Compresses what is edited, once it is known how much it becomes, or that it becomes much.
    fn close(&mut self, is_last: bool) -> Result<(), Stop> {
        let Some(growth) = self.passing.growth() else {
            return Ok(());
        };
        if !self.is_begun {
            let edited: usize = self.edited.iter().map(Bytes::len).sum();
            let size = match self.size {
                Some(size) => Some(size + growth),
                None if is_last => Some(edited),
                None if edited > GATHERED_PLAIN_BYTES => None,
                None => return Ok(()),
            };
            if size.is_some_and(|size| size > MAX_BODY_BYTES) {
                return Err(Stop::TooLarge);
            }
            self.tools.packer.begin(size).map_err(|_| Stop::Unfit)?;
            self.is_begun = true;
        }
        let packer = &mut self.tools.packer;
        for piece in self.edited.drain(..) {
            packer.push(&piece).map_err(|_| Stop::Unfit)?;
        }
        if packer.bytes() > self.most {
            return Err(Stop::Unfit);
        }
        Ok(())
    }
}

/// It isn't zstd, or not all of it.
const BROKEN: Stop = Stop::Refuse(Reason::BodyInvalid);

/// What is opened in one step. / As much as a block of zstd has at the most.
const STEP_BYTES: usize = 128 * 1024;

#[cfg(test)]
#[path = "repacking_tests.rs"]
mod tests;
