//! The way to the upstream, step by step.

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Empty};
use tokio::time::timeout;

use super::report::{Check, Status};
use super::run::timed;
use crate::base::limits::DOCTOR_DEADLINE;
use crate::upstream::bearer::Credential;
use crate::upstream::client::{Upstream, Usage, never};
use crate::upstream::destination::Base;
use crate::upstream::dial::{Dialer, WayOut};
use crate::upstream::fault::{Fault, Hop};
use crate::upstream::proxy::Proxy;
use crate::upstream::resolve::Resolver;

/// Looks at name, proxy, connection, TLS and an answer of `base`. The first that fails is the last
/// that is looked at.
pub(super) async fn look(
    base: &Base,
    (way, has_http_proxy): (&WayOut, bool),
    credential: Option<Credential>,
) -> Vec<Check> {
    let mut checks = Vec::new();
    let Some(steps) = Steps::of(base, way, credential) else {
        let found = format!("{} is no URL", base.host());
        return vec![Check::new("upstream", Status::Failed, found)];
    };
    let walked = steps.walk(&mut checks).await;
    if let Err((name, fault, took)) = walked {
        let mut advice = advice(&fault);
        if has_http_proxy && steps.proxy.is_none() && matches!(fault.hop, Hop::Connect | Hop::Dns) {
            advice = "HTTP_PROXY says nothing of https: set HTTPS_PROXY, or give --proxy";
        }
        let check = Check::new(name, Status::Failed, fault.to_string());
        checks.push(check.took(took).advise(advice));
    }
    checks
}

struct Steps<'a> {
    base: &'a Base,
    way: &'a WayOut,
    target: Uri,
    proxy: Option<String>,
    credential: Option<Credential>,
}

type Failed = (&'static str, Fault, std::time::Duration);

impl<'a> Steps<'a> {
    fn of(base: &'a Base, way: &'a WayOut, credential: Option<Credential>) -> Option<Self> {
        let target = base.join("/models?client_version=0.0.0").ok()?;
        let proxy = way.proxies.choose(&target).map(Proxy::address);
        Some(Self {
            base,
            way,
            target,
            proxy,
            credential,
        })
    }

    async fn walk(&self, checks: &mut Vec<Check>) -> Result<(), Failed> {
        let mut ok = |name, found: String, took| {
            checks.push(Check::new(name, Status::Ok, found).took(took));
        };
        let dialer = Dialer::new(self.way.clone());
        let host = self.target.host().unwrap_or_default();
        let port = self.target.port_u16().unwrap_or(443);
        if self.proxy.is_none() && !host.starts_with('[') {
            let public_only = self.way.public_only;
            let (found, took) = timed(Resolver { public_only }.resolve(host)).await;
            let found = found.map_err(|fault| ("dns", fault, took))?;
            let first = found
                .first()
                .map(|it| it.ip().to_string())
                .unwrap_or_default();
            ok(
                "dns",
                format!("{host} is {first} ({} in all)", found.len()),
                took,
            );
        }
        // Without TLS: as far as the proxy, or the bare connection, goes.
        let bare = format!("http://{host}:{port}/").parse::<Uri>();
        if let Ok(bare) = bare {
            let name = self.proxy.as_ref().map_or("connect", |_| "proxy");
            let (stream, took) = timed(dialer.dial(&bare)).await;
            stream.map_err(|fault| (name, fault, took))?;
            let found = match &self.proxy {
                Some(address) => {
                    format!("{address} opens a tunnel to {host}:{port}, and resolves its name")
                }
                None => format!("{host}:{port} takes connections, no proxy"),
            };
            ok(name, found, took);
        }
        if self.target.scheme_str() == Some("https") {
            let (stream, took) = timed(dialer.dial(&self.target)).await;
            stream.map_err(|fault| ("tls", fault, took))?;
            let extra = self.way.roots.certificates.len();
            ok(
                "tls",
                format!("the certificate is trusted ({extra} roots beside the system's)"),
                took,
            );
        }
        let (answer, took) = timed(self.ask()).await;
        let status = answer.map_err(|fault| ("upstream", fault, took))?;
        let check = self.judge(status);
        checks.push(check.took(took));
        Ok(())
    }

    /// What the upstream's answer means.
    fn judge(&self, status: u16) -> Check {
        let with = match &self.credential {
            Some(_) => "with the relay's credential",
            None => "without credentials",
        };
        let host = self.base.host();
        let found = format!("{host} answers {status} to a request {with}");
        let is_refused = self.credential.is_some() && matches!(status, 401 | 403);
        if is_refused {
            let check = Check::new("upstream", Status::Failed, found);
            check.advise("the upstream doesn't take the credential: get another one")
        } else if status >= 500 {
            let check = Check::new("upstream", Status::Warning, found);
            check.advise("the service has trouble of its own; try again later")
        } else {
            Check::new("upstream", Status::Ok, found)
        }
    }

    async fn ask(&self) -> Result<u16, Fault> {
        let body = Empty::<Bytes>::new().map_err(never).boxed_unsync();
        let request = Request::get(self.target.clone()).body(body);
        let mut request =
            request.map_err(|error| Fault::lasting(Hop::Upstream, error.to_string()))?;
        if let Some(credential) = &self.credential {
            credential.replace_in(request.headers_mut());
        }
        let upstream = Upstream::new(self.way.clone());
        let sent = timeout(DOCTOR_DEADLINE, upstream.send(request, Usage::Exchange)).await;
        match sent {
            Ok(Ok(response)) => Ok(response.status().as_u16()),
            Ok(Err(error)) => Err(Fault::of(&error)),
            Err(_) => Err(Fault::passing(Hop::Upstream, "no answer in time")),
        }
    }
}

/// What mends a fault.
fn advice(fault: &Fault) -> &'static str {
    let says = |words: &str| fault.detail.contains(words);
    match fault.hop {
        Hop::Proxy if says("answered 407") => {
            "give the proxy's user and password in its URL: http://USER:PASSWORD@HOST:PORT"
        }
        Hop::Proxy if says("answered 403") => "ask whoever runs the proxy to allow this host",
        Hop::Proxy => {
            "see that HTTPS_PROXY or --proxy names a proxy that runs, or add the host to NO_PROXY"
        }
        Hop::Dns if says("private address") => {
            "see the resolver of this machine; a Gateway of your own is given with --upstream"
        }
        Hop::Dns => "see the name and the resolver; behind a proxy set HTTPS_PROXY or --proxy",
        Hop::Connect => "see firewall and network; behind a proxy set HTTPS_PROXY or --proxy",
        Hop::Tls if says("unknown issuer") => {
            "if your network opens TLS on purpose, give its root certificate with --ca-file"
        }
        Hop::Tls if says("another name") => "see that the host's name is right in --upstream",
        Hop::Tls => {
            "see the clock of this machine, and whatever stands between it and the upstream"
        }
        Hop::Upstream => "see that --upstream is right and the service is up",
    }
}
