//! A request on its way to the upstream, with the credential that it goes under.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderValue, TE, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;

use crate::base::chain::Chain;
use crate::base::reason::Reason;
use crate::budget::share::Share;
use crate::exchange::refusal::Refusal;
use crate::relay::body::Pieces;

use crate::relay::shared::Relay;
use crate::relay::upload::Leave;
use crate::upstream::bearer::{Bearer, BearerError};
use crate::upstream::client::{OutBody, Usage, never};
use crate::upstream::destination::Base;
use crate::upstream::fault::{Fault, Hop};
use crate::wire::headers::{end_to_end, wants_trailers};

/// A request on its way, its URL that of the upstream.
#[derive(Clone, Debug)]
pub struct Onward {
    /// The upstream.
    pub base: Base,
    /// The head; its headers are those of codex's hop, until they are taken.
    pub parts: Parts,
}

/// What a request carries.
#[derive(Debug)]
pub enum Outgoing {
    /// No body.
    Nothing,
    /// A body that passes by.
    Once(OutBody),
    /// A body that is here as a whole.
    Held {
        /// The whole, in order.
        pieces: Vec<Bytes>,
        /// The fields behind it.
        trailers: Option<HeaderMap>,
        /// What it takes of the budget.
        share: Arc<[Share]>,
    },
}

impl Outgoing {
    /// What can be sent again; nothing of what passes by.
    fn again(&self) -> Option<Self> {
        match self {
            Self::Nothing => Some(Self::Nothing),
            Self::Once(_) => None,
            Self::Held {
                pieces,
                trailers,
                share,
            } => Some(Self::Held {
                pieces: pieces.clone(),
                trailers: trailers.clone(),
                share: Arc::clone(share),
            }),
        }
    }

    fn into_body(self) -> OutBody {
        match self {
            Self::Nothing => Empty::new().map_err(never).boxed_unsync(),
            Self::Once(body) => body,
            Self::Held {
                pieces,
                trailers,
                share,
            } => {
                let pieces = Pieces::new(pieces, trailers, share);
                pieces.map_err(never).boxed_unsync()
            }
        }
    }
}

impl Onward {
    /// Takes the headers that go on.
    pub(super) fn take_headers(&mut self) -> HeaderMap {
        let headers = std::mem::take(&mut self.parts.headers);
        let wants_trailers = wants_trailers(&headers);
        let mut kept = end_to_end(headers);
        if wants_trailers {
            kept.insert(TE, HeaderValue::from_static("trailers"));
        }
        kept
    }

    /// Sends the request with `body` and gives the response as it comes.
    ///
    /// Where the relay brings the credential, a 401 is answered once with another one, if there is one
    /// and the body is still here: what was refused unread was not done.
    pub async fn send(
        self,
        relay: &Relay,
        body: Outgoing,
        usage: Usage,
        headers: HeaderMap,
    ) -> Result<Response<Incoming>, Refusal> {
        let Some(bearer) = &relay.bearer else {
            return self.send_once(relay, body, usage, headers).await;
        };
        let credential = bearer.current().await;
        tell(relay, bearer);
        let credential = credential.map_err(|error| no_credential(bearer, &error))?;
        let again = body.again().map(|body| (self.clone(), body));
        let mut owned = headers.clone();
        credential.replace_in(&mut owned);
        let response = self.send_once(relay, body, usage, owned).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        // Asked for in any case: the next request must not go out with what was refused.
        let fresh = bearer.fresh(&credential).await;
        tell(relay, bearer);
        if let (Some(fresh), Some((onward, body))) = (fresh, again) {
            tracing::info!("the upstream answered 401: asked again with a fresh credential");
            let mut owned = headers;
            fresh.replace_in(&mut owned);
            return onward.send_once(relay, body, usage, owned).await;
        }
        let option = bearer.option();
        tracing::warn!("the upstream answered 401 to the credential of {option}");
        Ok(response)
    }

    async fn send_once(
        self,
        relay: &Relay,
        body: Outgoing,
        usage: Usage,
        mut headers: HeaderMap,
    ) -> Result<Response<Incoming>, Refusal> {
        let Self { base, mut parts } = self;
        parts.version = http::Version::HTTP_11;
        let body = body.into_body();
        let is_bodiless = [Method::GET, Method::HEAD].contains(&parts.method);
        if is_bodiless && body.size_hint().exact().is_none() {
            // The library would leave it out.
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        parts.headers = headers;
        parts.extensions.remove::<hyper::upgrade::OnUpgrade>();
        let leave = parts.extensions.remove::<Leave>();
        let request = Request::from_parts(parts, body);
        let sent = relay.upstream.send(request, usage).await;
        let response = sent.map_err(|error| {
            if leave.is_some_and(|leave| leave.is_broken()) {
                return Refusal::broken_off();
            }
            unreachable(&base, &error)
        })?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS && usage == Usage::Exchange {
            let words = "the upstream switched protocols without being asked".to_owned();
            return Err(Refusal::upstream(Reason::UpstreamUnreachable, words, true));
        }
        Ok(response)
    }
}

/// Tells the client what has changed at the source of the credential.
fn tell(relay: &Relay, bearer: &Bearer) {
    if let Some(news) = bearer.take_news() {
        relay
            .session
            .with(|session| session.warn_of_credential(news));
    }
}

/// Says why there is no credential, and by which option it should have come.
fn no_credential(bearer: &Bearer, error: &BearerError) -> Refusal {
    let words = format!(
        "no credential for the upstream: {} {error}",
        bearer.option()
    );
    Refusal::upstream(Reason::UpstreamUnreachable, words, false)
}

/// Says why the upstream gave no response, with the hop and no more of the request than its host.
fn unreachable(base: &Base, error: &hyper_util::client::legacy::Error) -> Refusal {
    let fault = Fault::of(error);
    tracing::debug!(hop = %fault.hop, "upstream failed: {}", Chain(error));
    let reason = match fault.hop {
        Hop::Proxy => Reason::UpstreamProxyFailed,
        Hop::Tls => Reason::UpstreamTlsFailed,
        Hop::Connect | Hop::Dns | Hop::Upstream => Reason::UpstreamUnreachable,
    };
    let words = format!("cannot reach {}: {fault}", base.host());
    Refusal::upstream(reason, words, !fault.permanent)
}
