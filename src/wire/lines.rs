//! A byte stream cut into lines.

use bytes::{Bytes, BytesMut};

use crate::base::limits::LIGHT_LINE_BYTES;

/// Cuts a byte stream into newline-terminated lines.
///
/// Read into [`buffer`](Self::buffer), then call [`next_piece`](Self::next_piece) until it gives
/// `None`. The pieces joined are exactly the bytes that came in.
#[derive(Debug)]
pub struct LineFramer {
    buffer: BytesMut,
    /// Bytes of `buffer` already known to hold no newline.
    scanned: usize,
    max: usize,
    /// Whether the beginning of the current line went out already.
    in_long_line: bool,
}

/// What comes out of a framer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A whole line with its newline; the last line of a stream may have none.
    Line(Bytes),
    /// The beginning of a line that is longer than the bound.
    LongHead(Bytes),
    /// More of that line; the last part ends with its newline.
    LongRest(Bytes),
}

impl LineFramer {
    /// Makes a framer that gives lines of more than `max` bytes in parts.
    pub fn new(max: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            scanned: 0,
            max,
            in_long_line: false,
        }
    }

    /// Where the bytes that arrive are appended.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Bytes of a line that has not come to its end.
    pub fn held(&self) -> usize {
        self.buffer.len()
    }

    /// Takes the next piece; `None` when more bytes are needed.
    pub fn next_piece(&mut self) -> Option<Piece> {
        let unseen = self.buffer.get(self.scanned..).unwrap_or_default();
        let newline = memchr::memchr(b'\n', unseen).map(|at| self.scanned + at + 1);
        match newline {
            Some(end) if self.in_long_line => {
                self.in_long_line = false;
                Some(Piece::LongRest(self.take(end)))
            }
            Some(end) if end <= self.max => Some(Piece::Line(self.take(end))),
            Some(_) => {
                self.in_long_line = true;
                Some(Piece::LongHead(self.take(self.max)))
            }
            None if self.in_long_line && !self.buffer.is_empty() => {
                Some(Piece::LongRest(self.take(self.buffer.len())))
            }
            None if self.buffer.len() > self.max => {
                self.in_long_line = true;
                Some(Piece::LongHead(self.take(self.max)))
            }
            None => {
                self.scanned = self.buffer.len();
                None
            }
        }
    }

    /// Takes what is left at the end of the stream: a line without its newline.
    pub fn finish(&mut self) -> Option<Piece> {
        if self.buffer.is_empty() {
            return None;
        }
        let rest = self.take(self.buffer.len());
        Some(if self.in_long_line {
            Piece::LongRest(rest)
        } else {
            Piece::Line(rest)
        })
    }

    fn take(&mut self, count: usize) -> Bytes {
        self.scanned = 0;
        if count <= LIGHT_LINE_BYTES {
            return self.buffer.split_to(count).freeze();
        }
        // The line takes the memory with it: it is given back when the line has gone on.
        let rest = BytesMut::from(self.buffer.get(count..).unwrap_or_default());
        let mut line = std::mem::replace(&mut self.buffer, rest);
        line.truncate(count);
        line.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(max: usize, chunks: &[&[u8]]) -> Vec<Piece> {
        let mut framer = LineFramer::new(max);
        let mut pieces = Vec::new();
        for chunk in chunks {
            framer.buffer().extend_from_slice(chunk);
            while let Some(piece) = framer.next_piece() {
                pieces.push(piece);
            }
        }
        pieces.extend(framer.finish());
        pieces
    }

    fn line(text: &'static str) -> Piece {
        Piece::Line(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn lines_are_the_same_however_the_stream_is_cut() {
        let text = b"ab\r\n\n\x00\xff\nlast";
        let whole = cut(8, &[text]);
        assert_eq!(whole.first(), Some(&line("ab\r\n")));
        assert_eq!(whole.last(), Some(&line("last")));
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let (a, rest) = text.split_at(first);
                let (b, c) = rest.split_at(second - first);
                assert_eq!(cut(8, &[a, b, c]), whole);
            }
        }
    }

    #[test]
    fn long_line_takes_its_memory_with_it() {
        let mut framer = LineFramer::new(usize::MAX);
        framer.buffer().resize(LIGHT_LINE_BYTES, b'x');
        framer.buffer().extend_from_slice(b"\nnext\n");
        let Some(Piece::Line(line)) = framer.next_piece() else {
            panic!("a line");
        };
        assert!(framer.buffer().capacity() < 1024);
        assert!(line.try_into_mut().is_ok(), "nobody else holds it");
        assert_eq!(framer.next_piece(), Some(self::line("next\n")));
    }

    #[test]
    fn line_at_the_bound_is_whole_and_one_above_comes_in_parts() {
        assert_eq!(cut(4, &[b"abc\nd"]), [line("abc\n"), line("d")]);
        let long = cut(4, &[b"abcd", b"e", b"f\ng\n"]);
        assert!(matches!(long[0], Piece::LongHead(_)), "{long:?}");
        assert_eq!(long.last(), Some(&line("g\n")));
        let joined: Vec<u8> = long
            .into_iter()
            .flat_map(|piece| match piece {
                Piece::Line(b) | Piece::LongHead(b) | Piece::LongRest(b) => b,
            })
            .collect();
        assert_eq!(joined, b"abcdef\ng\n");
    }
}
