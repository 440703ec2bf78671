//! zstd in and out, with a bound on what comes out.

use std::{fmt, io};

use bytes::{Buf, Bytes};
use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd::zstd_safe::{
    CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective, compress_bound,
    get_error_name, get_frame_content_size,
};

/// Why a compressed body can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum InflateError {
    /// More comes out than is allowed.
    #[error("inflated body is over {max} bytes")]
    TooLarge {
        /// The bound that was passed.
        max: usize,
    },
    /// The bytes aren't zstd.
    #[error("not valid zstd")]
    Zstd(#[source] io::Error),
}

/// Opens a zstd body of at most `max` inflated bytes.
///
/// No more than the bound is ever held, whatever the body claims of itself: the output is the window.
pub fn inflate(body: &[u8], max: usize) -> Result<Vec<u8>, InflateError> {
    // All of it at once: pages that stay untouched cost nothing, while a buffer that grows would hold
    // twice what came out.
    let mut out = Vec::with_capacity(max.saturating_add(1));
    match DCtx::create().decompress(&mut out, body) {
        Ok(bytes) if bytes <= max => Ok(out),
        Err(code) if get_error_name(code) != OUTPUT_TOO_SMALL => {
            Err(InflateError::Zstd(fault(code)))
        }
        Ok(_) | Err(_) => Err(InflateError::TooLarge { max }),
    }
}

/// Compresses the pieces of a body at the level that codex uses.
pub fn deflate<P: AsRef<[u8]>>(pieces: &[P]) -> io::Result<Vec<Bytes>> {
    let mut packer = Packer::new()?;
    let size = pieces.iter().map(|piece| piece.as_ref().len()).sum();
    packer.begin(Some(size))?;
    for piece in pieces {
        packer.push(piece.as_ref())?;
    }
    packer.finish()
}

/// What the first frame of a body says that it opens to, where it says so.
pub fn content_size(beginning: &[u8]) -> Option<usize> {
    let size = get_frame_content_size(beginning).ok().flatten()?;
    usize::try_from(size).ok()
}

/// Opens frames that come in parts, again and again.
pub struct Unpacker(DCtx<'static>);

/// What a step of an [`Unpacker`] has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// So many bytes; where they fill the place for them, there may be more.
    pub bytes: usize,
    /// They are the frame's last.
    pub is_over: bool,
}

impl fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unpacker").finish_non_exhaustive()
    }
}

impl Unpacker {
    /// Makes one that opens frames with a window of at most 2 to the power of `window_log` bytes.
    pub fn new(window_log: u32) -> io::Result<Self> {
        let mut context = DCtx::create();
        context
            .set_parameter(DParameter::WindowLogMax(window_log))
            .map_err(fault)?;
        Ok(Self(context))
    }

    /// Begins with a frame, whatever became of the last one.
    pub fn begin(&mut self) -> io::Result<()> {
        self.0.reset(ResetDirective::SessionOnly).map_err(fault)?;
        Ok(())
    }

    /// Opens what there is of `part`, or fits into `out`, and takes it off.
    pub fn push(&mut self, part: &mut Bytes, out: &mut [u8]) -> io::Result<Opened> {
        let mut input = InBuffer::around(part);
        let mut output = OutBuffer::around(out);
        let left = self.0.decompress_stream(&mut output, &mut input);
        let left = left.map_err(fault)?;
        let (bytes, read) = (output.pos(), input.pos());
        part.advance(read);
        let is_over = left == 0;
        Ok(Opened { bytes, is_over })
    }
}

/// Compresses bodies that come in parts, again and again: some 2 MiB of tables, made once.
pub struct Packer {
    context: CCtx<'static>,
    done: Vec<Bytes>,
    /// The output that has room for more.
    open: Vec<u8>,
    bytes: usize,
    /// What all of it may become.
    most: usize,
}

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packer").finish_non_exhaustive()
    }
}

impl Packer {
    /// Makes one, with nothing in it, that compresses at the level that codex uses.
    pub fn new() -> io::Result<Self> {
        let mut context = CCtx::create();
        context
            .set_parameter(CParameter::CompressionLevel(LEVEL))
            .map_err(fault)?;
        Ok(Self {
            context,
            done: Vec::new(),
            open: Vec::new(),
            bytes: 0,
            most: 0,
        })
    }

    /// Begins with a body of `size` bytes, if that is known, whatever became of the last one.
    pub fn begin(&mut self, size: Option<usize>) -> io::Result<()> {
        self.done.clear();
        self.open = Vec::new();
        self.bytes = 0;
        self.most = size.map_or(usize::MAX, compress_bound);
        let context = &mut self.context;
        context.reset(ResetDirective::SessionOnly).map_err(fault)?;
        let size = size.and_then(|size| u64::try_from(size).ok());
        context.set_pledged_src_size(size).map_err(fault)?;
        Ok(())
    }

    /// Compresses the next part of the body.
    pub fn push(&mut self, part: &[u8]) -> io::Result<()> {
        let mut input = InBuffer::around(part);
        while input.pos() < part.len() {
            self.turn(&mut input, ZSTD_EndDirective::ZSTD_e_continue)?;
        }
        Ok(())
    }

    /// Ends the body and gives it, compressed, in pieces.
    ///
    /// # Errors
    /// Also where it hasn't the size that it began with.
    pub fn finish(&mut self) -> io::Result<Vec<Bytes>> {
        let mut nothing = InBuffer::around(&[]);
        while self.turn(&mut nothing, ZSTD_EndDirective::ZSTD_e_end)? > 0 {}
        let mut pieces = std::mem::take(&mut self.done);
        pieces.push(std::mem::take(&mut self.open).into());
        Ok(pieces)
    }

    /// How much has come out so far.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn turn(
        &mut self,
        input: &mut InBuffer<'_>,
        directive: ZSTD_EndDirective,
    ) -> io::Result<usize> {
        if self.open.len() == self.open.capacity() {
            let room = self.most.saturating_sub(self.bytes).clamp(64, PIECE_BYTES);
            let full = std::mem::replace(&mut self.open, Vec::with_capacity(room));
            if !full.is_empty() {
                self.done.push(full.into());
            }
        }
        let before = self.open.len();
        let mut output = OutBuffer::around_pos(&mut self.open, before);
        let left = self.context.compress_stream2(&mut output, input, directive);
        let left = left.map_err(fault)?;
        self.bytes += self.open.len() - before;
        Ok(left)
    }
}

fn fault(code: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, get_error_name(code))
}

/// What the library says where the output has no room.
const OUTPUT_TOO_SMALL: &str = "Destination buffer is too small";

/// Codex compresses at level 3.
const LEVEL: i32 = 3;

/// What compressed bytes are gathered in.
const PIECE_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn packed<P: AsRef<[u8]>>(pieces: &[P]) -> Vec<u8> {
        deflate(pieces).unwrap().concat()
    }

    #[test]
    fn pieces_come_back_as_one_body() {
        let packed = packed(&[&b"abc"[..], b"", b"def"]);
        assert_eq!(inflate(&packed, 6).unwrap(), b"abcdef");
        assert_eq!(content_size(&packed), Some(6));
    }

    /// A body that is hard to compress, so that it becomes several pieces.
    fn body(size: usize) -> Vec<u8> {
        let mut word = 1_u32;
        let next = |_| {
            word ^= word << 13;
            word ^= word >> 17;
            word ^= word << 5;
            word.to_le_bytes()[0]
        };
        (0..size).map(next).collect()
    }

    #[test]
    fn packer_and_unpacker_are_as_new_behind_every_body() {
        let mut packer = Packer::new().unwrap();
        let mut unpacker = Unpacker::new(23).unwrap();
        for size in [1 << 20, 0, 7, 3 << 20] {
            let body = body(size);
            packer.begin(Some(size)).unwrap();
            packer.push(&body[..size / 2]).unwrap();
            packer.push(&body[size / 2..]).unwrap();
            let pieces = packer.finish().unwrap();
            let whole = pieces.concat();
            assert_eq!(whole.len(), packer.bytes());
            assert_eq!(whole, packed(&[&body[..size / 2], &body[size / 2..]]));
            assert_eq!(inflate(&whole, size).unwrap(), body);
            // The next body finds what this one has left.
            packer.begin(Some(9)).unwrap();
            packer.push(b"left over").unwrap();

            unpacker.begin().unwrap();
            let mut opened = Vec::new();
            let mut out = [0; 1000];
            let mut is_over = false;
            for mut piece in pieces {
                loop {
                    let step = unpacker.push(&mut piece, &mut out).unwrap();
                    opened.extend_from_slice(&out[..step.bytes]);
                    is_over = step.is_over;
                    if piece.is_empty() && step.bytes < out.len() {
                        break;
                    }
                }
            }
            assert!(is_over);
            assert_eq!(opened, body);
        }
    }

    #[test]
    fn body_of_another_size_than_was_said_is_an_error() {
        let mut packer = Packer::new().unwrap();
        packer.begin(Some(3)).unwrap();
        packer.push(b"ab").unwrap();
        assert!(packer.finish().is_err());
    }

    #[test]
    fn frame_with_a_larger_window_is_an_error() {
        let whole = Bytes::from(packed(&[body(1 << 20)]));
        let mut out = [0; 1000];
        let mut open = |window_log| {
            let mut unpacker = Unpacker::new(window_log).unwrap();
            unpacker.push(&mut whole.clone(), &mut out)
        };
        assert!(open(18).is_err());
        assert!(open(20).is_ok());
    }

    #[test]
    fn body_over_the_bound_is_refused_at_the_bound() {
        let bomb = packed(&[vec![0_u8; 1 << 20]]);
        assert!(bomb.len() < 1024);
        assert!(inflate(&bomb, 1 << 20).is_ok());
        assert!(matches!(
            inflate(&bomb, (1 << 20) - 1),
            Err(InflateError::TooLarge { max: 1_048_575 })
        ));
    }

    #[test]
    fn garbage_and_cut_bodies_are_refused() {
        let packed = packed(&[&b"abcdefgh"[..]]);
        for body in [&b"garbage!"[..], &packed[..packed.len() - 3]] {
            assert!(matches!(inflate(body, 100), Err(InflateError::Zstd(_))));
        }
    }
}
