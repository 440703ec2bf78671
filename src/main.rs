//! The program: arguments in, exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(codex_relay::app::dispatch::main(
        std::env::args_os().collect(),
    ))
}
