//! One HTTP exchange: admit, read what decides, send, stream the answer back.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, HeaderValue, UPGRADE};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::base::limits::{CLOSE_GRACE, MAX_BODY_BYTES};
use crate::base::reason::Reason;
use crate::exchange::admission::Subject;
use crate::exchange::body::Body;
use crate::exchange::classify::Identity;
use crate::exchange::refusal::{Measured, Refusal};
use crate::relay::body::{Begun, Counted, ReadError, Ready, Whole, drain, read};
use crate::relay::cut::cuttable;
use crate::relay::judge::{self, Judged, note_call};
use crate::relay::listener::Pump;
use crate::relay::onward::{Onward, Outgoing};
use crate::relay::passing::{self, Held};
use crate::relay::repack::{Failed, repack};
use crate::relay::reply::{back, empty, refused};
use crate::relay::shared::Relay;
use crate::relay::upgrade::{tunnel, upgrade};
use crate::relay::upload::Upload;
use crate::relay::zip::{close, open};
use crate::session::parent::tally::{About, Outcome};
use crate::upstream::calls::Call;
use crate::upstream::client::{OutBody, Usage};
use crate::upstream::destination::Base;
use crate::wire::headers::{ACCOUNT_ROUTING, CHATGPT_ACCOUNT, inner_coding};

/// Answers one request, those of codex once `place` is there for its connection. A stranger's
/// connection is closed.
///
/// # Errors
/// None: what fails is told to codex, or its connection is cut.
pub async fn exchange(
    relay: Arc<Relay>,
    request: Request<Incoming>,
    hand_over: mpsc::Sender<Pump>,
    place: impl Future<Output = ()>,
) -> Result<Response<OutBody>, Infallible> {
    let (parts, mut body) = request.into_parts();
    let admitted = relay.gate.admit(&parts.method, &parts.uri, &parts.headers);
    let Ok(admitted) = admitted else {
        tracing::debug!("request of a stranger refused");
        let mut response = empty(StatusCode::NOT_FOUND);
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
        return Ok(response);
    };
    place.await;
    if let Some(coding) = inner_coding(&parts.headers) {
        drain(&mut body).await;
        return Ok(refused(&Refusal::transfer_coding(&coding)));
    }
    let (base, policy) = destination(&relay, &parts.headers);
    let Ok(uri) = base.join(admitted.target) else {
        return Ok(empty(StatusCode::NOT_FOUND));
    };
    let subject = admitted.subject;
    // Who sends a body, and would also like another protocol, is understood without it.
    let is_upgrade = parts.headers.contains_key(UPGRADE) && http_body::Body::is_end_stream(&body);
    let mut onward = Onward { base, parts };
    onward.parts.uri = uri;
    if let Some(policy) = policy {
        onward.parts.headers.insert(ACCOUNT_ROUTING, policy);
    }
    let answer = match subject {
        Subject::ResponsesUpgrade if is_upgrade => {
            return Ok(upgrade(relay, onward, hand_over).await);
        }
        Subject::Other if is_upgrade => return Ok(tunnel(relay, onward, hand_over).await),
        Subject::Responses => model_request(&relay, onward, body).await,
        Subject::Other | Subject::ResponsesUpgrade => pass(&relay, onward, body).await,
    };
    Ok(answer.unwrap_or_else(|refusal| refused(&refusal)))
}

/// The upstream of a request with `headers`, and what it must be told of the account's workspace.
///
/// Codex finds out where a workspace must be served, and leaves it to whoever stands behind an
/// address that isn't the service's own.
fn destination(relay: &Relay, headers: &HeaderMap) -> (Base, Option<HeaderValue>) {
    let account = headers.get(CHATGPT_ACCOUNT).and_then(|id| id.to_str().ok());
    let workspace = account.and_then(|account| {
        relay
            .session
            .with(|session| session.routes().workspace(account).cloned())
    });
    let bound = workspace.and_then(|workspace| {
        let base = relay.destination.at_origin(&workspace.origin)?;
        let policy = workspace.policy.and_then(|policy| policy.parse().ok());
        Some((base, policy))
    });
    bound.unwrap_or_else(|| (relay.destination.choose(headers), None))
}

/// Passes a request on unread, whatever its size: only model requests have a bound.
async fn pass(
    relay: &Relay,
    mut onward: Onward,
    body: Incoming,
) -> Result<Response<OutBody>, Refusal> {
    let body = if http_body::Body::is_end_stream(&body) {
        Outgoing::Nothing
    } else {
        let body = Upload::new(body, &onward.parts);
        Outgoing::Once(body.map_err(Into::into).boxed_unsync())
    };
    let headers = onward.take_headers();
    let response = onward.send(relay, body, Usage::Exchange, headers).await?;
    Ok(back(response).await)
}

/// Passes a model request on, and ends it at the upstream when its turn is interrupted.
async fn model_request(
    relay: &Relay,
    onward: Onward,
    body: Incoming,
) -> Result<Response<OutBody>, Refusal> {
    let call = relay.calls.idle();
    let response = tokio::select! {
        response = answer(relay, onward, body, &call) => response?,
        () = call.is_cut() => {
            // Codex hangs up by itself; a word of ours would make it ask again.
            sleep(CLOSE_GRACE).await;
            return Err(Refusal::interrupted());
        }
    };
    Ok(cuttable(response, call))
}

/// Passes a model request on: unread where its header says so or nothing can be injected, else as it
/// is judged.
async fn answer(
    relay: &Relay,
    onward: Onward,
    body: Incoming,
    call: &Call,
) -> Result<Response<OutBody>, Refusal> {
    let identity = Identity::from_headers(&onward.parts.headers);
    note_call(&identity, call);
    let about = identity.about();
    if identity.is_marked() || relay.passes_unread() {
        relay.note(&about, Outcome::Untouched);
        return pass_counted(relay, onward, body).await;
    }
    let is_zstd = match encoding(&onward.parts.headers) {
        Ok(is_zstd) => is_zstd,
        Err(refusal) => {
            relay.note_refused(&about, &refusal);
            let mut body = body;
            drain(&mut body).await;
            return Err(refusal);
        }
    };
    let request = (onward, body);
    let step = if is_zstd {
        packed_in_passing(relay, request, &identity, &about).await?
    } else {
        in_passing(relay, request, &identity, &about).await?
    };
    let (onward, body, begun) = match step {
        Step::Answered(response) => return Ok(response),
        Step::Whole(request) => *request,
    };
    let Whole {
        bytes: wire,
        trailers,
        share,
    } = read(begun, body, &relay.budget)
        .await
        .map_err(|error| match error {
            ReadError::TooLarge { bytes } => Refusal::too_large(Measured::Body, bytes),
            ReadError::Broken(_) => Refusal::broken_off(),
            ReadError::Busy => Refusal::new(Reason::Busy),
        })
        .inspect_err(|refusal| relay.note_refused(&about, refusal))?;
    let pieces = spliced(relay, wire, is_zstd, (identity, call)).await?;
    let ready = Ready {
        pieces,
        trailers,
        shares: vec![share],
    };
    send_held(relay, onward, ready).await
}

/// How far a request has come.
enum Step {
    Answered(Response<OutBody>),
    /// It must be read whole; this much of it has come.
    Whole(Box<(Onward, Incoming, Begun)>),
}

impl Step {
    fn whole(onward: Onward, body: Incoming, begun: Begun) -> Self {
        Self::Whole(Box::new((onward, body, begun)))
    }
}

/// Passes a request on with its context while it comes, where it is as codex makes large ones.
async fn in_passing(
    relay: &Relay,
    (onward, mut body): (Onward, Incoming),
    identity: &Identity,
    about: &About,
) -> Result<Step, Refusal> {
    let Some((passing, text)) = passing::begin(relay, &onward.parts.headers, identity, &body)
    else {
        return Ok(Step::whole(onward, body, Begun::default()));
    };
    let held = passing::hold(relay, &mut body, passing).await;
    match held.inspect_err(|refusal| relay.note_refused(about, refusal))? {
        Held::Fit(ready) => {
            relay.note(about, Outcome::Injected(text));
            let response = passing::pass(relay, onward, body, *ready).await?;
            Ok(Step::Answered(response))
        }
        Held::Unfit(begun) => Ok(Step::whole(onward, body, begun)),
    }
}

/// The same for a compressed request; it goes on once all of it is edited.
async fn packed_in_passing(
    relay: &Relay,
    (onward, mut body): (Onward, Incoming),
    identity: &Identity,
    about: &About,
) -> Result<Step, Refusal> {
    let Some((passing, text)) = passing::claimed(relay, &onward.parts.headers, identity) else {
        return Ok(Step::whole(onward, body, Begun::default()));
    };
    let refusal = match repack((&relay.budget, &relay.tools), passing, &mut body).await {
        Ok(ready) => {
            relay.note(about, Outcome::Injected(text));
            tracing::debug!("compressed model request injected");
            let response = send_held(relay, onward, ready).await?;
            return Ok(Step::Answered(response));
        }
        Err(Failed::Unfit(begun)) => return Ok(Step::whole(onward, body, begun)),
        Err(Failed::Stopped(stop)) => relay.refusal_of(stop),
        Err(Failed::Broken) => Refusal::broken_off(),
    };
    relay.note_refused(about, &refusal);
    drain(&mut body).await;
    Err(refusal)
}

/// Sends a body that is here as a whole.
async fn send_held(
    relay: &Relay,
    mut onward: Onward,
    ready: Ready,
) -> Result<Response<OutBody>, Refusal> {
    let Ready {
        pieces,
        trailers,
        shares,
    } = ready;
    let mut headers = onward.take_headers();
    let size: usize = pieces.iter().map(Bytes::len).sum();
    if headers.contains_key(CONTENT_LENGTH) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(size));
    }
    let body = Outgoing::Held {
        pieces,
        trailers,
        share: shares.into(),
    };
    let response = onward.send(relay, body, Usage::Exchange, headers).await?;
    Ok(back(response).await)
}

/// The body with its context in it, compressed again if it was; or as it came.
async fn spliced(
    relay: &Relay,
    wire: Bytes,
    is_zstd: bool,
    (identity, call): (Identity, &Call),
) -> Result<Vec<Bytes>, Refusal> {
    // What the budget gave for inflating is given back when nothing inflated is left.
    let (plain, _share) = if is_zstd {
        let opened = open(wire.clone(), &relay.budget).await;
        let opened = opened.inspect_err(|refusal| relay.note_refused(&identity.about(), refusal));
        let (plain, share) = opened?;
        (plain, Some(share))
    } else {
        (wire.clone(), None)
    };
    let body = Body::read(&plain);
    let measured = Measured::BodyAfterInjection;
    match judge::judge(relay, (&plain, &body), identity, call, measured).await {
        Judged::Refuse(refusal) => Err(refusal),
        Judged::Forward => {
            tracing::debug!(bytes = wire.len(), "model request passed");
            Ok(vec![wire])
        }
        Judged::Inject { pieces, size, .. } => {
            tracing::debug!(from = plain.len(), to = size, "model request injected");
            // What came isn't needed for closing.
            drop(wire);
            if is_zstd {
                return close(pieces).await;
            }
            Ok(pieces)
        }
    }
}

/// Passes a model request on unread, as long as it is within the bound.
async fn pass_counted(
    relay: &Relay,
    mut onward: Onward,
    mut body: Incoming,
) -> Result<Response<OutBody>, Refusal> {
    let announced = http_body::Body::size_hint(&body).exact();
    let limit = u64::try_from(MAX_BODY_BYTES).unwrap_or(u64::MAX);
    if let Some(bytes) = announced.filter(|bytes| *bytes > limit) {
        drain(&mut body).await;
        return Err(Refusal::too_large(Measured::Body, bytes));
    }
    let (body, mut over) = Counted::new(Upload::new(body, &onward.parts));
    let headers = onward.take_headers();
    let sent = onward.send(
        relay,
        Outgoing::Once(body.boxed_unsync()),
        Usage::Exchange,
        headers,
    );
    let result = sent.await;
    if let Ok((seen, mut rest)) = over.try_recv() {
        let bytes = seen + drain(&mut rest).await;
        return Err(Refusal::too_large(Measured::Body, bytes));
    }
    tracing::debug!("model request passed unread");
    Ok(back(result?).await)
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
