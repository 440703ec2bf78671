//! Names of things on the wire, as types that can't be mixed up.

use std::borrow::Borrow;
use std::fmt;

use bytes::Bytes;

use crate::base::limits::MAX_PROFILE_CHARS;

/// The id of a native thread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ThreadId(String);

/// The id of a native turn.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TurnId(String);

/// A random id of one admitted registration: two turns with the same text have two generations.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(String);

/// A JSON-RPC id as its bytes stand on the wire: a number and the string of its digits differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(Bytes);

/// The id of a person's profile: safe as the name of a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfileId(String);

impl ProfileId {
    /// Takes a letter or digit followed by letters, digits, `_` and `-`, 128 characters at most.
    pub fn new(text: &str) -> Option<Self> {
        let first = text.bytes().next()?;
        let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let fits = first.is_ascii_alphanumeric()
            && text.len() <= MAX_PROFILE_CHARS
            && text.bytes().all(is_safe);
        fits.then(|| Self(text.to_owned()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! text_id {
    ($name:ident) => {
        impl $name {
            /// Wraps `text`; an empty id counts as absent (codex sends `""` for none).
            pub fn new(text: impl Into<String>) -> Option<Self> {
                let text = text.into();
                (!text.is_empty()).then_some(Self(text))
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

text_id!(ThreadId);
text_id!(TurnId);
text_id!(Generation);

impl Generation {
    /// Writes 128 random bits as hexadecimal.
    pub fn from_random(bits: [u8; 16]) -> Self {
        Self(hex(&bits))
    }
}

impl RequestId {
    /// Wraps the bytes of an id, quotes included.
    pub fn new(raw: Bytes) -> Self {
        Self(raw)
    }

    /// The bytes of the id, as they must stand in an answer.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Writes `bytes` as lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        for half in [byte >> 4, byte & 0x0F] {
            text.extend(char::from_digit(u32::from(half), 16));
        }
        text
    })
}
