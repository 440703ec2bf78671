//! What is looked for on the other side, and where.

use std::fmt::Write as _;

use data_encoding::BASE64;
use serde_json::Value;

use super::bridge::Record;
use super::far::Far;

/// Something that has no business on the other side.
#[derive(Debug)]
pub(crate) struct Needle {
    pub(crate) name: &'static str,
    pub(crate) text: String,
}

impl Needle {
    /// Names a text.
    pub(crate) fn new(name: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        assert!(text.len() >= 6, "{name}: too short to be looked for");
        Self { name, text }
    }
}

/// Bytes of the other side, and what they are.
#[derive(Debug)]
pub(crate) struct Hay {
    name: String,
    bytes: Vec<u8>,
}

/// All that there is to search on the other side.
#[derive(Debug, Default)]
pub(crate) struct Stack(Vec<Hay>);

impl Stack {
    /// Adds some bytes.
    pub(crate) fn add(&mut self, name: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        let (name, bytes) = (name.into(), bytes.into());
        self.0.push(Hay { name, bytes });
    }

    /// Adds the machine's processes as they are now.
    pub(crate) fn add_processes(&mut self, far: &Far) {
        let processes = far.processes();
        // The server, and the command that it runs.
        assert!(processes.len() >= 2, "{processes:?}");
        for process in processes {
            let name = String::from_utf8_lossy(&process.command).replace('\0', " ");
            self.add(format!("arguments of {name}"), process.command);
            self.add(format!("environment of {name}"), process.environment);
        }
    }

    /// Adds the machine's files as they are now.
    pub(crate) fn add_files(&mut self, far: &Far) {
        for (path, bytes) in far.files() {
            let name = path.strip_prefix(&far.root).unwrap();
            let name = format!("/{}", name.display());
            self.add(format!("name of {name}"), name.clone());
            self.add(name, bytes);
        }
    }

    /// Adds what has passed over a bridge.
    pub(crate) fn add_record(&mut self, record: &Record) {
        for head in &record.heads {
            self.add("head of the WebSocket", head.clone());
        }
        for message in &record.messages {
            self.add_message(message);
        }
    }

    /// Adds what has passed on a pipe: a message a line.
    pub(crate) fn add_lines(&mut self, lines: &[u8]) {
        for line in lines
            .split(|byte| *byte == b'\n')
            .filter(|it| !it.is_empty())
        {
            self.add_message(line);
        }
    }

    /// Adds one JSON-RPC message, and all that is in it as base64.
    pub(crate) fn add_message(&mut self, message: &[u8]) {
        let text = String::from_utf8_lossy(message).into_owned();
        let name: String = text.chars().take(80).collect();
        self.add(format!("message {name}"), message);
        let value = serde_json::from_slice(message);
        let value: Value = value.unwrap_or_else(|error| panic!("{error}: {text}"));
        let mut values = vec![&value];
        while let Some(value) = values.pop() {
            match value {
                Value::String(text) => {
                    if let Ok(bytes) = BASE64.decode(text.as_bytes()) {
                        self.add(format!("base64 in message {name}"), bytes);
                    }
                }
                Value::Array(items) => values.extend(items),
                Value::Object(members) => values.extend(members.values()),
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
    }

    /// Where a text is.
    pub(crate) fn places_of(&self, text: &str) -> Vec<&str> {
        let holds = |hay: &&Hay| memchr::memmem::find(&hay.bytes, text.as_bytes()).is_some();
        let found = self.0.iter().filter(holds);
        found.map(|hay| hay.name.as_str()).collect()
    }

    /// Asserts that no needle is anywhere, and prints what was searched.
    #[expect(clippy::print_stderr, reason = "the figures of the search")]
    pub(crate) fn assert_without(&self, needles: &[Needle]) {
        let bytes: usize = self.0.iter().map(|it| it.bytes.len()).sum();
        let mut report = format!("{} pieces, {bytes} bytes:", self.0.len());
        for needle in needles {
            let places = self.places_of(&needle.text);
            write!(report, " {} in {},", needle.name, places.len()).unwrap();
            assert!(places.is_empty(), "{} is in {places:?}", needle.name);
        }
        eprintln!("{report}");
    }
}
