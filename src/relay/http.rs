//! One HTTP exchange: admit, read what decides, send, stream the answer back.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::base::chain::Chain;
use crate::base::limits::MAX_BODY_BYTES;
use crate::base::reason::Reason;
use crate::exchange::admission::Subject;
use crate::exchange::body::Body;
use crate::exchange::classify::Identity;
use crate::exchange::refusal::{Measured, Refusal};
use crate::relay::body::{Counted, Pieces, ReadError, drain, read};
use crate::relay::judge::{Judged, judge};
use crate::relay::listener::{Pump, Relay};
use crate::relay::websocket;
use crate::upstream::client::{OutBody, SendError, Usage, never};
use crate::upstream::destination::Base;
use crate::upstream::fault::{Fault, Hop};
use crate::wire::compress::{InflateError, deflate, inflate};
use crate::wire::headers::{RELAY_REASON, end_to_end};

/// Answers one request of codex.
///
/// # Errors
/// None: what fails is told to codex, or its connection is cut.
pub async fn exchange(
    relay: Arc<Relay>,
    request: Request<Incoming>,
    hand_over: mpsc::Sender<Pump>,
) -> Result<Response<OutBody>, Infallible> {
    let (parts, body) = request.into_parts();
    let admitted = relay.gate.admit(&parts.method, &parts.uri, &parts.headers);
    let Ok(admitted) = admitted else {
        tracing::debug!("request of a stranger refused");
        return Ok(empty(StatusCode::NOT_FOUND));
    };
    let base = relay.destination.choose(&parts.headers);
    let Ok(uri) = base.join(admitted.target) else {
        return Ok(empty(StatusCode::NOT_FOUND));
    };
    let subject = admitted.subject;
    let is_upgrade = parts.headers.contains_key(UPGRADE);
    let mut onward = Onward { base, parts };
    onward.parts.uri = uri;
    let answer = match subject {
        Subject::ResponsesUpgrade if is_upgrade => {
            return Ok(websocket::upgrade(relay, onward, hand_over).await);
        }
        Subject::Responses => model_request(&relay, onward, body).await,
        Subject::Other | Subject::ResponsesUpgrade => pass(&relay, onward, body).await,
    };
    Ok(answer.unwrap_or_else(|refusal| refused(&refusal)))
}

/// A request on its way, its URL that of the upstream.
#[derive(Debug)]
pub struct Onward {
    /// The upstream.
    pub base: Base,
    /// The head, still with the headers of codex's hop.
    pub parts: Parts,
}

impl Onward {
    /// Sends the request with `body` and gives the response as it comes.
    pub async fn send(
        self,
        relay: &Relay,
        body: OutBody,
        usage: Usage,
        headers: HeaderMap,
    ) -> Result<Response<Incoming>, Refusal> {
        let mut parts = self.parts;
        parts.headers = headers;
        parts.version = http::Version::HTTP_11;
        parts.extensions.remove::<hyper::upgrade::OnUpgrade>();
        let request = Request::from_parts(parts, body);
        relay
            .upstream
            .send(request, usage)
            .await
            .map_err(|error| unreachable(&self.base, &error))
    }
}

/// Passes a request on unread, whatever its size: only model requests have a bound.
async fn pass(relay: &Relay, onward: Onward, body: Incoming) -> Result<Response<OutBody>, Refusal> {
    let headers = end_to_end(&onward.parts.headers);
    let body = body.map_err(Into::into).boxed_unsync();
    let response = onward.send(relay, body, Usage::Exchange, headers).await?;
    Ok(back(response))
}

/// Passes a model request on: untouched where its header says so, else as it is judged.
async fn model_request(
    relay: &Relay,
    onward: Onward,
    body: Incoming,
) -> Result<Response<OutBody>, Refusal> {
    let identity = Identity::from_headers(&onward.parts.headers);
    if identity.is_marked() {
        return pass_counted(relay, onward, body).await;
    }
    let is_zstd = match encoding(&onward.parts.headers) {
        Ok(is_zstd) => is_zstd,
        Err(refusal) => {
            drain(body).await;
            return Err(refusal);
        }
    };
    let wire = read(body).await.map_err(|error| match error {
        ReadError::TooLarge { bytes } => Refusal::too_large(Measured::Body, bytes),
        ReadError::Broken(_) => Refusal::new(Reason::BodyInvalid),
    })?;
    let plain = if is_zstd {
        open(wire.clone()).await?
    } else {
        wire.clone()
    };
    let body = Body::read(&plain);
    let judged = judge(relay, &plain, &body, identity, Measured::BodyAfterInjection).await;
    let mut headers = end_to_end(&onward.parts.headers);
    let body = match judged {
        Judged::Refuse(refusal) => return Err(refusal),
        Judged::Forward => {
            tracing::debug!(bytes = wire.len(), "model request passed");
            Pieces::new(vec![wire])
        }
        Judged::Inject(pieces) => {
            let pieces = if is_zstd {
                close(pieces).await?
            } else {
                pieces
            };
            let size: usize = pieces.iter().map(Bytes::len).sum();
            tracing::debug!(from = wire.len(), to = size, "model request injected");
            headers.insert(CONTENT_LENGTH, HeaderValue::from(size));
            Pieces::new(pieces)
        }
    };
    let body = body.map_err(never).boxed_unsync();
    let response = onward.send(relay, body, Usage::Exchange, headers).await?;
    Ok(back(response))
}

/// Passes a model request on unread, as long as it is within the bound.
async fn pass_counted(
    relay: &Relay,
    onward: Onward,
    body: Incoming,
) -> Result<Response<OutBody>, Refusal> {
    let announced = http_body::Body::size_hint(&body).exact();
    let limit = u64::try_from(MAX_BODY_BYTES).unwrap_or(u64::MAX);
    if let Some(bytes) = announced.filter(|bytes| *bytes > limit) {
        drain(body).await;
        return Err(Refusal::too_large(Measured::Body, bytes));
    }
    let headers = end_to_end(&onward.parts.headers);
    let (body, mut over) = Counted::new(body);
    let sent = onward.send(relay, body.boxed_unsync(), Usage::Exchange, headers);
    let result = sent.await;
    if let Ok((seen, rest)) = over.try_recv() {
        let bytes = seen + drain(rest).await;
        return Err(Refusal::too_large(Measured::Body, bytes));
    }
    tracing::debug!("model request with a child's mark passed unread");
    Ok(back(result?))
}

/// Whether the body is zstd; other encodings can't be read.
fn encoding(headers: &HeaderMap) -> Result<bool, Refusal> {
    let mut values = headers.get_all(CONTENT_ENCODING).iter();
    let (Some(first), None) = (values.next(), values.next()) else {
        let several = headers.contains_key(CONTENT_ENCODING);
        return if several {
            Err(Refusal::encoding("several"))
        } else {
            Ok(false)
        };
    };
    match first.as_bytes().trim_ascii() {
        b"" | b"identity" => Ok(false),
        name if name.eq_ignore_ascii_case(b"zstd") => Ok(true),
        name => Err(Refusal::encoding(&String::from_utf8_lossy(name))),
    }
}

async fn open(wire: Bytes) -> Result<Bytes, Refusal> {
    let opened = spawn_blocking(move || inflate(&wire, MAX_BODY_BYTES)).await;
    match opened {
        Ok(Ok(plain)) => Ok(plain.into()),
        Ok(Err(InflateError::TooLarge { .. })) => Err(Refusal::inflates_too_large()),
        Ok(Err(InflateError::Zstd(_))) | Err(_) => Err(Refusal::new(Reason::BodyInvalid)),
    }
}

async fn close(pieces: Vec<Bytes>) -> Result<Vec<Bytes>, Refusal> {
    match spawn_blocking(move || deflate(&pieces)).await {
        Ok(Ok(packed)) => Ok(vec![packed.into()]),
        Ok(Err(_)) | Err(_) => Err(Refusal::new(Reason::BodyInvalid)),
    }
}

/// An upstream's response on its way to codex: status, headers and bytes as they come.
pub fn back(response: Response<Incoming>) -> Response<OutBody> {
    let (mut parts, body) = response.into_parts();
    parts.headers = end_to_end(&parts.headers);
    parts.version = http::Version::HTTP_11;
    Response::from_parts(parts, body.map_err(Into::into).boxed_unsync())
}

/// The response that refuses a request in one plain line.
pub fn refused(refusal: &Refusal) -> Response<OutBody> {
    let reason = refusal.reason();
    tracing::warn!(%reason, "{}", refusal.line());
    let status = if refusal.may_pass_later() {
        StatusCode::BAD_GATEWAY
    } else {
        StatusCode::BAD_REQUEST
    };
    let body = Full::new(Bytes::from(refusal.line()));
    let mut response = Response::new(body.map_err(never).boxed_unsync());
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    let code = HeaderValue::from_static(reason.code());
    response.headers_mut().insert(RELAY_REASON, code);
    response
}

fn empty(status: StatusCode) -> Response<OutBody> {
    let mut response = Response::new(Full::default().map_err(never).boxed_unsync());
    *response.status_mut() = status;
    response
}

/// Says why the upstream gave no response, with the hop and no more of the request than its host.
fn unreachable(base: &Base, error: &SendError) -> Refusal {
    let fault = Fault::of(error);
    let (hop, detail) = (fault.hop, &fault.detail);
    tracing::debug!(%hop, "upstream failed: {}", Chain(error));
    let reason = match hop {
        Hop::Tls => Reason::UpstreamTlsFailed,
        Hop::Connect | Hop::Dns | Hop::Upstream => Reason::UpstreamUnreachable,
    };
    let words = format!("cannot reach {}: {hop}: {detail}", base.host());
    Refusal::upstream(reason, words, !fault.permanent)
}
