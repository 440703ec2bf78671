//! `codex-relay tap`: stands where a relay expects codex, and writes down what codex really sends.
//!
//! The tap starts the real codex, and puts itself between codex and the private route that the
//! relay writes into its thread requests. Demo and tests compare its recordings with what arrives
//! at the model endpoint. It is a witness, not part of the relay: never used otherwise.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use bytes::Bytes;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::link::{Links, prepare};
use crate::base::exit::ExitReason;
use crate::base::limits::{MAX_LINE_BYTES, PIPE_READ_BYTES};
use crate::wire::lines::{LineFramer, Piece};

/// What a tap is to do.
#[derive(Clone, Debug)]
pub struct TapConfig {
    /// The real codex.
    pub codex: PathBuf,
    /// Its arguments, as the relay gave them.
    pub arguments: Vec<OsString>,
    /// The folder for the recordings; made if need be.
    pub record: PathBuf,
}

/// Runs codex behind a tap until codex ends, and returns its exit code (`128 + n` after signal n).
///
/// Standard input goes to codex line by line, its end included; standard output and error are
/// codex's own. TERM, INT and HUP go to codex as they come. The read of standard input may still
/// wait when this returns: end the runtime by `shutdown_background`.
///
/// # Errors
/// Codex can't be started or waited for, the folder can't be made, or no port can be opened.
pub async fn run(config: TapConfig) -> io::Result<u8> {
    let mut links = Links::new(prepare(&config.record).await?);
    let mut codex = Command::new(&config.codex)
        .args(&config.arguments)
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdin = codex.stdin.take();
    let feed = async {
        if let Some(stdin) = stdin {
            match feed(stdin, &mut links).await {
                // When codex stops reading it is about to end, and its end is what counts.
                Err(fault) if fault.kind() != io::ErrorKind::BrokenPipe => return fault,
                Ok(()) | Err(_) => {}
            }
        }
        std::future::pending().await
    };
    tokio::select! {
        ended = wait(&mut codex) => Ok(code(ended?)),
        fault = feed => Err(fault),
    }
}

async fn wait(codex: &mut Child) -> io::Result<ExitStatus> {
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    loop {
        let passed_on = tokio::select! {
            ended = codex.wait() => return ended,
            _ = term.recv() => Signal::SIGTERM,
            _ = interrupt.recv() => Signal::SIGINT,
            _ = hangup.recv() => Signal::SIGHUP,
        };
        if let Some(id) = codex.id().and_then(|id| i32::try_from(id).ok()) {
            let _ = kill(Pid::from_raw(id), passed_on);
        }
    }
}

fn code(ended: ExitStatus) -> u8 {
    let reason = match (ended.code(), ended.signal()) {
        (Some(code), _) => ExitReason::CodexCode(code),
        (None, Some(signal)) => ExitReason::CodexSignal(signal),
        (None, None) => ExitReason::RelayFault,
    };
    reason.code()
}

async fn feed(mut codex: ChildStdin, links: &mut Links) -> io::Result<()> {
    let mut stdin = tokio::io::stdin();
    let mut framer = LineFramer::new(MAX_LINE_BYTES);
    loop {
        framer.buffer().reserve(PIPE_READ_BYTES);
        let read = stdin.read_buf(framer.buffer()).await?;
        while let Some(piece) = framer.next_piece() {
            pass(piece, &mut codex, links).await?;
        }
        if read == 0 {
            if let Some(piece) = framer.finish() {
                pass(piece, &mut codex, links).await?;
            }
            // Dropping the pipe is what closes it.
            return Ok(());
        }
    }
}

async fn pass(piece: Piece, codex: &mut ChildStdin, links: &mut Links) -> io::Result<()> {
    let line = match piece {
        Piece::Line(line) => rerouted(line, links).await?,
        Piece::LongHead(part) | Piece::LongRest(part) => part,
    };
    codex.write_all(&line).await
}

/// Puts the tap's port into every private route of a line.
async fn rerouted(line: Bytes, links: &mut Links) -> io::Result<Bytes> {
    let mut out = Cow::Borrowed(&line[..]);
    let mut from = 0;
    while let Some((start, end)) = port_after(&out, from) {
        let port = out
            .get(start..end)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let Some(port) = port.and_then(|digits| digits.parse().ok()) else {
            from = end;
            continue;
        };
        let own = links.in_front_of(port).await?.to_string();
        from = start + own.len();
        out.to_mut().splice(start..end, own.into_bytes());
    }
    Ok(match out {
        Cow::Borrowed(_) => line,
        Cow::Owned(edited) => edited.into(),
    })
}

/// Finds the digits of a loopback port in the value of an `openai_base_url`.
fn port_after(line: &[u8], from: usize) -> Option<(usize, usize)> {
    let mut from = from;
    loop {
        let key = memchr::memmem::find(line.get(from..)?, KEY)?;
        from = from + key + KEY.len();
        let rest = line.get(from..)?;
        let space = |rest: &[u8]| {
            rest.iter()
                .take_while(|byte| byte.is_ascii_whitespace())
                .count()
        };
        let colon = space(rest);
        let after = colon + 1 + space(rest.get(colon + 1..).unwrap_or_default());
        let value = rest.get(after..).unwrap_or_default();
        if rest.get(colon) != Some(&b':') || !value.starts_with(LOOPBACK) {
            continue;
        }
        let start = from + after + LOOPBACK.len();
        let digits = line
            .get(start..)?
            .iter()
            .take_while(|byte| byte.is_ascii_digit());
        return Some((start, start + digits.count()));
    }
}

/// The end of the member's name, so that a dotted spelling counts too.
const KEY: &[u8] = b"openai_base_url\"";

const LOOPBACK: &[u8] = b"\"http://127.0.0.1:";

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_private_route_of_a_line_is_led_through_the_tap() {
        let dir = tempfile::tempdir().unwrap();
        let mut links = Links::new(dir.path().to_owned());
        let line = br#"{"openai_base_url":"http://127.0.0.1:1/s/v1","x":{"a.openai_base_url" : "http://127.0.0.1:1/"},"openai_base_url":"https://else","text":"http://127.0.0.1:1/"}"#;
        let edited = rerouted(Bytes::from_static(line), &mut links)
            .await
            .unwrap();
        let own = links.in_front_of(1).await.unwrap();
        let expected = format!(
            r#"{{"openai_base_url":"http://127.0.0.1:{own}/s/v1","x":{{"a.openai_base_url" : "http://127.0.0.1:{own}/"}},"openai_base_url":"https://else","text":"http://127.0.0.1:1/"}}"#
        );
        assert_eq!(edited, expected.as_bytes());
    }
}
