//! The account of a prepared context: what each source gave, and what became of it.

use std::fmt;

use crate::base::limits::MAX_FILE_BYTES;

/// What one source contributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its path below the workspace root, or its name where it is no file.
    pub path: String,
    /// How it reaches the model.
    pub carrier: Carrier,
    /// Its own size in bytes.
    pub raw_bytes: usize,
    /// Its share of what the model sees, headings included.
    pub injected_bytes: usize,
    /// What was done to it.
    pub treatment: Treatment,
}

/// How a source reaches the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The instructions of the parent's requests.
    Context,
    /// A message of its own in the thread.
    Reference,
}

impl Carrier {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Context => "context",
            Self::Reference => "reference",
        }
    }
}

/// What was done to a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// All of it is there.
    Whole,
    /// A part of it is there.
    Cut {
        /// How long it was, in Unicode scalar values.
        chars: usize,
        /// How many of them are there.
        kept: usize,
        /// Why.
        why: Why,
    },
    /// Nothing of it is there.
    LeftOut(Why),
}

/// Why a source isn't there as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is empty, or white space.
    Blank,
    /// It is over the budget of a file like it, in Unicode scalar values.
    FileBudget(usize),
    /// It is one person's, and children may see what this thread is told.
    Inherited,
    /// The kind of turn does without it.
    Kind,
    /// It is longer than what is read of a file.
    ReadBound,
    /// Tools give the model what it needs of it.
    Tools,
    /// The files before it have used up the budget of all.
    TotalBudget(usize),
}

impl Treatment {
    /// Whether somebody should be told: something was lost that its owner wanted there.
    pub fn is_loss(self) -> bool {
        match self {
            Self::Whole | Self::LeftOut(Why::Blank | Why::Kind | Why::Tools) => false,
            Self::Cut { .. }
            | Self::LeftOut(
                Why::FileBudget(_) | Why::Inherited | Why::ReadBound | Why::TotalBudget(_),
            ) => true,
        }
    }
}

impl fmt::Display for Treatment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("whole"),
            Self::Cut { chars, kept, why } => {
                write!(f, "cut from {chars} characters to {kept}: {why}")
            }
            Self::LeftOut(why) => write!(f, "left out: {why}"),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blank => f.write_str("it is blank"),
            Self::FileBudget(chars) => write!(f, "its budget is {chars} characters"),
            Self::Inherited => {
                f.write_str("the thread has no route, and children may see what it is told")
            }
            Self::Kind => f.write_str("this kind of turn does without it"),
            Self::ReadBound => write!(f, "{MAX_FILE_BYTES} bytes are read of a file"),
            Self::Tools => f.write_str("memory tools serve it"),
            Self::TotalBudget(chars) => {
                write!(f, "the budget of all files is {chars} characters")
            }
        }
    }
}
