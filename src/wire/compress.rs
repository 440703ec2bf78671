//! zstd in and out, with a bound on what comes out.

use std::io::{self, Read};

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
/// No more than the bound is ever held, whatever the body claims of itself.
pub fn inflate(body: &[u8], max: usize) -> Result<Vec<u8>, InflateError> {
    let reader = zstd::stream::read::Decoder::new(body).map_err(InflateError::Zstd)?;
    // All of it at once: pages that stay untouched cost nothing, while a buffer that grows would hold
    // twice what came out.
    let mut out = Vec::with_capacity(max.saturating_add(1));
    let allowed = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    reader
        .take(allowed)
        .read_to_end(&mut out)
        .map_err(InflateError::Zstd)?;
    if out.len() > max {
        return Err(InflateError::TooLarge { max });
    }
    Ok(out)
}

/// Compresses the pieces of a body at the level that codex uses.
pub fn deflate<P: AsRef<[u8]>>(pieces: &[P]) -> io::Result<Vec<u8>> {
    let size: usize = pieces.iter().map(|piece| piece.as_ref().len()).sum();
    let mut encoder = zstd::stream::write::Encoder::new(Vec::with_capacity(size / 4), LEVEL)?;
    encoder.set_pledged_src_size(u64::try_from(size).ok())?;
    encoder.include_contentsize(true)?;
    for piece in pieces {
        io::Write::write_all(&mut encoder, piece.as_ref())?;
    }
    encoder.finish()
}

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
