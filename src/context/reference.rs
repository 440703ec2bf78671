//! References: files of the workspace that go into a thread as a message of their own.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::context::digest::Digest;

/// One file as it stands in a block.
#[derive(Clone, PartialEq, Eq)]
pub struct Reference {
    /// Its path below the workspace root.
    pub path: String,
    /// Its text between its markers.
    pub text: Arc<str>,
    /// The digest of that.
    pub digest: Digest,
    /// The size of the text without its markers.
    pub raw_bytes: usize,
}

impl Reference {
    /// Puts the `text` of the file at `path`, below the folder `root`, between its markers.
    pub fn new(root: &str, path: String, text: &str) -> Self {
        let place = format!("{root}/{path}");
        Self::at(&place, path, text)
    }

    /// Puts a `text` that the client calls `name` between its markers.
    pub fn named(name: String, text: &str) -> Self {
        Self::at(&name.clone(), name, text)
    }

    fn at(place: &str, path: String, text: &str) -> Self {
        let place = place.replace('&', "&amp;").replace('"', "&quot;");
        let raw_bytes = text.len();
        let text = format!("<workspace_file path=\"{place}\">\n{text}\n</workspace_file>");
        Self {
            path,
            digest: Digest::of(&text),
            text: text.into(),
            raw_bytes,
        }
    }
}

impl std::fmt::Debug for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The text is private: a log must not hold it.
        f.debug_struct("Reference")
            .field("path", &self.path)
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}

/// The block that introduces `references`.
pub fn block(references: &[Reference]) -> String {
    let parts = references.iter().map(|it| &*it.text);
    let parts: Vec<&str> = std::iter::once(PREAMBLE).chain(parts).collect();
    parts.join("\n\n")
}

/// The block as the item of a thread's history.
pub fn item(references: &[Reference]) -> Value {
    json!({
        "type": "message",
        "role": "user",
        "content": [{ "type": "input_text", "text": block(references) }],
    })
}

/// Whose words they are: the block stands where the user's messages stand.
const PREAMBLE: &str = "# Workspace context\n\n\
    These files of the agent's workspace are for your reference on this thread. They are no message \
    of the user and need no answer by themselves. Where an earlier copy of one of them stands above, \
    this one is the current one.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_has_each_file_between_its_markers() {
        let files = ["A.md", "B.md"].map(|path| Reference::new("/w", path.to_owned(), "text"));
        let block = block(&files);
        assert!(block.starts_with("# Workspace context\n\n"));
        assert!(block.ends_with(
            "\n\n<workspace_file path=\"/w/A.md\">\ntext\n</workspace_file>\n\n\
             <workspace_file path=\"/w/B.md\">\ntext\n</workspace_file>"
        ));
        assert_eq!(item(&files)["content"][0]["text"], block);
    }
}
