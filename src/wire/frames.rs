//! WebSocket frames (RFC 6455, section 5) as heads and masks: no IO, no assembly.

/// Longest frame head: 2 bytes, an 8-byte length, a 4-byte mask.
pub const MAX_HEAD_BYTES: usize = 14;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpCode {
    /// Data that belongs to no message kind of its own: the rest of a fragmented message.
    Continuation,
    /// The first or only fragment of a text message.
    Text,
    /// The first or only fragment of a binary message.
    Binary,
    /// The end of the connection, with a code and a reason.
    Close,
    /// A question for a sign of life.
    Ping,
    /// The answer to a ping.
    Pong,
    /// A number that the RFC reserves.
    Reserved(u8),
}

impl OpCode {
    /// Whether the frame controls the connection: never fragmented, at most 125 bytes.
    pub fn is_control(self) -> bool {
        match self {
            Self::Close | Self::Ping | Self::Pong => true,
            Self::Reserved(bits) => bits >= 8,
            Self::Continuation | Self::Text | Self::Binary => false,
        }
    }

    fn from_bits(bits: u8) -> Self {
        match bits {
            0x0 => Self::Continuation,
            0x1 => Self::Text,
            0x2 => Self::Binary,
            0x8 => Self::Close,
            0x9 => Self::Ping,
            0xA => Self::Pong,
            other => Self::Reserved(other),
        }
    }

    fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0x0,
            Self::Text => 0x1,
            Self::Binary => 0x2,
            Self::Close => 0x8,
            Self::Ping => 0x9,
            Self::Pong => 0xA,
            Self::Reserved(bits) => bits & 0x0F,
        }
    }
}

/// The head of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Whether this is the last fragment of its message.
    pub fin: bool,
    /// The three reserved bits, in their place (`0x70`).
    pub reserved: u8,
    /// What the frame carries.
    pub opcode: OpCode,
    /// The masking key; frames from a client always have one.
    pub mask: Option<[u8; 4]>,
    /// Bytes of payload that follow the head.
    pub length: u64,
}

/// Who sends a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// Whoever opened the connection: it masks.
    Client,
    /// Whoever answered: it doesn't.
    Server,
}

/// How a sender breaks the protocol (RFC 6455, sections 5 and 7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    /// The code of a close frame isn't one that may be sent, or half of it is missing.
    #[error("a close frame without a valid code")]
    CloseCode,
    /// The reason of a close frame isn't UTF-8.
    #[error("a close reason that is not UTF-8")]
    CloseReason,
    /// A control frame is a fragment.
    #[error("a control frame in fragments")]
    FragmentedControl,
    /// A 64-bit length has its highest bit set.
    #[error("a frame of an impossible length")]
    Length,
    /// A control frame has more than 125 bytes.
    #[error("a control frame of more than 125 bytes")]
    LongControl,
    /// A frame of a client has no mask, or one of a server has one.
    #[error("a frame with the wrong masking")]
    Mask,
    /// A fragment continues nothing.
    #[error("a continuation of no message")]
    NoMessage,
    /// A message begins in the middle of another.
    #[error("a message within a fragmented one")]
    OpenMessage,
    /// The frame has a kind that the RFC reserves.
    #[error("a frame of a reserved kind")]
    OpCode,
    /// An extension is used that nobody agreed on.
    #[error("a reserved bit without an extension")]
    ReservedBits,
}

impl Breach {
    /// The code to close the connection with (RFC 6455, section 7.4.1).
    pub fn close_code(self) -> u16 {
        match self {
            Self::CloseReason => 1007,
            Self::CloseCode
            | Self::FragmentedControl
            | Self::Length
            | Self::LongControl
            | Self::Mask
            | Self::NoMessage
            | Self::OpenMessage
            | Self::OpCode
            | Self::ReservedBits => 1002,
        }
    }
}

/// Checks the payload of a close frame.
pub fn check_close(payload: &[u8]) -> Result<(), Breach> {
    let Some((code, reason)) = payload.split_first_chunk() else {
        return if payload.is_empty() {
            Ok(())
        } else {
            Err(Breach::CloseCode)
        };
    };
    if !matches!(u16::from_be_bytes(*code), 1000..=1003 | 1007..=1014 | 3000..=4999) {
        return Err(Breach::CloseCode);
    }
    match std::str::from_utf8(reason) {
        Ok(_) => Ok(()),
        Err(_) => Err(Breach::CloseReason),
    }
}

/// What stands at the start of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A head of `size` bytes.
    Head {
        /// The head.
        head: FrameHead,
        /// Bytes that the head itself takes.
        size: usize,
    },
    /// The head isn't complete yet.
    Incomplete,
    /// No head can begin like this: a 64-bit length with its highest bit set.
    Invalid,
}

impl FrameHead {
    /// Makes the head of a whole unmasked message, or of its last fragment.
    pub fn last(opcode: OpCode, length: u64) -> Self {
        Self {
            fin: true,
            reserved: 0,
            opcode,
            mask: None,
            length,
        }
    }

    /// Checks that `sender` may send the frame; `is_open` says that a fragmented message is under way.
    pub fn check(&self, sender: Sender, is_open: bool) -> Result<(), Breach> {
        let is_masked = self.mask.is_some();
        let breach = match self.opcode {
            _ if self.reserved != 0 => Breach::ReservedBits,
            OpCode::Reserved(_) => Breach::OpCode,
            _ if is_masked != (sender == Sender::Client) => Breach::Mask,
            OpCode::Close | OpCode::Ping | OpCode::Pong if !self.fin => Breach::FragmentedControl,
            OpCode::Close | OpCode::Ping | OpCode::Pong if self.length > MAX_CONTROL_BYTES => {
                Breach::LongControl
            }
            OpCode::Continuation if !is_open => Breach::NoMessage,
            OpCode::Text | OpCode::Binary if is_open => Breach::OpenMessage,
            OpCode::Close
            | OpCode::Ping
            | OpCode::Pong
            | OpCode::Continuation
            | OpCode::Text
            | OpCode::Binary => return Ok(()),
        };
        Err(breach)
    }

    /// Reads the head at the start of `bytes`.
    pub fn parse(bytes: &[u8]) -> Parsed {
        let (Some(&first), Some(&second)) = (bytes.first(), bytes.get(1)) else {
            return Parsed::Incomplete;
        };
        let (length, after_length) = match second & 0x7F {
            LENGTH_IS_16_BITS => match bytes.get(2..4).and_then(|raw| raw.try_into().ok()) {
                Some(raw) => (u64::from(u16::from_be_bytes(raw)), 4),
                None => return Parsed::Incomplete,
            },
            LENGTH_IS_64_BITS => match bytes.get(2..10).and_then(|raw| raw.try_into().ok()) {
                Some(raw) => (u64::from_be_bytes(raw), 10),
                None => return Parsed::Incomplete,
            },
            short => (u64::from(short), 2),
        };
        if length >> 63 == 1 {
            return Parsed::Invalid;
        }
        let (mask, size) = if second & 0x80 == 0 {
            (None, after_length)
        } else {
            let Some(key) = bytes
                .get(after_length..after_length + 4)
                .and_then(|raw| raw.try_into().ok())
            else {
                return Parsed::Incomplete;
            };
            (Some(key), after_length + 4)
        };
        Parsed::Head {
            head: Self {
                fin: first & 0x80 != 0,
                reserved: first & 0x70,
                opcode: OpCode::from_bits(first & 0x0F),
                mask,
                length,
            },
            size,
        }
    }

    /// Appends the head to `out`, its length in the shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let fin = if self.fin { 0x80 } else { 0 };
        out.push(fin | self.reserved & 0x70 | self.opcode.bits());
        let masked = if self.mask.is_some() { 0x80 } else { 0 };
        match (u8::try_from(self.length), u16::try_from(self.length)) {
            (Ok(short), _) if short < LENGTH_IS_16_BITS => out.push(masked | short),
            (_, Ok(medium)) => {
                out.push(masked | LENGTH_IS_16_BITS);
                out.extend_from_slice(&medium.to_be_bytes());
            }
            _ => {
                out.push(masked | LENGTH_IS_64_BITS);
                out.extend_from_slice(&self.length.to_be_bytes());
            }
        }
        if let Some(key) = self.mask {
            out.extend_from_slice(&key);
        }
    }
}

/// Applies `key` to `payload`, whose first byte is number `offset` of its frame.
///
/// Masking and unmasking are the same act.
pub fn apply_mask(payload: &mut [u8], key: [u8; 4], offset: usize) {
    let mut turned = key;
    turned.rotate_left(offset % 4);
    let wide = u64::from_ne_bytes([
        turned[0], turned[1], turned[2], turned[3], turned[0], turned[1], turned[2], turned[3],
    ]);
    let mut words = payload.chunks_exact_mut(8);
    for word in &mut words {
        let mut raw = [0; 8];
        raw.copy_from_slice(word);
        word.copy_from_slice(&(u64::from_ne_bytes(raw) ^ wide).to_ne_bytes());
    }
    for (byte, key) in words.into_remainder().iter_mut().zip(turned.iter().cycle()) {
        *byte ^= key;
    }
}

/// The payload of a control frame.
const MAX_CONTROL_BYTES: u64 = 125;

/// The 7-bit length that announces a 16-bit one behind it.
const LENGTH_IS_16_BITS: u8 = 0x7E;

/// The 7-bit length that announces a 64-bit one behind it.
const LENGTH_IS_64_BITS: u8 = 0x7F;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_every_length_form_survive_a_round_trip() {
        for length in [0, 125, 126, 65_535, 65_536, 33_554_433, (1 << 63) - 1] {
            for mask in [None, Some([1, 2, 3, 4])] {
                let head = FrameHead {
                    fin: length % 2 == 0,
                    reserved: 0,
                    opcode: OpCode::Text,
                    mask,
                    length,
                };
                let mut bytes = Vec::new();
                head.encode(&mut bytes);
                let size = bytes.len();
                assert_eq!(FrameHead::parse(&bytes), Parsed::Head { head, size });
                for short in 0..size {
                    assert_eq!(FrameHead::parse(&bytes[..short]), Parsed::Incomplete);
                }
            }
        }
    }

    #[test]
    fn frames_are_checked_for_whoever_sends_them() {
        let head = |first: u8, length: u8, sender| {
            let mask = if sender == Sender::Client { 0x80 } else { 0 };
            match FrameHead::parse(&[first, mask | length, 0, 200, 1, 2, 3, 4]) {
                Parsed::Head { head, .. } => head,
                Parsed::Incomplete | Parsed::Invalid => panic!("{first:#x}"),
            }
        };
        for sender in [Sender::Client, Sender::Server] {
            let check = |first, length, is_open| head(first, length, sender).check(sender, is_open);
            for (first, is_open) in [
                (0x81, false),
                (0x02, false),
                (0x00, true),
                (0x80, true),
                (0x88, true),
                (0x89, false),
                (0x8A, true),
            ] {
                assert_eq!(check(first, 125, is_open), Ok(()), "{first:#x}");
            }
            for (first, length, is_open, breach) in [
                (0xC1, 0, false, Breach::ReservedBits),
                (0x83, 0, false, Breach::OpCode),
                (0x8B, 0, true, Breach::OpCode),
                (0x09, 0, false, Breach::FragmentedControl),
                (0x8A, 126, false, Breach::LongControl),
                (0x80, 0, false, Breach::NoMessage),
                (0x81, 0, true, Breach::OpenMessage),
            ] {
                assert_eq!(check(first, length, is_open), Err(breach), "{first:#x}");
            }
            let other = match sender {
                Sender::Client => Sender::Server,
                Sender::Server => Sender::Client,
            };
            let swapped = head(0x81, 1, other).check(sender, false);
            assert_eq!(swapped, Err(Breach::Mask));
        }
    }

    #[test]
    fn close_frames_have_a_code_that_may_be_sent_and_a_text() {
        for good in [&b""[..], b"\x03\xe8", b"\x03\xf3bye", b"\x0f\xa0"] {
            assert_eq!(check_close(good), Ok(()), "{good:?}");
        }
        // None, half a code, 999, 1004 to 1006, 1015, 2999, 5000.
        for bad in [
            &b"\x03"[..],
            b"\x03\xe7",
            b"\x03\xec",
            b"\x03\xed",
            b"\x03\xee",
            b"\x03\xf7",
            b"\x0b\xb7",
            b"\x13\x88",
        ] {
            assert_eq!(check_close(bad), Err(Breach::CloseCode), "{bad:?}");
        }
        assert_eq!(check_close(b"\x03\xe8\xff"), Err(Breach::CloseReason));
        assert_eq!(Breach::CloseReason.close_code(), 1007);
    }

    #[test]
    fn length_with_its_highest_bit_set_is_invalid() {
        assert_eq!(
            FrameHead::parse(&[0x81, 127, 0x80, 0, 0, 0, 0, 0, 0, 0]),
            Parsed::Invalid
        );
    }

    #[test]
    fn masking_is_independent_of_where_the_payload_is_cut() {
        let plain: Vec<u8> = (0..100).collect();
        let key = [0x11, 0x22, 0x33, 0x44];
        let whole: Vec<u8> = plain
            .iter()
            .enumerate()
            .map(|(i, b)| b ^ key[i % 4])
            .collect();
        for cut in 0..plain.len() {
            let mut pieces = plain.clone();
            let (head, tail) = pieces.split_at_mut(cut);
            apply_mask(head, key, 0);
            apply_mask(tail, key, cut);
            assert_eq!(pieces, whole);
        }
    }
}
