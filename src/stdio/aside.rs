//! Reading of long lines where it holds nobody up.

use std::io;

use tokio::task::spawn_blocking;

use crate::base::limits::LIGHT_LINE_BYTES;

/// Reads a line of `bytes`: a long one on a thread of its own, while everything else goes on.
///
/// # Errors
/// Where the reader has failed.
pub(super) async fn read_aside<T: Send + 'static>(
    bytes: usize,
    read: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    if bytes <= LIGHT_LINE_BYTES {
        return Ok(read());
    }
    spawn_blocking(read).await.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn everything_else_goes_on_while_a_long_line_is_read() {
        let (say, said) = mpsc::channel();
        let read = move || said.recv_timeout(Duration::from_mins(1));
        let reading = read_aside(LIGHT_LINE_BYTES + 1, read);
        let (read, sent) = tokio::join!(reading, async move { say.send(7) });
        sent.unwrap();
        assert_eq!(read.unwrap(), Ok(7));
    }
}
