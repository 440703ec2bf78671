//! A compressed body that gets its context while it comes: opened, edited and closed again in parts.
//!
//! Only the common case stands here: one frame that says its size, from codex as its headers tell.
//! What is otherwise in any way is [`Unfit`], and is judged as a whole.

use std::collections::VecDeque;
use std::io;

use bytes::{Bytes, BytesMut};

use crate::base::limits::{MAX_BODY_BYTES, MAX_WINDOW_LOG};
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

/// The body can't be edited in parts; as a whole it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfit;

/// One body on its way.
#[derive(Debug)]
pub struct Repacking<'a> {
    tools: &'a mut Tools,
    passing: Passing,
    /// What its frame says that it opens to.
    size: usize,
    /// What it may become, compressed.
    most: usize,
    /// How much it has opened to so far.
    opened: usize,
    is_over: bool,
    is_begun: bool,
    buffer: BytesMut,
    edited: VecDeque<Bytes>,
}

impl<'a> Repacking<'a> {
    /// Begins with a body that opens to `size` bytes and may become `most`, compressed.
    ///
    /// # Errors
    /// Where it opens to too much.
    pub fn new(
        tools: &'a mut Tools,
        passing: Passing,
        size: usize,
        most: usize,
    ) -> Result<Self, Unfit> {
        if size > MAX_BODY_BYTES {
            return Err(Unfit);
        }
        tools.unpacker.begin().map_err(|_| Unfit)?;
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
    pub fn step(&mut self, part: &mut Bytes) -> Result<bool, Unfit> {
        if self.is_over {
            // Another frame, or what is none.
            return if part.is_empty() {
                Ok(false)
            } else {
                Err(Unfit)
            };
        }
        self.buffer.resize(STEP_BYTES, 0);
        let step = self.tools.unpacker.push(part, &mut self.buffer);
        let step = step.map_err(|_| Unfit)?;
        self.is_over = step.is_over;
        self.opened += step.bytes;
        if self.opened > self.size {
            return Err(Unfit);
        }
        let opened = self.buffer.split_to(step.bytes).freeze();
        self.stopped(|passing, edited| passing.push(opened, edited))?;
        self.close()?;
        Ok(!part.is_empty() || step.bytes == STEP_BYTES)
    }

    /// Takes the end of the body, and gives it with its context, compressed, in pieces.
    ///
    /// # Errors
    /// Where the body isn't the common case.
    pub fn finish(mut self) -> Result<Vec<Bytes>, Unfit> {
        if !self.is_over || self.opened != self.size {
            return Err(Unfit);
        }
        self.stopped(Passing::finish)?;
        self.close()?;
        self.tools.packer.finish().map_err(|_| Unfit)
    }

    fn stopped(
        &mut self,
        work: impl FnOnce(&mut Passing, &mut VecDeque<Bytes>) -> Result<(), Stop>,
    ) -> Result<(), Unfit> {
        work(&mut self.passing, &mut self.edited).map_err(|_| Unfit)
    }

    /// Compresses what is edited.
    fn close(&mut self) -> Result<(), Unfit> {
        let Some(growth) = self.passing.growth() else {
            return Ok(());
        };
        let packer = &mut self.tools.packer;
        if !self.is_begun {
            let size = self.size + growth;
            if size > MAX_BODY_BYTES {
                return Err(Unfit);
            }
            packer.begin(size).map_err(|_| Unfit)?;
            self.is_begun = true;
        }
        for piece in self.edited.drain(..) {
            packer.push(&piece).map_err(|_| Unfit)?;
        }
        if packer.bytes() > self.most {
            return Err(Unfit);
        }
        Ok(())
    }
}

/// What is opened in one step. / As much as a block of zstd has at the most.
const STEP_BYTES: usize = 128 * 1024;

#[cfg(test)]
#[path = "repacking_tests.rs"]
mod tests;
