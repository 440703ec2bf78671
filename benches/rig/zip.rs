//! zstd as codex does it, and as fast as it can be done with kept contexts.

use std::time::Instant;

use zstd::bulk::{Compressor, Decompressor};

/// As codex does it: the frame doesn't say what it opens to.
pub(crate) fn deflate(body: &[u8]) -> Vec<u8> {
    zstd::encode_all(body, LEVEL).unwrap()
}

pub(crate) fn inflate(body: &[u8]) -> Vec<u8> {
    Decompressor::new().unwrap().decompress(body, MOST).unwrap()
}

/// Contexts and buffers that are kept from one body to the next.
pub(crate) struct Bare {
    open: Decompressor<'static>,
    close: Compressor<'static>,
    plain: Vec<u8>,
    packed: Vec<u8>,
}

impl Bare {
    pub(crate) fn new() -> Self {
        Self {
            open: Decompressor::new().unwrap(),
            close: Compressor::new(LEVEL).unwrap(),
            plain: Vec::with_capacity(MOST),
            packed: Vec::with_capacity(MOST),
        }
    }

    /// Opens and closes `body`, and gives the µs that it took.
    pub(crate) fn round_trip(&mut self, body: &[u8]) -> f64 {
        self.plain.clear();
        self.packed.clear();
        let begun = Instant::now();
        self.open
            .decompress_to_buffer(body, &mut self.plain)
            .unwrap();
        self.close
            .compress_to_buffer(&self.plain, &mut self.packed)
            .unwrap();
        begun.elapsed().as_secs_f64() * 1e6
    }
}

const LEVEL: i32 = 3;
const MOST: usize = 40 << 20;
