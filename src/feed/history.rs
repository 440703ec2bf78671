//! What codex wrote down of a thread before this process: whether a section of ours still holds there.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use memchr::memmem;
use nix::fcntl::OFlag;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::base::limits::{CONTEXT_DEADLINE, HISTORY_CHUNK_BYTES, MAX_HISTORY_BYTES};
use crate::context::orders::{REPLACEMENT_HEAD, SECTION_OPENS};

/// Whether the last that the history at `path` says of a section is the section itself.
///
/// What can't be read says nothing.
pub async fn has_section(path: PathBuf) -> bool {
    let reading = spawn_blocking(move || scan(&path));
    match timeout(CONTEXT_DEADLINE, reading).await {
        Ok(Ok(Ok(has))) => has,
        Ok(Ok(Err(error))) => {
            tracing::debug!(%error, "a thread's history can't be read");
            false
        }
        Ok(Err(_)) | Err(_) => false,
    }
}

fn scan(path: &Path) -> io::Result<bool> {
    let flags = OFlag::O_NONBLOCK.bits();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(false);
    }
    last_is_section(file.take(MAX_HISTORY_BYTES))
}

/// A message that replaces older texts begins with its head: a section behind it holds.
fn last_is_section(mut from: impl Read) -> io::Result<bool> {
    let words = [SECTION_OPENS.as_bytes(), REPLACEMENT_HEAD.as_bytes()];
    let overlap = words.map(<[u8]>::len).into_iter().max().unwrap_or(1) - 1;
    let mut window = Vec::with_capacity(HISTORY_CHUNK_BYTES + overlap);
    let mut last: [Option<u64>; 2] = [None; 2];
    let mut begin = 0_u64;
    loop {
        let limit = u64::try_from(HISTORY_CHUNK_BYTES).unwrap_or(u64::MAX);
        if (&mut from).take(limit).read_to_end(&mut window)? == 0 {
            let [section, replaced] = last;
            return Ok(section.is_some() && section > replaced);
        }
        for (place, word) in last.iter_mut().zip(words) {
            let found = memmem::rfind(&window, word);
            let found = found.and_then(|at| u64::try_from(at).ok());
            *place = found.map(|at| begin + at).or(*place);
        }
        let gone = window.len().saturating_sub(overlap);
        window.drain(..gone);
        begin += u64::try_from(gone).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(text: &str) -> bool {
        last_is_section(text.as_bytes()).unwrap()
    }

    #[test]
    fn last_word_counts() {
        assert!(!says("nothing"));
        assert!(says(&format!("a{SECTION_OPENS}b")));
        assert!(says(&format!("{REPLACEMENT_HEAD}replaced {SECTION_OPENS}")));
        assert!(!says(&format!(
            "{SECTION_OPENS} {REPLACEMENT_HEAD}withdrawn"
        )));
    }

    #[test]
    fn word_on_the_border_of_two_reads_is_found() {
        for shift in 0..SECTION_OPENS.len() {
            let before = "x".repeat(HISTORY_CHUNK_BYTES - shift);
            let after = "y".repeat(HISTORY_CHUNK_BYTES);
            assert!(says(&format!("{before}{SECTION_OPENS}{after}")), "{shift}");
        }
    }
}
