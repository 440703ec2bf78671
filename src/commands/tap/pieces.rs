//! What a client writes on an HTTP/1.1 connection, cut into pieces (RFC 9112): no IO.

use bytes::{Bytes, BytesMut};

use crate::commands::witness::Head;

/// Cuts the bytes of one connection, client to server, into pieces.
///
/// Append to [`buffer`](Self::buffer), then take pieces. All pieces but [`Piece::End`] joined are
/// the bytes that came in.
#[derive(Debug)]
pub(super) struct Cutter {
    buffer: BytesMut,
    state: State,
}

/// A piece of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// The head of a request, with the empty line that ends it.
    Head(Head, Bytes),
    /// Part of the body.
    Body(Bytes),
    /// Sizes of chunks and other bytes that are no content.
    Framing(Bytes),
    /// The request is complete.
    End,
    /// The stream is no HTTP any more: frames of a WebSocket, or something that can't be read.
    Rest(Bytes),
}

#[derive(Clone, Copy, Debug)]
enum State {
    Head,
    Body { left: u64 },
    ChunkHead,
    Chunk { left: u64 },
    ChunkEnd,
    Trailers,
    Upgrade,
    AfterUpgrade,
    Rest,
}

impl Cutter {
    /// Starts at the beginning of a connection.
    pub(super) fn new() -> Self {
        Self {
            buffer: BytesMut::new(),
            state: State::Head,
        }
    }

    /// Where the bytes that arrive are appended.
    pub(super) fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Takes the next piece; nothing when more bytes are needed.
    pub(super) fn next_piece(&mut self) -> Option<Piece> {
        match self.state {
            State::Head => self.head(),
            State::Body { left: 0 } => Some(self.end()),
            State::Body { left } => {
                let (piece, left) = self.content(left)?;
                self.state = State::Body { left };
                Some(Piece::Body(piece))
            }
            State::ChunkHead => self.chunk_head(),
            State::Chunk { left: 0 } => {
                self.state = State::ChunkEnd;
                self.next_piece()
            }
            State::Chunk { left } => {
                let (piece, left) = self.content(left)?;
                self.state = State::Chunk { left };
                Some(Piece::Body(piece))
            }
            State::ChunkEnd => {
                let line = self.line()?;
                self.state = State::ChunkHead;
                Some(Piece::Framing(line))
            }
            State::Trailers => {
                let line = self.line()?;
                if line.len() <= 2 {
                    self.state = State::Body { left: 0 };
                }
                Some(Piece::Framing(line))
            }
            State::Upgrade => {
                self.state = State::AfterUpgrade;
                Some(Piece::End)
            }
            State::AfterUpgrade => {
                // A refused upgrade may be followed by a request; a frame never starts with a letter,
                // as that would be a fragment of a reserved kind.
                let is_request = self.buffer.first()?.is_ascii_uppercase();
                self.state = if is_request { State::Head } else { State::Rest };
                self.next_piece()
            }
            State::Rest if self.buffer.is_empty() => None,
            State::Rest => Some(Piece::Rest(self.buffer.split().freeze())),
        }
    }

    fn head(&mut self) -> Option<Piece> {
        let Some(at) = memchr::memmem::find(&self.buffer, b"\r\n\r\n") else {
            if self.buffer.len() > MAX_HEAD_BYTES {
                return self.give_up();
            }
            return None;
        };
        let text = self.buffer.get(..at)?;
        let Some(head) = parse(text) else {
            return self.give_up();
        };
        let coding = head.header("transfer-encoding");
        self.state = if head.is_upgrade() {
            State::Upgrade
        } else if coding.is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked")) {
            State::ChunkHead
        } else if let Some(length) = head.header("content-length") {
            match std::str::from_utf8(length)
                .ok()
                .and_then(|text| text.parse().ok())
            {
                Some(left) => State::Body { left },
                None => return self.give_up(),
            }
        } else {
            State::Body { left: 0 }
        };
        Some(Piece::Head(head, self.buffer.split_to(at + 4).freeze()))
    }

    fn chunk_head(&mut self) -> Option<Piece> {
        let line = self.line()?;
        let size = line
            .split(|byte| matches!(byte, b';' | b'\r' | b' '))
            .next();
        let size = size.and_then(|size| std::str::from_utf8(size).ok());
        self.state = match size.and_then(|size| u64::from_str_radix(size, 16).ok()) {
            Some(0) => State::Trailers,
            Some(left) => State::Chunk { left },
            None => State::Rest,
        };
        Some(Piece::Framing(line))
    }

    fn content(&mut self, left: u64) -> Option<(Bytes, u64)> {
        if self.buffer.is_empty() {
            return None;
        }
        let here =
            usize::try_from(left).map_or(self.buffer.len(), |left| left.min(self.buffer.len()));
        let rest = left.saturating_sub(u64::try_from(here).unwrap_or(left));
        Some((self.buffer.split_to(here).freeze(), rest))
    }

    fn line(&mut self) -> Option<Bytes> {
        let Some(at) = memchr::memchr(b'\n', &self.buffer) else {
            if self.buffer.len() > MAX_HEAD_BYTES {
                self.state = State::Rest;
            }
            return None;
        };
        Some(self.buffer.split_to(at + 1).freeze())
    }

    fn end(&mut self) -> Piece {
        self.state = State::Head;
        Piece::End
    }

    fn give_up(&mut self) -> Option<Piece> {
        self.state = State::Rest;
        self.next_piece()
    }
}

fn parse(text: &[u8]) -> Option<Head> {
    let text = std::str::from_utf8(text).ok()?;
    let mut lines = text.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    if !words.next()?.starts_with("HTTP/1.") {
        return None;
    }
    let headers = lines.map(|line| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().as_bytes().to_vec()))
    });
    Some(Head {
        method: method.to_owned(),
        target: target.to_owned(),
        headers: headers.collect::<Option<_>>()?,
    })
}

/// Longest head of a request, or line between chunks, that is read.
const MAX_HEAD_BYTES: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    type Requests = Vec<(String, Vec<u8>)>;

    fn cut(stream: &[u8], at: usize) -> (Requests, Vec<u8>, Vec<u8>) {
        let (mut requests, mut joined, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        let (mut target, mut body) = (String::new(), Vec::new());
        let mut cutter = Cutter::new();
        for part in [&stream[..at], &stream[at..]] {
            cutter.buffer().extend_from_slice(part);
            while let Some(piece) = cutter.next_piece() {
                match piece {
                    Piece::Head(head, bytes) => {
                        target = head.target;
                        joined.extend_from_slice(&bytes);
                    }
                    Piece::Body(bytes) => {
                        body.extend_from_slice(&bytes);
                        joined.extend_from_slice(&bytes);
                    }
                    Piece::Framing(bytes) => joined.extend_from_slice(&bytes),
                    Piece::End => {
                        requests.push((std::mem::take(&mut target), std::mem::take(&mut body)));
                    }
                    Piece::Rest(bytes) => {
                        joined.extend_from_slice(&bytes);
                        rest.extend_from_slice(&bytes);
                    }
                }
            }
        }
        (requests, joined, rest)
    }

    #[test]
    fn requests_are_the_same_however_the_stream_is_cut() {
        let stream = b"GET /a HTTP/1.1\r\nUpgrade: websocket\r\n\r\n\
            POST /b HTTP/1.1\r\nContent-Length: 3\r\n\r\n\r\n\r\
            POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\nhi\r\n1\r\n!\r\n0\r\nT: t\r\n\r\n\
            GET /d HTTP/1.1\r\nUpgrade: websocket\r\n\r\n\x81\x80abcd";
        let expected: Requests = [
            ("/a", &b""[..]),
            ("/b", b"\r\n\r"),
            ("/c", b"hi!"),
            ("/d", b""),
        ]
        .map(|(target, body)| (target.to_owned(), body.to_vec()))
        .into();
        for at in 0..=stream.len() {
            let (requests, joined, rest) = cut(stream, at);
            assert_eq!(requests, expected, "cut at {at}");
            assert_eq!(joined, stream);
            assert_eq!(rest, b"\x81\x80abcd");
        }
    }
}
