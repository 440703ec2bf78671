//! The members of a request body that decide, as ranges into it.

use std::ops::Range;

use crate::wire::envelope::text;
use crate::wire::scan::{self, Found, Members, ScanError};

/// What was found in a body or message.
#[derive(Debug, PartialEq, Eq)]
pub struct Body {
    /// `instructions`.
    pub instructions: Found,
    /// Every copy of `client_metadata`.
    pub metadata: Vec<Range<usize>>,
    /// Whether a copy of `type` says `response.create`.
    pub is_create: bool,
    /// Where the first member begins, or the closing brace of an empty object.
    pub first: usize,
    /// Whether there is no member at all.
    pub is_empty: bool,
    /// Why the scan ended before the end of the body.
    pub fault: Option<ScanError>,
}

impl Body {
    /// Reads `bytes` as far as they are JSON; what was found before a fault is kept.
    pub fn read(bytes: &[u8]) -> Self {
        let mut body = Self {
            instructions: Found::default(),
            metadata: Vec::new(),
            is_create: false,
            first: 0,
            is_empty: true,
            fault: None,
        };
        body.fault = body.scan(bytes).err();
        body
    }

    fn scan(&mut self, bytes: &[u8]) -> Result<(), ScanError> {
        // Behind a byte order mark no JSON begins; what stands there still says whose it is.
        let start = if bytes.starts_with(BYTE_ORDER_MARK) {
            BYTE_ORDER_MARK.len()
        } else {
            0
        };
        let mut members = Members::at(bytes, start)?;
        self.first = members.position();
        while let Some(member) = members.next_member()? {
            self.is_empty = false;
            match &*scan::name(bytes, &member.key) {
                b"instructions" => {
                    self.instructions.count += 1;
                    self.instructions.last = Some(member.value);
                }
                b"client_metadata" => self.metadata.push(member.value),
                b"type" => {
                    let text = text(bytes, &member.value);
                    self.is_create |= text.as_deref() == Some("response.create");
                }
                _ => {}
            }
        }
        if start > 0 {
            return Err(ScanError::Syntax { at: 0 });
        }
        scan::ends_at(bytes, members.position())
    }
}

/// U+FEFF in UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
