//! The checks, one after another.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::process::Command;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::app_server::talk;
use super::network;
use super::report::{Check, Report, Status};
use crate::base::chain::Chain;
use crate::base::limits::DOCTOR_DEADLINE;
use crate::child::command::environment;
use crate::child::find::{Found, find};
use crate::context::wish::Wish;
use crate::feed::source::Feed;
use crate::session::route::eligibility::AccountKind;
use crate::session::version::{CodexVersion, Support};
use crate::upstream::bearer::{Bearer, Credential};
use crate::upstream::destination::Destination;
use crate::upstream::dial::WayOut;

/// What the doctor looks at.
#[derive(Clone)]
pub struct DoctorConfig {
    /// The codex that was named.
    pub codex: Option<PathBuf>,
    /// The value of PATH.
    pub path: Option<OsString>,
    /// This program, which isn't codex.
    pub this_program: Option<PathBuf>,
    /// The environment, for codex.
    pub environment: Vec<(OsString, OsString)>,
    /// Where contexts come from.
    pub feed: Feed,
    /// The bound of a prepared context.
    pub max_context_bytes: usize,
    /// How an upstream is chosen.
    pub destination: Destination,
    /// The credential to go there with, where it isn't codex's.
    pub bearer: Option<Arc<Bearer>>,
    /// How the relay gets there.
    pub way_out: WayOut,
}

impl std::fmt::Debug for DoctorConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The environment may hold credentials.
        f.debug_struct("DoctorConfig").finish_non_exhaustive()
    }
}

/// Looks at everything, also where something has failed before.
pub async fn run(config: DoctorConfig) -> Report {
    let mut checks = Vec::new();
    let found = codex(&config, &mut checks).await;
    checks.extend(workspace(&config).await);
    let account = match found {
        Some(found) => account_and_route(&config, found, &mut checks).await,
        None => None,
    };
    let base = config
        .destination
        .of_account(account == Some(AccountKind::ChatGpt));
    let has_http_proxy = has(&config, "HTTP_PROXY") || has(&config, "http_proxy");
    let credential = match &config.bearer {
        Some(bearer) => credential(bearer, &mut checks).await,
        None => None,
    };
    let way = (&config.way_out, has_http_proxy);
    checks.extend(network::look(&base, way, credential).await);
    Report { checks }
}

/// Gets the credential that the relay brings itself.
async fn credential(bearer: &Bearer, checks: &mut Vec<Check>) -> Option<Credential> {
    let (found, took) = timed(bearer.current()).await;
    let option = bearer.option();
    let check = match &found {
        Ok(_) => Check::new("credential", Status::Ok, format!("{option} gives one")),
        Err(error) => Check::new("credential", Status::Failed, format!("{option} {error}"))
            .advise("it must give one word: see the file, or run the command by hand"),
    };
    checks.push(check.took(took));
    found.ok()
}

/// Runs a step and says how long it took.
#[expect(clippy::disallowed_methods, reason = "the report tells times")]
pub(super) async fn timed<T>(step: impl Future<Output = T>) -> (T, Duration) {
    let start = Instant::now();
    let result = step.await;
    (result, start.elapsed())
}

fn has(config: &DoctorConfig, name: &str) -> bool {
    value(config, name).is_some()
}

fn value<'a>(config: &'a DoctorConfig, name: &str) -> Option<&'a OsString> {
    let found = config.environment.iter().find(|(known, _)| known == name);
    found
        .map(|(_, value)| value)
        .filter(|value| !value.is_empty())
}

async fn codex(config: &DoctorConfig, checks: &mut Vec<Check>) -> Option<Found> {
    let found = find(
        config.codex.as_deref(),
        config.path.as_deref(),
        config.this_program.as_deref(),
    );
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            let check = Check::new("codex", Status::Failed, error.to_string());
            checks.push(check.advise("npm install -g @openai/codex"));
            return None;
        }
    };
    let (said, took) = timed(version(&found.program, config)).await;
    let program = found.program.display();
    let version = said.as_deref().and_then(CodexVersion::find);
    let check = match version.map(|version| (version, version.support())) {
        None => Check::new(
            "codex",
            Status::Warning,
            format!("{program} doesn't say its version"),
        )
        .advise("see that it is codex: another program is relayed without a route"),
        Some((version, Support::Tested)) => {
            Check::new("codex", Status::Ok, format!("{program} is {version}"))
        }
        Some((version, Support::Newer)) => {
            let newest = CodexVersion::NEWEST_TESTED;
            let found = format!("{program} is {version}, newer than the tested {newest}");
            Check::new("codex", Status::Warning, found).advise("look for a newer codex-relay")
        }
        Some((version, Support::TooOld)) => {
            let oldest = CodexVersion::OLDEST;
            let found = format!("{program} is {version}, {oldest} or newer is needed");
            Check::new("codex", Status::Failed, found).advise("npm install -g @openai/codex")
        }
    };
    checks.push(check.took(took));
    Some(found)
}

/// What the program says to `--version`.
async fn version(program: &Path, config: &DoctorConfig) -> Option<String> {
    let mut command = Command::new(program);
    command
        .arg("--version")
        .env_clear()
        .envs(environment(config.environment.clone()))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(DOCTOR_DEADLINE, command.output())
        .await
        .ok()?
        .ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

async fn workspace(config: &DoctorConfig) -> Vec<Check> {
    let local = match &config.feed {
        Feed::Local(local) if local.workspace.is_some() => Arc::clone(local),
        Feed::Client(_) => {
            let found = "none: the client gives the context of its turns";
            return vec![Check::new("workspace", Status::Skipped, found)];
        }
        Feed::Local(_) | Feed::Nobody => {
            let found = "none: nothing of an agent is added to requests";
            return vec![Check::new("workspace", Status::Skipped, found)];
        }
    };
    let root = local
        .workspace
        .as_ref()
        .map(|workspace| workspace.root.clone());
    let shown = root.unwrap_or_default().display().to_string();
    let (read, took) = timed(spawn_blocking(move || local.read(&Wish::default()))).await;
    let read = match read {
        Ok(Ok(read)) => read,
        Ok(Err(error)) => {
            let found = format!("{shown}: {}", Chain(&error));
            let check = Check::new("workspace", Status::Failed, found);
            return vec![
                check
                    .took(took)
                    .advise("see that the folder exists and can be read"),
            ];
        }
        Err(error) => return vec![Check::new("workspace", Status::Failed, error.to_string())],
    };
    let limit = config.max_context_bytes;
    let bytes = read.prepared.snapshot.text().len();
    let found = format!("{shown} gives {bytes} bytes of context, {limit} are allowed");
    let check = if bytes > limit {
        Check::new("workspace", Status::Failed, found)
            .advise("every turn is refused: shorten the files, or lower their budgets")
    } else if bytes == 0 {
        Check::new("workspace", Status::Warning, found)
            .advise("write SOUL.md, IDENTITY.md or USER.md there; codex-relay init makes a start")
    } else {
        Check::new("workspace", Status::Ok, found)
    };
    let remarks = read.prepared.warnings.iter().chain(&read.notes);
    let remarks = remarks.map(|words| Check::new("workspace", Status::Warning, words));
    std::iter::once(check.took(took)).chain(remarks).collect()
}

async fn account_and_route(
    config: &DoctorConfig,
    found: Found,
    checks: &mut Vec<Check>,
) -> Option<AccountKind> {
    // Where it never ran, codex would furnish its home now: that is not for us to cause.
    let home = value(config, "CODEX_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(value(config, "HOME")?).join(".codex")));
    if !home.is_some_and(|home| home.join(FIRST_FILE).exists()) {
        let check = Check::new("account", Status::Skipped, "codex has never run here");
        checks.push(check.advise("run codex once and log in"));
        return None;
    }
    let mut variables = environment(config.environment.clone());
    variables.extend(found.variables);
    let (told, took) = timed(Box::pin(talk(found.program, variables))).await;
    let told = match told {
        Ok(told) => told,
        Err(error) => {
            let check = Check::new("account", Status::Failed, format!("codex {error}"));
            checks.push(
                check
                    .took(took)
                    .advise("run codex app-server by hand, and see what it says"),
            );
            return None;
        }
    };
    let account = match (told.account, &told.account_error) {
        (_, Some(words)) => Check::new("account", Status::Warning, format!("codex says: {words}"))
            .advise("codex itself needs the network for this; see below"),
        (None, None) => Check::new("account", Status::Warning, "nobody is logged in")
            .advise("codex login, or let the client log in"),
        (Some(AccountKind::ApiKey), None) => Check::new("account", Status::Ok, "an API key"),
        (Some(AccountKind::ChatGpt), None) => Check::new("account", Status::Ok, "ChatGPT"),
        (Some(AccountKind::Other), None) => {
            Check::new("account", Status::Warning, "neither an API key nor ChatGPT")
        }
    };
    checks.push(account.took(took));
    let base = config
        .destination
        .of_account(told.account == Some(AccountKind::ChatGpt));
    checks.push(match told.against {
        None => Check::new("route", Status::Ok, format!("active, to {}", base.host())),
        Some(why) => Check::new("route", Status::Warning, format!("none ({})", why.code()))
            .advise(why.words()),
    });
    told.account
}

/// What every codex leaves in its home when it first runs.
const FIRST_FILE: &str = "installation_id";
