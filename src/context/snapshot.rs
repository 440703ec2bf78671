//! A rendered context, ready to be spliced in.

use std::fmt;

use bytes::Bytes;
use serde_json::Value;

/// The text for the requests of a turn, with its account of bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Snapshot {
    text: String,
    /// The text as it stands in a JSON string, without quotes: made once, used by every request.
    escaped: Bytes,
    sections: Vec<Section>,
}

/// What one source contributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The source, such as `SOUL.md`.
    pub name: String,
    /// Its share of the rendered text, heading included.
    pub bytes: usize,
}

impl Snapshot {
    /// Takes rendered `text` and what each source contributed.
    pub fn new(text: String, sections: Vec<Section>) -> Self {
        let quoted = Bytes::from(Value::from(text.as_str()).to_string());
        let escaped = quoted.slice(1..quoted.len().saturating_sub(1).max(1));
        Self {
            text,
            escaped,
            sections,
        }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text between the quotes of a JSON literal.
    pub fn escaped(&self) -> &Bytes {
        &self.escaped
    }

    /// The account of bytes, in order.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text is private: a log must not hold it.
        f.debug_struct("Snapshot")
            .field("bytes", &self.text.len())
            .field("sections", &self.sections)
            .finish_non_exhaustive()
    }
}
