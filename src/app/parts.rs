//! The parts of a relay, built and started.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::net::TcpListener;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet, spawn_blocking};
use tokio::time::sleep;

use crate::app::heap;
use crate::app::process::this_program;
use crate::base::ids::hex;
use crate::base::limits::{MEMORY_KEPT, UNREAD_GRACE};
use crate::base::secret::Secret;
use crate::budget::share::Budget;
use crate::child::codex::{Codex, Streams};
use crate::child::command::{self, environment};
use crate::child::find::{FindError, Found, find};
use crate::config::settings::Settings;
use crate::config::standin;
use crate::exchange::admission::Gate;
use crate::relay::listener;
use crate::relay::shared::Relay;
use crate::session::machine::{Config, Session, Upstreams};
use crate::session::route::eligibility::Ineligible;
use crate::session::shared::SharedSession;
use crate::session::turnstile::Turnstile;
use crate::stdio::errors;
use crate::stdio::inbound::{Inbound, Side};
use crate::stdio::outbound::{Outbound, OutboundEnd, Own};
use crate::stdio::own;
use crate::stdio::pipe::Pipe;
use crate::stdio::taking::{self, Behind};
use crate::stdio::waiting::WaitingLines;
use crate::stdio::warner::Warner;
use crate::stdio::writer::{self, OwnLines, Queued};
use crate::upstream::calls::Calls;
use crate::upstream::client::Upstream;
use crate::wire::redact::StreamRedactor;

/// Why a relay can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The private endpoint can't be opened.
    #[error("can't listen on 127.0.0.1")]
    Listen(#[source] io::Error),
    /// There is no codex.
    #[error(transparent)]
    NoCodex(#[from] FindError),
    /// The system has no random numbers for the secret.
    #[error("the system has no random numbers")]
    Random(#[source] io::Error),
    /// Signals can't be caught.
    #[error("can't listen for signals")]
    Signals(#[source] io::Error),
    /// Codex can't be started.
    #[error("can't start {program}")]
    Spawn {
        /// The executable.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Which task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Codex's stderr is read to its end.
    Errors,
    /// Codex reads no more.
    Inbound,
    /// The client sends no more.
    InboundOfClient,
    /// The private endpoint stopped.
    Listener,
    /// No large message can come any more.
    Memory,
    /// Codex's stdout is read to its end.
    Outbound,
    /// Codex is too old; the client was told.
    TooOld,
    /// Nothing more is to be warned of.
    Warner,
    /// TLS is ready.
    WarmUp,
    /// The client reads no more, or has everything.
    Writer,
}

/// A relay that runs.
#[derive(Debug)]
pub struct Parts {
    /// Codex.
    pub codex: Codex,
    /// The pumps of the streams; they end by themselves when codex has ended.
    pub streams: JoinSet<Part>,
    /// The private endpoint; it never ends by itself.
    pub relay: JoinSet<Part>,
    /// Ends the pump of the client's lines, which closes codex's stdin.
    pub inbound: AbortHandle,
    /// Tells the readers of codex's pipes that codex has ended.
    pub codex_gone: watch::Sender<bool>,
    /// For lines of our own at the end.
    pub client: OwnLines,
    /// Whether the client is behind with reading.
    pub behind: Behind,
    /// What is remembered.
    pub session: SharedSession,
}

/// Opens the endpoint, then starts codex and the pumps.
pub async fn start(settings: Settings, codex_args: Vec<OsString>) -> Result<Parts, StartError> {
    let this = this_program();
    let found = find_codex(&settings, this.as_deref())?;
    let (socket, port) = listener::bind().await.map_err(StartError::Listen)?;
    let secret = secret()?;
    let gate = Gate::new(secret.clone(), port);
    let bar = standin::is_attachment(&codex_args).then_some(Ineligible::AttachedProxy);
    let news = Arc::new(Notify::new());
    let session = session(&settings, &gate, bar, Arc::clone(&news))?;
    let (codex, pipes) = start_codex(found, codex_args, &settings, this.as_deref()).await?;
    let (codex_gone, gone) = watch::channel(false);
    let (codex_lines, client, lines) = writer::queue();
    let (closings, closed) = watch::channel(0);
    let budget = Budget::new();
    let calls = Calls::default();
    let (own, own_end) = Own::new();
    let mut streams = JoinSet::new();
    let (sending, sent) = watch::channel(());
    let behind = spawn_writer(&mut streams, lines, sent);
    let warned = (session.clone(), client.clone(), news);
    spawn_warner(&mut streams, warned, gone.clone());
    let inbound = Inbound {
        session: session.clone(),
        feed: settings.feed.clone(),
        orders: settings.orders.clone(),
        client: client.clone(),
        own: own_end,
        calls: calls.clone(),
        budget: budget.clone(),
        turnstile: Turnstile::default(),
        waiting: WaitingLines::default(),
    };
    let inbound = spawn_inbound(&mut streams, inbound, pipes.stdin, sending);
    let outbound = Outbound::new(
        session.clone(),
        &secret,
        codex_lines,
        own,
        budget.clone(),
        closings,
    );
    let stdout = Pipe::new(pipes.stdout, gone.clone());
    spawn_outbound(&mut streams, outbound, stdout);
    spawn_errors(&mut streams, &secret, Pipe::new(pipes.stderr, gone));
    let shared = (session.clone(), calls, budget);
    let relay = spawn_relay((socket, closed), gate, shared, settings);
    Ok(Parts {
        codex,
        streams,
        relay,
        inbound,
        codex_gone,
        client,
        behind,
        session,
    })
}

fn find_codex(settings: &Settings, this_program: Option<&Path>) -> Result<Found, FindError> {
    let named = settings.codex.as_deref();
    find(named, settings.path.as_deref(), this_program)
}

fn session(
    settings: &Settings,
    gate: &Gate,
    bar: Option<Ineligible>,
    wake: Arc<Notify>,
) -> Result<SharedSession, StartError> {
    let host = |is_chatgpt| {
        settings
            .destination
            .of_account(is_chatgpt)
            .host()
            .to_owned()
    };
    let session = Session::new(Config {
        base_url: gate.base_url(),
        max_context_bytes: settings.max_context_bytes,
        bar,
        own_prefix: own_prefix()?,
        supplier: settings.feed.supplier(),
        upstreams: Upstreams {
            api_key: host(false),
            chatgpt: host(true),
            has_bearer: settings.bearer.is_some(),
        },
        notifications: settings.notifications,
    });
    Ok(SharedSession::waking(session, move || wake.notify_one()))
}

/// `sent` is closed when nothing more is read of the client.
fn spawn_writer(
    tasks: &mut JoinSet<Part>,
    lines: mpsc::Receiver<Queued>,
    sent: watch::Receiver<()>,
) -> Behind {
    let (to, taking) = taking::noted(own::output());
    let behind = taking.behind();
    tasks.spawn(async move {
        let is_gone = || sent.has_changed().is_err() || own::input_is_over();
        tokio::select! {
            biased;
            written = writer::write_lines(lines, to) => if let Err(error) = written {
                tracing::debug!(%error, "the client reads no more");
            },
            // Codex may have nothing to say for hours, and the client nothing to close.
            () = own::reader_is_gone() => tracing::debug!("nobody reads for the client"),
            () = taking.has_stopped(is_gone) => tracing::warn!(
                seconds = UNREAD_GRACE.as_secs(),
                "the client has closed our stdin and takes nothing of our stdout; what it leaves is lost"
            ),
        }
        Part::Writer
    });
    behind
}

async fn start_codex(
    found: Found,
    codex_args: Vec<OsString>,
    settings: &Settings,
    this_program: Option<&Path>,
) -> Result<(Codex, Streams), StartError> {
    let mut variables = environment(settings.environment.clone());
    variables.extend(found.variables);
    let config = command::Config {
        program: found.program,
        args: codex_args,
        environment: variables,
    };
    let started = match this_program {
        Some(this_program) => Codex::start(&config, this_program).await,
        None => Err(io::ErrorKind::NotFound.into()),
    };
    started.map_err(|source| StartError::Spawn {
        program: config.program.display().to_string(),
        source,
    })
}

fn secret() -> Result<Secret, StartError> {
    let mut bits = [0; 32];
    getrandom::fill(&mut bits).map_err(|error| StartError::Random(error.into()))?;
    Ok(Secret::from_random(bits))
}

/// Gives the memory of large messages back to the system, once they come no more.
async fn give_memory_back(mut large_ones: watch::Receiver<()>) -> Part {
    while large_ones.changed().await.is_ok() {
        sleep(MEMORY_KEPT).await;
        large_ones.mark_unchanged();
        // It takes milliseconds, which nobody else must wait.
        let _ = spawn_blocking(heap::give_back).await;
    }
    Part::Memory
}

/// What the ids of our own requests begin with: no client can have chosen it.
fn own_prefix() -> Result<String, StartError> {
    let mut bits = [0; 8];
    getrandom::fill(&mut bits).map_err(|error| StartError::Random(error.into()))?;
    Ok(format!("codex-relay-{}-", hex(&bits)))
}

fn spawn_warner(
    tasks: &mut JoinSet<Part>,
    (session, client, news): (SharedSession, OwnLines, Arc<Notify>),
    gone: watch::Receiver<bool>,
) {
    let warner = Warner {
        session,
        client,
        news,
    };
    tasks.spawn(async move {
        warner.run(gone).await;
        Part::Warner
    });
}

/// `sending` is dropped when nothing more is read of the client.
fn spawn_inbound(
    tasks: &mut JoinSet<Part>,
    inbound: Inbound,
    stdin: ChildStdin,
    sending: watch::Sender<()>,
) -> AbortHandle {
    tasks.spawn(async move {
        let _sending = sending;
        let (stdin, taking) = taking::noted(stdin);
        tokio::select! {
            biased;
            side = inbound.pump(own::input(), stdin) => match side {
                Side::Client => Part::InboundOfClient,
                Side::Codex => Part::Inbound,
            },
            () = taking.has_stopped(own::input_is_over) => {
                tracing::warn!(
                    seconds = UNREAD_GRACE.as_secs(),
                    "the client has closed our stdin and codex takes nothing of what came before; it is lost"
                );
                Part::InboundOfClient
            }
        }
    })
}

fn spawn_outbound(tasks: &mut JoinSet<Part>, outbound: Outbound, pipe: Pipe<ChildStdout>) {
    tasks.spawn(async move {
        match outbound.pump(pipe).await {
            OutboundEnd::Over => Part::Outbound,
            OutboundEnd::TooOld => Part::TooOld,
        }
    });
}

fn spawn_errors(tasks: &mut JoinSet<Part>, secret: &Secret, pipe: Pipe<ChildStderr>) {
    let redactor = StreamRedactor::new(secret);
    tasks.spawn(async move {
        errors::pass(pipe, own::errors(), redactor).await;
        Part::Errors
    });
}

fn spawn_relay(
    (socket, closed): (TcpListener, watch::Receiver<u64>),
    gate: Gate,
    (session, calls, budget): (SharedSession, Calls, Budget),
    settings: Settings,
) -> JoinSet<Part> {
    let mut tasks = JoinSet::new();
    let relay = Arc::new(Relay {
        gate: Arc::new(gate),
        session,
        feed: settings.feed,
        destination: settings.destination,
        bearer: settings.bearer,
        calls,
        upstream: Upstream::new(settings.way_out),
        on_unrecognized: settings.on_unrecognized,
        budget,
        tools: Arc::default(),
        reads_whole: Arc::new(AtomicBool::new(false)),
    });
    if relay.destination.may_need_tls() {
        let relay = Arc::clone(&relay);
        tasks.spawn(async move {
            relay.upstream.warm_up().await;
            Part::WarmUp
        });
    }
    tasks.spawn(give_memory_back(relay.budget.large_ones()));
    let tools = Arc::clone(&relay);
    tasks.spawn(async move {
        tools.tools.throw_away_in_time().await;
        Part::Memory
    });
    tasks.spawn(async move {
        listener::serve(socket, relay, closed).await;
        Part::Listener
    });
    tasks
}
