//! The checks of the fuzz targets, on random bytes, the recorded requests and the kept cases.

#[path = "../../fuzz/checks.rs"]
mod checks;

use std::fs;
use std::path::Path;

use proptest::prelude::*;

fn check(target: &str, data: &[u8]) {
    match target {
        "stdio" => checks::check_stdio(data),
        "head" => checks::check_head(data),
        "body" => checks::check_body(data),
        "frames" => checks::check_frames(data),
        "workspace" => {
            let root = tempfile::tempdir().unwrap();
            checks::check_workspace(data, root.path());
        }
        _ => panic!("no target {target}"),
    }
}

fn files_below(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

#[test]
fn cases_that_fuzzing_found_hold() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/cases");
    let mut count = 0;
    for file in files_below(&cases) {
        let target = file
            .parent()
            .and_then(Path::file_name)
            .unwrap()
            .to_str()
            .unwrap();
        check(target, &fs::read(&file).unwrap());
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn recorded_requests_hold() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/requests");
    for file in files_below(&fixtures) {
        let bytes = fs::read(&file).unwrap();
        let is_head = file.extension().is_some_and(|it| it == "head");
        check(if is_head { "head" } else { "body" }, &bytes);
    }
}

/// Bytes that often come near what is read.
fn near() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        prop::sample::select(WORDS).prop_map(|word| word.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..8),
    ];
    prop::collection::vec(word, 0..24).prop_map(|words| words.concat())
}

const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\n",
    ">",
    " ",
    "\\u0069",
    "\0",
    "# heading\n",
    "\"id\":1",
    "\"id\":\"a\"",
    "\"method\":\"turn/start\"",
    "\"method\":\"thread/start\"",
    "\"method\":\"initialize\"",
    "\"params\":{",
    "\"threadId\":\"t\"",
    "\"config\":{}",
    "\"openai_base_url\":\"\"",
    "\"result\":{\"thread\":{\"id\":\"t\"}}",
    "\"instructions\":\"x\"",
    "\"instructions\":null",
    "\"client_metadata\":{",
    "\"x-codex-turn-metadata\":\"{}\"",
    "POST ",
    "GET ",
    "/1111111111111111111111111111111111111111111111111111111111111111/v1/",
    "responses",
    "..",
    "%2e",
    "Host: 127.0.0.1:7",
    "Origin: null",
    "\u{82}\u{7e}",
    "\u{1F600}",
];

proptest! {
    #[test]
    fn any_bytes_hold(data in near()) {
        for target in ["stdio", "head", "body", "frames", "workspace"] {
            check(target, &data);
        }
    }
}
