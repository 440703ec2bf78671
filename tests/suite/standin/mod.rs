//! The relay in front of programs that do what a codex should not.

mod detached;
mod endings;
mod faults;
mod fidelity;
mod leftovers;
mod long_lines;
mod strangers;
mod told;
