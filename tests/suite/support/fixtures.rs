//! The recorded requests under `fixtures/requests`.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// One recorded request. What its name means: `fixtures/README.md`.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) version: String,
    /// `chatgpt` or `api-key`.
    pub(crate) login: &'static str,
    /// The name without the transport.
    pub(crate) purpose: String,
    /// Request line and headers, one a line.
    pub(crate) head: String,
    /// The body or the frame, as it was sent but for compression.
    pub(crate) body: String,
    pub(crate) json: Value,
    /// The object in `x-codex-turn-metadata` of the body.
    pub(crate) metadata: Value,
}

impl Fixture {
    /// The value of a header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut named = lines.filter(|(it, _)| it.eq_ignore_ascii_case(name));
        named.next().map(|(_, value)| value)
    }
}

/// Every recorded model request.
pub(crate) fn recorded() -> Vec<Fixture> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/requests");
    let versions = fs::read_dir(root).unwrap().map(|it| it.unwrap().path());
    let files = versions.flat_map(|it| fs::read_dir(it).unwrap());
    let bodies = files.map(|it| it.unwrap().path());
    let bodies = bodies.filter(|it| it.extension().is_some_and(|it| it == "json"));
    bodies.map(|it| read(&it)).collect()
}

fn read(path: &Path) -> Fixture {
    let name = path.file_stem().unwrap().to_str().unwrap();
    let version = path.parent().unwrap().file_name().unwrap();
    let transports = ["ws-chatgpt-", "http-zstd-", "ws-", "http-"];
    let transport = transports.iter().find(|it| name.starts_with(**it)).unwrap();
    let body = fs::read_to_string(path).unwrap();
    let json: Value = serde_json::from_str(&body).unwrap();
    let metadata = json["client_metadata"]["x-codex-turn-metadata"].as_str();
    Fixture {
        version: version.to_str().unwrap().to_owned(),
        login: match *transport {
            "ws-" | "http-" => "api-key",
            _ => "chatgpt",
        },
        purpose: name.trim_start_matches(transport).to_owned(),
        head: fs::read_to_string(path.with_extension("head")).unwrap(),
        metadata: serde_json::from_str(metadata.unwrap()).unwrap(),
        body,
        json,
    }
}
