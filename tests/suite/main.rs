//! The whole test suite, one binary.
