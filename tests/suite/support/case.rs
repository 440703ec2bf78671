//! The matrix that tests on the real codex run in.

use std::fmt;

pub(crate) use codex_relay::commands::witness::Transport;

use super::codex::Version;

/// How codex is logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Login {
    /// With an API key.
    ApiKey,
    /// With ChatGPT tokens that the client supplies: bodies over HTTP are zstd then.
    ChatGpt,
}

/// One cell of the matrix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) version: Version,
    pub(crate) transport: Transport,
    pub(crate) login: Login,
}

impl Case {
    /// Says whether codex compresses its bodies.
    pub(crate) fn is_zstd(self) -> bool {
        self.transport == Transport::Http && self.login == Login::ChatGpt
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.version.number();
        write!(f, "{number} {} {:?}", self.transport, self.login)
    }
}

/// Makes a test of each cell out of `async fn $test(case: Case)`.
///
/// The set of cells is `all` (8), `new` (the four of 0.171.0), `transports` (both versions, API key), `http` (both
/// versions over HTTP, API key), or `versions` (both over WebSocket, API key).
macro_rules! matrix {
    ($test:ident: all) => {
        matrix!(@cells $test:
            v171_ws_api_key V171 WebSocket ApiKey, v171_ws_chatgpt V171 WebSocket ChatGpt,
            v171_http_api_key V171 Http ApiKey, v171_http_chatgpt V171 Http ChatGpt,
            v155_ws_api_key V155 WebSocket ApiKey, v155_ws_chatgpt V155 WebSocket ChatGpt,
            v155_http_api_key V155 Http ApiKey, v155_http_chatgpt V155 Http ChatGpt);
    };
    ($test:ident: new) => {
        matrix!(@cells $test:
            v171_ws_api_key V171 WebSocket ApiKey, v171_ws_chatgpt V171 WebSocket ChatGpt,
            v171_http_api_key V171 Http ApiKey, v171_http_chatgpt V171 Http ChatGpt);
    };
    ($test:ident: transports) => {
        matrix!(@cells $test:
            v171_ws V171 WebSocket ApiKey, v171_http V171 Http ApiKey,
            v155_ws V155 WebSocket ApiKey, v155_http V155 Http ApiKey);
    };
    ($test:ident: http) => {
        matrix!(@cells $test: v171_http V171 Http ApiKey, v155_http V155 Http ApiKey);
    };
    ($test:ident: versions) => {
        matrix!(@cells $test: v171 V171 WebSocket ApiKey, v155 V155 WebSocket ApiKey);
    };
    (@cells $test:ident: $($cell:ident $version:ident $transport:ident $login:ident),+) => {
        mod $test {
            use crate::support::case::{Case, Login, Transport};
            use crate::support::codex::Version;

            $(
                #[tokio::test]
                async fn $cell() {
                    Box::pin(super::$test(Case {
                        version: Version::$version,
                        transport: Transport::$transport,
                        login: Login::$login,
                    }))
                    .await;
                }
            )+
        }
    };
}
