//! The handshake with a proxy: CONNECT, or SOCKS 5. The proxy resolves the name.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::client::legacy::connect::proxy::SocksV5;
use hyper_util::rt::TokioIo;
use memchr::memmem;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tower_service::Service;

use crate::base::limits::MAX_TUNNEL_HEAD_BYTES;
use crate::upstream::fault::{Fault, Hop, lowest, of_io};
use crate::upstream::proxy::Proxy;

/// Asks the HTTP proxy at the other end of `stream` for a tunnel to `target`, host and port.
pub async fn connect<S>(stream: &mut S, target: &str, proxy: &Proxy) -> Result<(), Fault>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let address = proxy.address();
    let broken = |error: &io::Error| {
        Fault::passing(
            Hop::Proxy,
            format!("{address}: no tunnel: {}", of_io(error)),
        )
    };
    let mut head = format!(
        "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nUser-Agent: codex-relay/{}\r\n",
        env!("CARGO_PKG_VERSION")
    )
    .into_bytes();
    if let Some(login) = proxy.basic() {
        head.extend_from_slice(b"Proxy-Authorization: ");
        head.extend_from_slice(login.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    stream
        .write_all(&head)
        .await
        .map_err(|error| broken(&error))?;
    stream.flush().await.map_err(|error| broken(&error))?;
    let mut answer = Vec::new();
    loop {
        let read = stream.read_buf(&mut answer).await;
        if read.map_err(|error| broken(&error))? == 0 {
            return Err(broken(&io::ErrorKind::UnexpectedEof.into()));
        }
        if let Some(end) = memmem::find(&answer, b"\r\n\r\n") {
            return judge(&answer, end + 4, &address);
        }
        if answer.len() > MAX_TUNNEL_HEAD_BYTES {
            let words = format!("{address}: its answer to CONNECT is too long");
            return Err(Fault::passing(Hop::Proxy, words));
        }
    }
}

/// Reads the answer to CONNECT, whose head is the first `end` bytes.
fn judge(answer: &[u8], end: usize, address: &str) -> Result<(), Fault> {
    let line = answer
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let status = line
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split_once(' '))
        .map(|(_, status)| status);
    let code = status
        .and_then(|status| status.get(..3))
        .and_then(|code| code.parse::<u16>().ok());
    let (Some(status), Some(code)) = (status, code) else {
        let words = format!("{address} doesn't speak HTTP");
        return Err(Fault::lasting(Hop::Proxy, words));
    };
    let shown: String = status
        .chars()
        .filter(|c| !c.is_control())
        .take(MAX_STATUS)
        .collect();
    let words = format!("{address} answered {}", shown.trim_end());
    match code {
        // Whoever speaks before us isn't the upstream: TLS begins with the client.
        200..=299 if answer.len() > end => Err(Fault::lasting(
            Hop::Proxy,
            format!("{words}, and then spoke itself"),
        )),
        200..=299 => Ok(()),
        // Too busy, or the upstream is: another time. Anything else is a rule of the proxy.
        408 | 429 | 500..=599 => Err(Fault::passing(Hop::Proxy, words)),
        _ => Err(Fault::lasting(Hop::Proxy, words)),
    }
}

/// Asks the SOCKS proxy at the other end of `stream` for a connection to `target`.
pub async fn socks(stream: TcpStream, target: Uri, proxy: &Proxy) -> Result<TcpStream, Fault> {
    let mut socks = SocksV5::new(target.clone(), Open(Some(TokioIo::new(stream))));
    if let Some((user, password)) = proxy.plain() {
        socks = socks.with_auth(user.to_owned(), password.to_owned());
    }
    match socks.call(target).await {
        Ok(stream) => Ok(stream.into_inner()),
        Err(error) => {
            let words = lowest(&error);
            let words = words.strip_prefix("SOCKS error: ").unwrap_or(&words);
            let told = format!("{}: SOCKS: {words}", proxy.address());
            // The library keeps its kinds of errors to itself.
            let of_login = ["credentials", "authentication", "not allowed"];
            if of_login.iter().any(|word| words.contains(word)) {
                return Err(Fault::lasting(Hop::Proxy, told));
            }
            Err(Fault::passing(Hop::Proxy, told))
        }
    }
}

/// A connection that is open already.
struct Open(Option<TokioIo<TcpStream>>);

impl Service<Uri> for Open {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let stream = self
            .0
            .take()
            .ok_or_else(|| io::ErrorKind::NotConnected.into());
        Box::pin(async move { stream })
    }
}

/// How much of a status line is shown.
const MAX_STATUS: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(answer: &str) -> Result<(), String> {
        let end = answer.find("\r\n\r\n").unwrap() + 4;
        judge(answer.as_bytes(), end, "p:1").map_err(|fault| format!("{fault} {}", fault.permanent))
    }

    #[test]
    fn answers_of_proxies_are_told_with_their_status() {
        assert_eq!(
            judged("HTTP/1.1 200 Connection established\r\n\r\n"),
            Ok(())
        );
        assert_eq!(judged("HTTP/1.0 204\r\nVia: x\r\n\r\n"), Ok(()));
        for (answer, words) in [
            (
                "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n<html>",
                "proxy p:1 answered 407 Proxy Authentication Required true",
            ),
            ("HTTP/1.1 403 \r\n\r\n", "proxy p:1 answered 403 true"),
            (
                "HTTP/1.1 503 Busy\r\n\r\n",
                "proxy p:1 answered 503 Busy false",
            ),
            ("SSH-2.0-x\r\n\r\n", "proxy p:1 doesn't speak HTTP true"),
            (
                "HTTP/1.1 200 OK\r\n\r\nhi",
                "proxy p:1 answered 200 OK, and then spoke itself true",
            ),
        ] {
            assert_eq!(judged(answer), Err(words.to_owned()), "{answer}");
        }
    }
}
