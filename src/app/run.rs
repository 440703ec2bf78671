//! The life of a relay: one loop that turns what happens into events, and does what the lifecycle
//! says.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::task::JoinError;
use tokio::time::{sleep, sleep_until, timeout};

use crate::app::parts::{Part, Parts, StartError, start};
use crate::app::process::{self, say};
use crate::base::chain::Chain;
use crate::base::exit::ExitReason;
use crate::base::limits::KILLED_GRACE;
use crate::child::signals::Signals;
use crate::config::settings::Settings;
use crate::lifecycle::machine::{Action, Event, Lifecycle};

/// Relays until codex has ended, and says why the process leaves.
pub fn relay(runtime: &Runtime, settings: Settings, codex_args: Vec<OsString>) -> ExitReason {
    runtime.block_on(async {
        match begin(settings, codex_args).await {
            Ok(running) => running.run().await,
            Err(error) => {
                say(&format!("codex-relay: {}", Chain(&error)));
                match error {
                    StartError::NoCodex(_) | StartError::Spawn { .. } => ExitReason::CodexMissing,
                    StartError::Listen(_) | StartError::Random(_) | StartError::Signals(_) => {
                        ExitReason::RelayFault
                    }
                }
            }
        }
    })
}

async fn begin(settings: Settings, codex_args: Vec<OsString>) -> Result<Running, StartError> {
    // Before codex is there: a signal must never find us without a hand for it.
    let signals = Signals::listen().map_err(StartError::Signals)?;
    let has_credential = settings.bearer.is_some();
    let parts = start(settings, codex_args).await?;
    // Behind codex's start: what holds for us isn't codex's.
    process::harden(has_credential);
    Ok(Running {
        parts,
        signals,
        lifecycle: Lifecycle::new(),
        has_client_left: false,
        is_codex_read: false,
        fault: None,
    })
}

struct Running {
    parts: Parts,
    signals: Signals,
    lifecycle: Lifecycle,
    /// Whether the client left first: then it knows, and codex's end is no surprise.
    has_client_left: bool,
    /// Whether nothing more comes from codex's stdout.
    is_codex_read: bool,
    /// Why the relay itself gives up, whatever codex says.
    fault: Option<ExitReason>,
}

impl Running {
    #[expect(
        clippy::disallowed_methods,
        reason = "the driver of the lifecycle reads the clock"
    )]
    async fn run(mut self) -> ExitReason {
        loop {
            let deadline = self.lifecycle.deadline();
            let event = tokio::select! {
                biased;
                () = self.signals.next() => Some(Event::StopRequested),
                reason = self.parts.codex.ended() => Some(Event::ChildExited(reason)),
                Some(ended) = self.parts.streams.join_next() => self.task_ended(ended),
                Some(ended) = self.parts.relay.join_next() => self.task_ended(ended),
                () = until(deadline) => Some(self.time_is_over()),
            };
            let action = event.and_then(|event| self.lifecycle.on_event(event, Instant::now()));
            match action {
                None => {}
                Some(Action::CloseStdin) => {
                    // What was before doesn't count.
                    self.parts.behind.is_so();
                    self.parts.codex.close_stdin();
                    self.parts.inbound.abort();
                }
                Some(Action::Terminate) => self.parts.codex.terminate(),
                Some(Action::Kill) => self.parts.codex.kill(),
                Some(Action::Abandon) => self.parts.codex.abandon(),
                Some(Action::Leave(reason)) => return self.leave(reason).await,
            }
        }
    }

    fn time_is_over(&mut self) -> Event {
        if self.parts.behind.is_so() {
            return Event::ClientBehind;
        }
        Event::Tick
    }

    /// What the end of a task means. Without the client or one of its streams codex is not needed.
    fn task_ended(&mut self, ended: Result<Part, JoinError>) -> Option<Event> {
        self.is_codex_read |= ends_codex(&ended);
        self.has_client_left |= matches!(ended, Ok(Part::InboundOfClient | Part::Writer));
        match ended {
            Ok(Part::Errors | Part::Memory | Part::WarmUp | Part::Warner) => None,
            Ok(Part::Inbound | Part::InboundOfClient | Part::Outbound | Part::Writer) => {
                Some(Event::ClientClosed)
            }
            Err(error) if error.is_cancelled() => None,
            Ok(Part::Listener) | Err(_) => {
                tracing::error!("a part of the relay failed; codex is stopped");
                self.fault = Some(ExitReason::RelayFault);
                Some(Event::ClientClosed)
            }
            Ok(Part::TooOld) => {
                self.fault = Some(ExitReason::CodexMissing);
                Some(Event::ClientClosed)
            }
        }
    }

    /// Delivers what codex still said, ends what it left open, and leaves nothing behind.
    async fn leave(mut self, reason: ExitReason) -> ExitReason {
        let _ = self.parts.codex_gone.send(true);
        self.parts.inbound.abort();
        let reason = self.fault.unwrap_or(reason);
        let Parts {
            mut streams,
            client,
            session,
            ..
        } = self.parts;
        let is_surprise = !self.has_client_left || self.fault.is_some();
        let mut is_codex_read = self.is_codex_read;
        let grace = self.lifecycle.delivery_grace();
        let deliver = async {
            let mut client = Some(client);
            loop {
                // The client's lines end with those of codex: ours come behind them.
                if let Some(client) = client.take_if(|_| is_codex_read) {
                    let lines = session.with(|session| session.on_codex_gone(&how(reason)));
                    for line in lines.into_iter().filter(|_| is_surprise) {
                        let _ = client.send(line).await;
                    }
                }
                let Some(ended) = streams.join_next().await else {
                    return;
                };
                is_codex_read |= ends_codex(&ended);
                if matches!(ended, Ok(Part::Writer)) {
                    break;
                }
            }
            // Stderr is delivered if somebody reads it; nobody waits for that.
            let rest = async { while streams.join_next().await.is_some() {} };
            let _ = timeout(KILLED_GRACE, rest).await;
        };
        tokio::select! {
            () = deliver => {}
            () = until_over(grace) => {}
            // Whoever asks a second time doesn't want to wait for a client that reads no more.
            () = self.signals.next() => {}
        }
        reason
    }
}

/// Whether codex's stdout is read no more: to its end, or because the reader failed.
fn ends_codex(ended: &Result<Part, JoinError>) -> bool {
    match ended {
        Ok(part) => matches!(part, Part::Outbound | Part::TooOld),
        Err(error) => !error.is_cancelled(),
    }
}

fn how(reason: ExitReason) -> String {
    match reason {
        ExitReason::CodexCode(code) => format!("ended with exit code {code}"),
        ExitReason::CodexSignal(signal) => format!("was ended by signal {signal}"),
        ExitReason::CodexMissing | ExitReason::RelayFault | ExitReason::Usage => "ended".to_owned(),
    }
}

async fn until_over(grace: Option<Duration>) {
    match grace {
        Some(grace) => sleep(grace).await,
        None => std::future::pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}
