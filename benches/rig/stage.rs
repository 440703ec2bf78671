//! Everything that takes part: the endpoint, nginx and two relays in front of it.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;
use tempfile::TempDir;

use super::model::Model;
use super::nginx::Nginx;
use super::process::Processes;
use super::relay::Relay;
use super::tls::Identity;

/// What stands between the client and the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Direct,
    Nginx,
    Relay,
}

/// In the order in which results are kept.
pub(crate) const TARGETS: [Target; 3] = [Target::Direct, Target::Nginx, Target::Relay];

/// The way to a target.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) address: SocketAddr,
    pub(crate) base: String,
    /// Set where the client itself speaks TLS.
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

/// The parts, running.
pub(crate) struct Stage {
    pub(crate) model: Model,
    pub(crate) nginx: Nginx,
    pub(crate) relay: Relay,
    /// The relay whose upstream speaks TLS.
    pub(crate) relay_to_tls: Relay,
    identity: Identity,
    folder: TempDir,
}

impl Stage {
    pub(crate) fn set() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let identity = Identity::make();
        let model = Model::start(&identity);
        let at = |name: &str| folder.path().join(name);
        let nginx = Nginx::start(&at("nginx"), model.plain, model.secure, &identity.pem);
        let ca_file = at("ca.pem");
        fs::write(&ca_file, &identity.pem).unwrap();
        let secure = format!("https://localhost:{}/v1", model.secure.port());
        Self {
            relay: Relay::start(&at("relay"), &upstream(&model), None),
            relay_to_tls: Relay::start(&at("relay-to-tls"), &secure, Some(&ca_file)),
            model,
            nginx,
            identity,
            folder,
        }
    }

    /// Another relay, with nothing behind it yet.
    pub(crate) fn fresh_relay(&self, name: &str) -> Relay {
        Relay::start(&self.folder.path().join(name), &upstream(&self.model), None)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The way through `target`; `is_tls` has the last leg speak TLS.
    pub(crate) fn route(&self, target: Target, is_tls: bool) -> Route {
        let relay = if is_tls {
            &self.relay_to_tls
        } else {
            &self.relay
        };
        let address = match (target, is_tls) {
            (Target::Direct, false) => self.model.plain,
            (Target::Direct, true) => self.model.secure,
            (Target::Nginx, false) => self.nginx.plain,
            (Target::Nginx, true) => self.nginx.secure,
            (Target::Relay, _) => relay.address,
        };
        Route {
            address,
            base: match target {
                Target::Direct | Target::Nginx => "/v1".to_owned(),
                Target::Relay => relay.base.clone(),
            },
            tls: (target == Target::Direct && is_tls).then(|| Arc::clone(&self.identity.client)),
        }
    }

    /// The processes of a target, without those of the client and the endpoint.
    pub(crate) fn processes(&self, target: Target, is_tls: bool) -> Processes {
        match target {
            Target::Direct => Processes::default(),
            Target::Nginx => self.nginx.processes(),
            Target::Relay if is_tls => self.relay_to_tls.session.processes(),
            Target::Relay => self.relay.session.processes(),
        }
    }
}

impl Route {
    /// A model request; `headers` are its lines but for host and length.
    pub(crate) fn post(&self, headers: &str, body: &[u8]) -> Vec<u8> {
        let (base, address, length) = (&self.base, self.address, body.len());
        let head = format!(
            "POST {base}/responses HTTP/1.1\r\n{headers}host: {address}\r\ncontent-length: {length}\r\n\r\n"
        );
        [head.as_bytes(), body].concat()
    }

    /// The handshake of a WebSocket.
    pub(crate) fn handshake(&self, headers: &str) -> Vec<u8> {
        let (base, address) = (&self.base, self.address);
        format!(
            "GET {base}/responses HTTP/1.1\r\n{headers}host: {address}\r\nconnection: Upgrade\r\n\
             upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        .into_bytes()
    }
}

fn upstream(model: &Model) -> String {
    format!("http://{}/v1", model.plain)
}
