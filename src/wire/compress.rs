//! zstd in and out, with a bound on what comes out.

use std::{fmt, io};

use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd::zstd_safe::{
    CCtx, CParameter, DCtx, InBuffer, OutBuffer, ResetDirective, compress_bound, get_error_name,
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
pub fn deflate<P: AsRef<[u8]>>(pieces: &[P]) -> io::Result<Vec<u8>> {
    Packer::new()?.deflate(pieces)
}

/// What compressing needs again and again: some 2 MiB of tables, made once.
pub struct Packer(CCtx<'static>);

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packer").finish_non_exhaustive()
    }
}

impl Packer {
    /// Makes one, with nothing in it.
    pub fn new() -> io::Result<Self> {
        let mut context = CCtx::create();
        context
            .set_parameter(CParameter::CompressionLevel(LEVEL))
            .map_err(fault)?;
        Ok(Self(context))
    }

    /// Compresses the pieces of a body at the level that codex uses.
    pub fn deflate<P: AsRef<[u8]>>(&mut self, pieces: &[P]) -> io::Result<Vec<u8>> {
        let size: usize = pieces.iter().map(|piece| piece.as_ref().len()).sum();
        let context = &mut self.0;
        context.reset(ResetDirective::SessionOnly).map_err(fault)?;
        context
            .set_pledged_src_size(u64::try_from(size).ok())
            .map_err(fault)?;
        let mut out = Vec::with_capacity(compress_bound(size));
        for piece in pieces {
            let mut input = InBuffer::around(piece.as_ref());
            while input.pos() < piece.as_ref().len() {
                let end = out.len();
                let mut output = OutBuffer::around_pos(&mut out, end);
                context
                    .compress_stream2(&mut output, &mut input, ZSTD_EndDirective::ZSTD_e_continue)
                    .map_err(fault)?;
            }
        }
        loop {
            let end = out.len();
            let mut output = OutBuffer::around_pos(&mut out, end);
            let mut nothing = InBuffer::around(&[]);
            let left = context
                .compress_stream2(&mut output, &mut nothing, ZSTD_EndDirective::ZSTD_e_end)
                .map_err(fault)?;
            if left == 0 {
                return Ok(out);
            }
            out.reserve(left);
        }
    }
}

fn fault(code: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, get_error_name(code))
}

/// What the library says where the output has no room.
const OUTPUT_TOO_SMALL: &str = "Destination buffer is too small";

/// Codex compresses at level 3.
const LEVEL: i32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_back_as_one_body() {
        let packed = deflate(&[&b"abc"[..], b"", b"def"]).unwrap();
        assert_eq!(inflate(&packed, 6).unwrap(), b"abcdef");
    }

    #[test]
    fn packer_is_as_new_behind_every_body() {
        let mut packer = Packer::new().unwrap();
        for size in [1 << 20, 0, 7, 3 << 20] {
            let body: Vec<u8> = (0..=250).cycle().take(size).collect();
            let packed = packer
                .deflate(&[&body[..size / 2], &body[size / 2..]])
                .unwrap();
            assert_eq!(
                packed,
                deflate(&[&body[..size / 2], &body[size / 2..]]).unwrap()
            );
            assert_eq!(inflate(&packed, size).unwrap(), body);
        }
    }

    #[test]
    fn body_over_the_bound_is_refused_at_the_bound() {
        let bomb = deflate(&[vec![0_u8; 1 << 20]]).unwrap();
        assert!(bomb.len() < 1024);
        assert!(inflate(&bomb, 1 << 20).is_ok());
        assert!(matches!(
            inflate(&bomb, (1 << 20) - 1),
            Err(InflateError::TooLarge { max: 1_048_575 })
        ));
    }

    #[test]
    fn garbage_and_cut_bodies_are_refused() {
        let packed = deflate(&[&b"abcdefgh"[..]]).unwrap();
        for body in [&b"garbage!"[..], &packed[..packed.len() - 3]] {
            assert!(matches!(inflate(body, 100), Err(InflateError::Zstd(_))));
        }
    }
}
