#![no_main]
#![allow(dead_code, reason = "the checks of the other targets")]

#[path = "../checks.rs"]
mod checks;

use std::sync::OnceLock;

static ROOT: OnceLock<tempfile::TempDir> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let root = ROOT.get_or_init(|| tempfile::tempdir().unwrap());
    checks::check_workspace(data, root.path());
});
