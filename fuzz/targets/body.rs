#![no_main]
#![allow(dead_code, reason = "the checks of the other targets")]

#[path = "../checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::check_body(data));
