//! What a tap wrote down, read again as requests.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};

use super::pieces::{Cutter, Piece};
use crate::commands::witness::{Head, Kind, Recorded};
use crate::wire::frames::{FrameHead, OpCode, Parsed, apply_mask};

/// Reads every request that codex sent whole, connection after connection, each in order.
///
/// A request that was cut off is left out.
///
/// # Errors
/// The folder or a file in it can't be read, or a file is over 2 GiB.
pub async fn sent(dir: &Path) -> io::Result<Vec<Arc<Recorded>>> {
    let mut names = Vec::new();
    let mut entries = tokio::fs::read_dir(dir).await?;
    while let Some(entry) = entries.next_entry().await? {
        let name = entry.path();
        if name
            .extension()
            .is_some_and(|extension| extension == EXTENSION)
        {
            names.push(name);
        }
    }
    names.sort();
    let mut requests = Vec::new();
    for (connection, name) in names.iter().enumerate() {
        if tokio::fs::metadata(name).await?.len() > MAX_TAPE_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "recording of a connection is over 2 GiB",
            ));
        }
        let mut reader = Reader {
            connection,
            requests: &mut requests,
        };
        reader.read(&tokio::fs::read(name).await?);
    }
    Ok(requests)
}

struct Reader<'a> {
    connection: usize,
    requests: &'a mut Vec<Arc<Recorded>>,
}

impl Reader<'_> {
    fn read(&mut self, tape: &[u8]) {
        let mut cutter = Cutter::new();
        cutter.buffer().extend_from_slice(tape);
        let (mut last, mut body) = (Head::default(), BytesMut::new());
        while let Some(piece) = cutter.next_piece() {
            match piece {
                Piece::Head(head, _) => last = head,
                Piece::Body(bytes) => body.extend_from_slice(&bytes),
                Piece::End => {
                    let kind = if last.is_upgrade() {
                        Kind::Upgrade
                    } else {
                        Kind::Http
                    };
                    self.add(kind, &last, body.split().freeze());
                }
                Piece::Rest(frames) if last.is_upgrade() => self.messages(&last, &frames),
                Piece::Framing(_) | Piece::Rest(_) => {}
            }
        }
    }

    fn messages(&mut self, head: &Head, mut frames: &[u8]) {
        let mut message = BytesMut::new();
        while let Parsed::Head { head: frame, size } = FrameHead::parse(frames) {
            frames.advance(size);
            let length = usize::try_from(frame.length).ok();
            let Some((payload, rest)) = length.and_then(|length| frames.split_at_checked(length))
            else {
                return;
            };
            frames = rest;
            if !matches!(
                frame.opcode,
                OpCode::Continuation | OpCode::Text | OpCode::Binary
            ) {
                continue;
            }
            let start = message.len();
            message.extend_from_slice(payload);
            if let (Some(key), Some(fresh)) = (frame.mask, message.get_mut(start..)) {
                apply_mask(fresh, key, 0);
            }
            if frame.fin {
                self.add(Kind::Message, head, message.split().freeze());
            }
        }
    }

    fn add(&mut self, kind: Kind, head: &Head, body: Bytes) {
        let number = self.requests.len();
        let request = Recorded::new(number, self.connection, kind, head.clone(), body);
        self.requests.push(Arc::new(request));
    }
}

/// What the recording of a connection is called, so that names sort in the order of opening.
pub(super) fn file_name(number: usize) -> String {
    format!("{number:08}.{EXTENSION}")
}

const EXTENSION: &str = "sent";

const MAX_TAPE_BYTES: u64 = 2 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    /// Appends a masked frame.
    fn frame(first: u8, payload: &[u8], tape: &mut Vec<u8>) {
        let key = [1, 2, 3, 4];
        tape.extend_from_slice(&[first, 0x80 | u8::try_from(payload.len()).unwrap()]);
        tape.extend_from_slice(&key);
        let start = tape.len();
        tape.extend_from_slice(payload);
        apply_mask(&mut tape[start..], key, 0);
    }

    #[tokio::test]
    async fn fragments_of_a_message_are_joined_around_a_ping() {
        let dir = tempfile::tempdir().unwrap();
        let mut tape = b"GET /r HTTP/1.1\r\nUpgrade: websocket\r\n\r\n".to_vec();
        frame(0x01, b"{\"a\":", &mut tape);
        frame(0x89, b"ping", &mut tape);
        frame(0x80, b"1}", &mut tape);
        frame(0x81, b"two", &mut tape);
        frame(0x81, b"cut off", &mut tape);
        tape.truncate(tape.len() - 1);
        std::fs::write(dir.path().join(file_name(1)), &tape).unwrap();
        let post = "POST /p HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi";
        std::fs::write(dir.path().join(file_name(0)), post).unwrap();
        let sent = sent(dir.path()).await.unwrap();
        let sent: Vec<_> = sent
            .iter()
            .map(|request| (request.connection, request.kind, &request.body[..]))
            .collect();
        let expected = [
            (0, Kind::Http, &b"hi"[..]),
            (1, Kind::Upgrade, b""),
            (1, Kind::Message, b"{\"a\":1}"),
            (1, Kind::Message, b"two"),
        ];
        assert_eq!(sent, expected);
    }
}
