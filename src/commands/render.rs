//! What a turn would get: the context byte for byte, and its account.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::context::account::{Source, Treatment};
use crate::context::compose::Prepared;
use crate::context::digest::Digest;
use crate::context::reference;
use crate::context::turn_kind::TurnKind;
use crate::context::wish::Wish;
use crate::feed::source::{Feed, Read};
use crate::session::parent::threads::MEMORY_TOOLS;
use crate::workspace::load::LoadError;

/// What is to be rendered, and how.
#[derive(Debug)]
pub struct RenderConfig {
    /// Where contexts come from.
    pub feed: Feed,
    /// The bound of a prepared context.
    pub max_context_bytes: usize,
    /// One JSON object instead of text and account.
    pub is_json: bool,
    /// The tools of the thread.
    pub thread_tools: Vec<String>,
    /// What the turn is for.
    pub kind: TurnKind,
    /// Whether a person reads the text and the account on one screen.
    pub is_terminal: bool,
}

/// What there is to say of the context as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A turn would get it.
    Fits,
    /// A turn would be refused.
    TooLarge,
}

/// Why nothing can be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The workspace can't be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Nobody reads what is said.
    #[error("the context can't be written")]
    Write(#[from] io::Error),
}

impl RenderError {
    /// Whether the reader has seen enough, as `head` does.
    pub fn is_reader_gone(&self) -> bool {
        matches!(self, Self::Write(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Renders the context to `out` and its account to `notes`.
pub fn run(
    config: &RenderConfig,
    out: &mut impl Write,
    notes: &mut impl Write,
) -> Result<Verdict, RenderError> {
    let has_tool = |name: &&str| config.thread_tools.iter().any(|it| it == name);
    let wish = Wish {
        kind: config.kind,
        profile: None,
        has_memory_tools: MEMORY_TOOLS.iter().all(has_tool),
        folder: std::env::current_dir().ok(),
        ..Wish::default()
    };
    let read = match &config.feed {
        Feed::Nobody => Read {
            prepared: Prepared::nothing(),
            notes: vec!["no context: --context is none".to_owned()],
        },
        Feed::Client(local) => {
            let mut read = local.read(&wish)?;
            let note = "--context is client: what the client gives comes with its turns".to_owned();
            read.notes.push(note);
            read
        }
        Feed::Local(local) => {
            let mut read = local.read(&wish)?;
            if local.workspace.is_none() {
                let note = "no agent workspace: write one with codex-relay init".to_owned();
                read.notes.push(note);
            }
            read
        }
    };
    let limit = config.max_context_bytes;
    if config.is_json {
        serde_json::to_writer_pretty(&mut *out, &account(&read, limit)).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        out.write_all(read.prepared.snapshot.text().as_bytes())?;
        out.flush()?;
        if config.is_terminal {
            notes.write_all(b"\n\n")?;
        }
        tell(&read, limit, notes)?;
    }
    out.flush()?;
    Ok(if read.prepared.snapshot.text().len() > limit {
        Verdict::TooLarge
    } else {
        Verdict::Fits
    })
}

fn account(read: &Read, limit: usize) -> Value {
    let prepared = &read.prepared;
    let text = prepared.snapshot.text();
    let source = |source: &Source| {
        let why = match source.treatment {
            Treatment::Whole => Value::Null,
            Treatment::Cut { why, .. } | Treatment::LeftOut(why) => why.to_string().into(),
        };
        json!({
            "path": source.path,
            "carrier": source.carrier.word(),
            "rawBytes": source.raw_bytes,
            "injectedBytes": source.injected_bytes,
            "cut": matches!(source.treatment, Treatment::Cut { .. }),
            "leftOut": matches!(source.treatment, Treatment::LeftOut(_)),
            "why": why,
        })
    };
    let file = |file: &reference::Reference| json!({ "path": file.path, "bytes": file.text.len(), "sha256": file.digest.to_string() });
    let block = block(prepared);
    json!({
        "context": {
            "text": text,
            "bytes": text.len(),
            "limit": limit,
            "tooLarge": text.len() > limit,
            "estimatedTokens": tokens(text),
            "sha256": Digest::of(text).to_string(),
        },
        "references": {
            "text": block,
            "bytes": block.len(),
            "estimatedTokens": tokens(&block),
            "files": prepared.references.iter().map(file).collect::<Vec<_>>(),
        },
        "sources": prepared.account.iter().map(source).collect::<Vec<_>>(),
        "warnings": prepared.warnings,
        "notes": read.notes,
    })
}

fn tell(read: &Read, limit: usize, notes: &mut impl Write) -> io::Result<()> {
    let prepared = &read.prepared;
    writeln!(
        notes,
        "{:>9} {:>9}  {:<9}  source",
        "raw", "injected", "carrier"
    )?;
    for source in &prepared.account {
        writeln!(
            notes,
            "{:>9} {:>9}  {:<9}  {}: {}",
            source.raw_bytes,
            source.injected_bytes,
            source.carrier.word(),
            source.path,
            source.treatment
        )?;
    }
    let text = prepared.snapshot.text();
    writeln!(
        notes,
        "context: {} bytes of {limit}, about {} tokens, sha256 {}",
        text.len(),
        tokens(text),
        Digest::of(text)
    )?;
    let block = block(prepared);
    if !block.is_empty() {
        writeln!(
            notes,
            "reference block, once per introduction: {} bytes, about {} tokens",
            block.len(),
            tokens(&block)
        )?;
    }
    for note in &read.notes {
        writeln!(notes, "note: {note}")?;
    }
    for warning in &prepared.warnings {
        writeln!(notes, "warning: {warning}")?;
    }
    if text.len() > limit {
        writeln!(
            notes,
            "error: the context is over its limit: turns are refused; reduce the files or their budgets"
        )?;
    }
    Ok(())
}

fn block(prepared: &Prepared) -> String {
    if prepared.references.is_empty() {
        String::new()
    } else {
        reference::block(&prepared.references)
    }
}

/// The rule of thumb that codex uses itself: four bytes are a token.
fn tokens(text: &str) -> usize {
    text.len().div_ceil(4)
}
