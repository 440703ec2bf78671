//! The client: raw HTTP/1.1 over one connection, with the times that matter.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::stage::Route;
use super::tls;

/// A stream both ways, plain or TLS.
pub(crate) trait Wire: Read + Write + Send {}

impl<T: Read + Write + Send> Wire for T {}

/// One kept connection.
pub(crate) struct Connection {
    wire: Box<dyn Wire>,
    buffer: Vec<u8>,
    /// Where unread bytes begin and end.
    start: usize,
    end: usize,
}

impl Connection {
    pub(crate) fn open(route: &Route) -> Self {
        let stream = TcpStream::connect(route.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let wire: Box<dyn Wire> = match &route.tls {
            None => Box::new(stream),
            Some(config) => Box::new(tls::connect(stream, config)),
        };
        Self {
            wire,
            buffer: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.wire.write_all(bytes).unwrap();
        self.wire.flush().unwrap();
    }

    /// Sends a request, checks the answer, and gives the time to its first byte.
    pub(crate) fn exchange(&mut self, request: &[u8], answer: &[u8]) -> Duration {
        let begun = Instant::now();
        self.send(request);
        self.fill();
        let time = begun.elapsed();
        self.answer_head("200");
        let mut body = Vec::with_capacity(answer.len());
        while self.chunk(&mut body) {}
        assert!(body == answer, "the answer came back changed");
        time
    }

    /// Reads a head and checks its status.
    pub(crate) fn answer_head(&mut self, status: &str) -> String {
        loop {
            let seen = &self.buffer[self.start..self.end];
            if let Some(at) = memchr::memmem::find(seen, b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&seen[..at]).into_owned();
                self.start += at + 4;
                let is_it = head.split(' ').nth(1) == Some(status);
                assert!(is_it, "{status} expected: {head}\n{}", self.rest());
                return head;
            }
            self.fill();
        }
    }

    /// Appends the next chunk of a body to `body`; false behind the last one.
    pub(crate) fn chunk(&mut self, body: &mut Vec<u8>) -> bool {
        let line = loop {
            let seen = &self.buffer[self.start..self.end];
            if let Some(at) = memchr::memmem::find(seen, b"\r\n") {
                let line = String::from_utf8_lossy(&seen[..at]).into_owned();
                self.start += at + 2;
                break line;
            }
            self.fill();
        };
        let size = usize::from_str_radix(line.trim(), 16).unwrap();
        let mut left = size;
        while left > 0 {
            if self.start == self.end {
                self.fill();
            }
            let count = left.min(self.end - self.start);
            body.extend_from_slice(&self.buffer[self.start..self.start + count]);
            self.start += count;
            left -= count;
        }
        while self.end - self.start < 2 {
            self.fill();
        }
        self.start += 2;
        size > 0
    }

    /// Reads `count` bytes that follow.
    pub(crate) fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.end - self.start < count {
            self.fill();
        }
        self.start += count;
        self.buffer[self.start - count..self.start].to_vec()
    }

    /// Reads some more; panics at the end.
    pub(crate) fn fill(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let count = self.wire.read(&mut self.buffer[self.end..]).unwrap();
        assert!(count > 0, "the connection ended");
        self.end += count;
    }

    fn rest(&self) -> String {
        String::from_utf8_lossy(&self.buffer[self.start..self.end]).into_owned()
    }
}

const BUFFER_BYTES: usize = 512 << 10;
/// A measurement that takes longer than this has failed.
const PATIENCE: Duration = Duration::from_mins(1);
