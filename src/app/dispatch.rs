//! From the command line to the thing that runs.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use clap::Parser;
use tokio::runtime::Runtime;

use crate::app::process::{say, this_program};
use crate::app::{heap, run};
use crate::base::chain::Chain;
use crate::base::exit::{ExitReason, SOFTWARE, USAGE};
use crate::child::find::find;
use crate::child::guardian;
use crate::commands::demo::{self, DemoConfig};
use crate::commands::doctor::{self, DoctorConfig};
use crate::commands::init;
use crate::commands::render::{self, RenderConfig, RenderError};
use crate::commands::tap::{self, TapConfig};
use crate::commands::witness;
use crate::config::args::{Args, Command, Options, Transport};
use crate::config::env::{self, Environment, Strings};
use crate::config::feed::DEFAULT_WORKSPACE;
use crate::config::settings::Settings;
use crate::config::standin::{self, StandIn};
use crate::telemetry;

/// Runs the program with `argv` and gives its exit code.
pub fn main(argv: Vec<OsString>) -> u8 {
    heap::tune();
    let name = argv.first().map(PathBuf::from).unwrap_or_default();
    if name == Path::new(guardian::NAME) {
        return guardian::main(argv.get(1..).unwrap_or_default());
    }
    if name.file_name() == Some(OsStr::new("codex")) {
        let args = argv.into_iter().skip(1).collect();
        return stand_in(args);
    }
    let args = match Args::try_parse_from(argv) {
        Ok(args) => args,
        Err(error) => {
            let asked_for = !error.use_stderr();
            let _ = error.print();
            return if asked_for { 0 } else { USAGE };
        }
    };
    if let Command::Init { dir } = args.command {
        return init(dir.or_else(|| args.options.workspace.map(PathBuf::from)));
    }
    let Some(settings) = settings(args.options) else {
        return USAGE;
    };
    match args.command {
        // Needs no settings: the workspace that they name isn't there yet.
        Command::Init { .. } => USAGE,
        Command::Render {
            json,
            thread_tools,
            kind,
        } => render(&RenderConfig {
            feed: settings.feed,
            max_context_bytes: settings.max_context_bytes,
            is_json: json,
            thread_tools,
            kind,
            is_terminal: std::io::stdout().is_terminal(),
        }),
        Command::AppServer { codex_args } => {
            let mut all = vec![OsString::from("app-server")];
            all.extend(codex_args);
            relay(settings, all)
        }
        Command::Demo { transport } => demo(settings, transport),
        Command::Doctor { json } => doctor(settings, json),
        Command::Tap {
            codex,
            record,
            codex_args,
        } => tap(TapConfig {
            codex,
            arguments: codex_args,
            record,
        }),
    }
}

fn settings(options: Options) -> Option<Settings> {
    let settings = match Settings::read(options, &Environment) {
        Ok(settings) => settings,
        Err(errors) => {
            say(&errors.to_string());
            return None;
        }
    };
    if let Err(error) = telemetry::start(&settings.telemetry) {
        let file = settings.telemetry.file.clone().unwrap_or_default();
        say(&format!(
            "codex-relay: --log-file: {}: {error}",
            file.display()
        ));
        return None;
    }
    Some(settings)
}

fn relay(settings: Settings, codex_args: Vec<OsString>) -> u8 {
    if let Some(value) = standin::foreign_listen(&codex_args) {
        say(&format!(
            "codex-relay: --listen {value}: only stdio:// can be relayed; leave --listen out"
        ));
        return USAGE;
    }
    if guardian::is_our_parent() {
        say(
            "codex-relay: started as codex by another codex-relay; name the real codex with --codex or CODEX_RELAY_CODEX",
        );
        return ExitReason::CodexMissing.code();
    }
    with_runtime(|runtime| run::relay(runtime, settings, codex_args).code())
}

/// Behaves as codex: relays its app-server, hands everything else to the real one.
fn stand_in(args: Vec<OsString>) -> u8 {
    if standin::judge(&args) == StandIn::Relay {
        return match settings(Options::default()) {
            Some(settings) => relay(settings, args),
            None => USAGE,
        };
    }
    // No other setting matters here, so a mistake in one of them doesn't either.
    let named = Environment.find(env::CODEX).map(PathBuf::from);
    let path = Environment.find("PATH");
    let found = find(named.as_deref(), path.as_deref(), this_program().as_deref());
    let found = match found {
        Err(error) => {
            say(&format!("codex-relay: {error}"));
            return ExitReason::CodexMissing.code();
        }
        Ok(found) => found,
    };
    // Two relays under the name codex would hand over to each other for ever.
    let own_pid = std::process::id().to_string();
    if Environment
        .find(env::HANDED_OVER)
        .is_some_and(|pid| pid == *own_pid)
    {
        say(
            "codex-relay: every codex on PATH is a codex-relay; name the real one in CODEX_RELAY_CODEX",
        );
        return ExitReason::CodexMissing.code();
    }
    let mut command = std::process::Command::new(&found.program);
    command.args(args).envs(found.variables);
    // The upstream's credential is the relay's alone.
    if let Some(name) = Environment.find(env::UPSTREAM_BEARER_ENV) {
        command.env_remove(name);
    }
    let error = command.env(env::HANDED_OVER, own_pid).exec();
    say(&format!(
        "codex-relay: {}: {error}",
        found.program.display()
    ));
    ExitReason::CodexMissing.code()
}

fn render(config: &RenderConfig) -> u8 {
    let (mut out, mut notes) = (std::io::stdout(), std::io::stderr());
    match render::run(config, &mut out, &mut notes) {
        Ok(render::Verdict::Fits) => 0,
        Ok(render::Verdict::TooLarge) => USAGE,
        Err(error) if error.is_reader_gone() => 0,
        Err(error) => {
            say(&format!("codex-relay: {}", Chain(&error)));
            match error {
                RenderError::Load(_) => USAGE,
                RenderError::Write(_) => SOFTWARE,
            }
        }
    }
}

fn init(folder: Option<PathBuf>) -> u8 {
    let standard = || Some(PathBuf::from(Environment.find("HOME")?).join(DEFAULT_WORKSPACE));
    let Some(folder) = folder.or_else(standard) else {
        say("codex-relay: init: HOME is not set; name the folder");
        return USAGE;
    };
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    match init::run(&folder, &mut std::io::stdout()) {
        Ok(()) => 0,
        Err(error) => {
            say(&format!("codex-relay: init: {}", Chain(&error)));
            USAGE
        }
    }
}

fn demo(settings: Settings, transport: Transport) -> u8 {
    let Some(relay) = this_program() else {
        say("codex-relay: the path of this program is unknown");
        return SOFTWARE;
    };
    let config = DemoConfig {
        relay,
        codex: settings.codex,
        path: settings.path,
        cache: settings.cache,
        transport: match transport {
            Transport::Http => witness::Transport::Http,
            Transport::Ws => witness::Transport::WebSocket,
        },
    };
    with_runtime(|runtime| {
        let (mut out, mut notes) = (std::io::stdout(), std::io::stderr());
        match runtime.block_on(demo::run(&config, &mut out, &mut notes)) {
            Ok(verdict) => u8::from(verdict != demo::Verdict::Holds),
            Err(error) => {
                say(&format!("codex-relay: {}", Chain(&error)));
                error.exit_code()
            }
        }
    })
}

fn doctor(settings: Settings, json: bool) -> u8 {
    let config = DoctorConfig {
        codex: settings.codex,
        path: settings.path,
        this_program: this_program(),
        environment: settings.environment,
        feed: settings.feed,
        max_context_bytes: settings.max_context_bytes,
        destination: settings.destination,
        bearer: settings.bearer,
        way_out: settings.way_out,
    };
    with_runtime(|runtime| {
        let report = runtime.block_on(doctor::run(config));
        let shown = if json {
            format!("{:#}\n", report.json())
        } else {
            report.to_string()
        };
        let _ = std::io::stdout().write_all(shown.as_bytes());
        u8::from(!report.is_well())
    })
}

fn tap(config: TapConfig) -> u8 {
    with_runtime(|runtime| match runtime.block_on(tap::run(config)) {
        Ok(code) => code,
        Err(error) => {
            say(&format!("codex-relay: {error}"));
            SOFTWARE
        }
    })
}

/// Runs `work` on the main thread, with a runtime that waits for nothing when it is done: a read of
/// standard input may hang for ever.
///
/// All on one thread: a request and its answer go through several tasks, and between two threads each
/// step would wait for the other to wake up. What takes long, compression and files, has threads of its
/// own, and so have connections beside the first.
fn with_runtime(work: impl FnOnce(&Runtime) -> u8) -> u8 {
    let built = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match built {
        Ok(runtime) => {
            let code = work(&runtime);
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            say(&format!("codex-relay: no threads: {error}"));
            SOFTWARE
        }
    }
}
