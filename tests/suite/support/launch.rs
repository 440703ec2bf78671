//! Starting the relay, or codex itself, for a client.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio::process::Command;

use super::case::Login;
use super::client::Client;
use super::stage::Stage;

/// How a session is started.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    stage: &'a Stage,
    is_plain: bool,
    is_routed: bool,
    is_tapped: bool,
    login: Option<Login>,
    /// Empty: the relay looks for it itself.
    codex: PathBuf,
    options: Vec<OsString>,
    capabilities: Value,
    environment: Vec<(&'static str, OsString)>,
    /// Where the relay sends what it is given; nothing leaves it to the account.
    upstream: Option<String>,
    /// What goes behind `app-server`.
    arguments: Vec<String>,
    /// The variables that everything has, and this one hasn't.
    missing: Vec<&'static str>,
    /// A program that starts it, with its arguments.
    around: Vec<OsString>,
}

impl Stage {
    /// The relay in front of the case's codex, with the stage's workspace and endpoint.
    pub(crate) fn relay(&self) -> Launch<'_> {
        Launch {
            stage: self,
            is_plain: false,
            is_routed: true,
            is_tapped: false,
            login: Some(self.case.login),
            codex: self.codex.native.clone(),
            options: Vec::new(),
            capabilities: json!({"experimentalApi": true}),
            environment: Vec::new(),
            upstream: Some(self.endpoint.base_url()),
            arguments: Vec::new(),
            missing: Vec::new(),
            around: Vec::new(),
        }
    }

    /// The case's codex without the relay; threads are routed straight to the endpoint.
    pub(crate) fn plain(&self) -> Launch<'_> {
        Launch {
            is_plain: true,
            ..self.relay()
        }
    }
}

impl Launch<'_> {
    /// Takes another program for codex.
    pub(crate) fn codex(mut self, program: impl Into<PathBuf>) -> Self {
        self.codex = program.into();
        self
    }

    /// Puts a tap behind codex, once in a test: what it sends is in [`Stage::traffic`].
    pub(crate) fn tapped(mut self) -> Self {
        self.is_tapped = true;
        self
    }

    /// Copies what codex reads from its stdin, private route included, into [`Stage::spied`].
    pub(crate) fn spied(mut self) -> Self {
        let (codex, copy) = (self.codex.display(), self.stage.copy_of_stdin());
        let copy = copy.display();
        self.codex = self.stage.program(
            "spied",
            &format!(
                "case \"$*\" in *app-server*) tee '{copy}' | '{codex}' \"$@\";; *) exec '{codex}' \"$@\";; esac"
            ),
        );
        self
    }

    /// Has a line of `sed` edit what codex reads from its stdin.
    pub(crate) fn edited(mut self, line: &str) -> Self {
        let codex = self.codex.display();
        self.codex = self.stage.program(
            "edited",
            &format!(
                "case \"$*\" in *app-server*) sed -u '{line}' | '{codex}' \"$@\";; *) exec '{codex}' \"$@\";; esac"
            ),
        );
        self
    }

    /// Logs in with nothing.
    pub(crate) fn logged_out(mut self) -> Self {
        self.login = None;
        self
    }

    /// Leaves the threads of a plain codex without a route.
    pub(crate) fn unrouted(mut self) -> Self {
        self.is_routed = false;
        self
    }

    /// Gives the relay one more option.
    pub(crate) fn option(mut self, name: &str, value: &str) -> Self {
        self.options.extend([name.into(), value.into()]);
        self
    }

    /// Sends model requests elsewhere.
    pub(crate) fn upstream(mut self, url: &str) -> Self {
        self.upstream = Some(url.to_owned());
        self
    }

    /// Sends model requests to OpenAI's own service. Only for names that lead nowhere.
    pub(crate) fn by_account(mut self) -> Self {
        self.upstream = None;
        self
    }

    /// Gives `app-server` one more argument.
    pub(crate) fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Sets a variable of the environment.
    pub(crate) fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// Leaves a variable out that every launch has.
    pub(crate) fn without_env(mut self, name: &'static str) -> Self {
        self.missing.push(name);
        self
    }

    /// Has the relay look for codex itself.
    pub(crate) fn sought(mut self) -> Self {
        self.codex = PathBuf::new();
        self
    }

    /// Starts it by another program, which is to become it: `words`, then the command.
    pub(crate) fn within<T: Into<OsString>>(mut self, words: impl IntoIterator<Item = T>) -> Self {
        self.around.extend(words.into_iter().map(Into::into));
        self
    }

    /// Asks not to be told of these.
    pub(crate) fn opting_out(mut self, notifications: &[&str]) -> Self {
        self.capabilities["optOutNotificationMethods"] = json!(notifications);
        self
    }

    /// Asks for the relay's warnings.
    pub(crate) fn warned(mut self) -> Self {
        self.capabilities["relay"] = json!(true);
        self
    }

    /// Leaves `experimentalApi` out.
    pub(crate) fn stable_api(mut self) -> Self {
        self.capabilities = json!({});
        self
    }

    /// Starts it and a thread.
    pub(crate) async fn with_thread(self) -> (Client, String) {
        let mut client = self.start().await;
        let thread = client.thread("thread/start", json!({})).await;
        (client, thread)
    }

    /// Starts it, shakes hands and logs in.
    pub(crate) async fn start(mut self) -> Client {
        if self.is_tapped {
            self.codex = self.stage.tap(&self.codex).await;
        }
        let mut client = self.spawn();
        let introduction = json!({
            "clientInfo": {"name": "codex-relay-suite", "version": "1"},
            "capabilities": self.capabilities.clone(),
        });
        client.ok("initialize", introduction).await;
        client.send(&json!({"method": "initialized"})).await;
        if let Some(login) = self.login {
            log_in(&mut client, login).await;
        }
        client
    }

    pub(crate) fn spawn(&self) -> Client {
        let words = [self.around.clone(), self.words()].concat();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env_clear();
        command.env("PATH", env!("PATH"));
        command.env("HOME", &self.stage.home);
        command.env("CODEX_HOME", &self.stage.codex_home);
        // Whatever goes astray ends at a closed door, not at the real service.
        command.env("HTTPS_PROXY", "http://127.0.0.1:1");
        command.envs(self.environment.iter().cloned());
        for name in &self.missing {
            command.env_remove(name);
        }
        command.current_dir(self.stage.project.path());
        let mut client = Client::spawn(command);
        if self.is_plain && self.is_routed {
            client.config = json!({"openai_base_url": self.stage.endpoint.base_url()});
        }
        client
    }

    /// The command line.
    fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        if self.is_plain {
            words.push(self.codex.clone().into());
        } else {
            words.push(env!("CARGO_BIN_EXE_codex-relay").into());
            if self.codex != Path::new("") {
                words.extend(["--codex".into(), self.codex.clone().into()]);
            }
            words.extend(["--workspace".into(), self.stage.workspace.clone().into()]);
            if let Some(url) = &self.upstream {
                words.extend(["--upstream".into(), url.into()]);
            }
            words.extend(self.options.iter().cloned());
        }
        words.push("app-server".into());
        words.extend(self.arguments.iter().map(Into::into));
        words
    }
}

/// Logs in with a key, or with tokens of the client.
pub(crate) async fn log_in(client: &mut Client, login: Login) {
    let from = client.inbox.len();
    let params = match login {
        Login::ApiKey => json!({"type": "apiKey", "apiKey": "sk-test"}),
        Login::ChatGpt => {
            let mut params = tokens();
            params["type"] = json!("chatgptAuthTokens");
            params
        }
    };
    client.ok("account/login/start", params).await;
    // Offline 0.171.0 calls a login with ChatGPT tokens a failure, and uses them all the same.
    let done = |_: &Value| true;
    client
        .notification(from, "account/login/completed", done)
        .await;
}

/// Tokens as a client supplies them.
pub(crate) fn tokens() -> Value {
    json!({
        "accessToken": unsigned_token(),
        "chatgptAccountId": ACCOUNT,
        "chatgptPlanType": "pro",
    })
}

/// A token whose signature nobody checks.
fn unsigned_token() -> String {
    let header = r#"{"alg":"none","typ":"JWT"}"#;
    let claims = json!({
        "email": "somebody@example.com",
        "exp": 4_102_444_800_u32,
        "https://api.openai.com/auth": {
            "chatgpt_plan_type": "pro",
            "chatgpt_user_id": "user-1",
            "chatgpt_account_id": ACCOUNT,
        },
    });
    let parts = [header, &claims.to_string(), "none"].map(|part| base64url(part.as_bytes()));
    parts.join(".")
}

fn base64url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let mut padded = [0; 4];
        padded[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(padded);
        for at in 0..=group.len() {
            let digit = usize::try_from(bits >> (18 - 6 * at) & 63).unwrap();
            text.push(char::from(DIGITS[digit]));
        }
    }
    text
}

const ACCOUNT: &str = "account-1";
