//! What codex is answered: the upstream's words, or our own.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, TRANSFER_ENCODING};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;

use crate::exchange::refusal::Refusal;
use crate::relay::body::Claimed;
use crate::relay::gather::gathered;
use crate::upstream::client::{OutBody, never};
use crate::wire::headers::{RELAY_REASON, end_to_end, inner_coding};

/// An upstream's response on its way to codex: status, headers and bytes as they come.
pub(super) async fn back(response: Response<Incoming>) -> Response<OutBody> {
    let (mut parts, body) = response.into_parts();
    parts.headers = passed_on(parts.headers);
    parts.version = http::Version::HTTP_11;
    if parts.status == StatusCode::NOT_MODIFIED
        && let Some(length) = length(&parts.headers)
    {
        let body = Claimed(length).map_err(never).boxed_unsync();
        return Response::from_parts(parts, body);
    }
    Response::from_parts(parts, gathered(body).await)
}

/// The headers of a response that go on to codex.
pub(super) fn passed_on(headers: HeaderMap) -> HeaderMap {
    let coding = inner_coding(&headers).and_then(|it| HeaderValue::try_from(it).ok());
    let is_chunked = headers.contains_key(TRANSFER_ENCODING);
    let mut kept = end_to_end(headers);
    if is_chunked {
        // Of the two the chunks are true (RFC 9112, section 6.3).
        kept.remove(CONTENT_LENGTH);
    }
    if let Some(length) = several(&kept) {
        kept.insert(CONTENT_LENGTH, length);
    }
    if let Some(coding) = coding {
        // The bytes go on as they came, so what they are must be told.
        kept.insert(TRANSFER_ENCODING, coding);
    }
    kept
}

/// The first of several lengths: all say the same, or there is no body.
fn several(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let first = lengths.next()?;
    lengths.next().map(|_| first.clone())
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The response that refuses a request in one plain line.
pub(super) fn refused(refusal: &Refusal) -> Response<OutBody> {
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

/// A response without a word.
pub(super) fn empty(status: StatusCode) -> Response<OutBody> {
    let mut response = Response::new(Full::default().map_err(never).boxed_unsync());
    *response.status_mut() = status;
    response
}
