//! Floor 2: the supervision of one child, as a machine without IO.

pub mod machine;
