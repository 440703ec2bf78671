//! What it means: arguments and environment into the configuration of each part.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tracing::level_filters::LevelFilter;

use crate::base::limits::MAX_CONTEXT_BYTES;
use crate::config::args::Options;
use crate::config::env::{self, Strings};
use crate::config::feed::FeedOptions;
use crate::config::file::File;
use crate::exchange::plan::OnUnrecognized;
use crate::feed::orders::OrdersFeed;
use crate::feed::source::Feed;
use crate::telemetry::{self, Format};
use crate::upstream::bearer::Bearer;
use crate::upstream::destination::{Base, Destination};
use crate::upstream::dial::WayOut;

/// The configuration of a run.
#[derive(Clone)]
pub struct Settings {
    /// The codex that was named.
    pub codex: Option<PathBuf>,
    /// Where contexts come from.
    pub feed: Feed,
    /// Where developer policies come from.
    pub orders: OrdersFeed,
    /// How an upstream is chosen.
    pub destination: Destination,
    /// The credential of the upstream, where codex's own doesn't count.
    pub bearer: Option<Arc<Bearer>>,
    /// How the relay gets there.
    pub way_out: WayOut,
    /// The bound of a prepared context.
    pub max_context_bytes: usize,
    /// What happens to requests that can't be read.
    pub on_unrecognized: OnUnrecognized,
    /// Whether the client gets `relay/warning` without asking for it.
    pub notifications: bool,
    /// What is logged.
    pub telemetry: telemetry::Config,
    /// The value of PATH.
    pub path: Option<OsString>,
    /// A folder for what may be fetched again.
    pub cache: PathBuf,
    /// The environment, for the child.
    pub environment: Vec<(OsString, OsString)>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The environment may hold credentials.
        f.debug_struct("Settings")
            .field("codex", &self.codex)
            .field("feed", &self.feed)
            .field("destination", &self.destination)
            .field("max_context_bytes", &self.max_context_bytes)
            .field("on_unrecognized", &self.on_unrecognized)
            .field("telemetry", &self.telemetry)
            .finish_non_exhaustive()
    }
}

/// Every mistake, in the order of the options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

/// One mistake: where it was made, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The flag, the variable, or the member of the file.
    pub place: String,
    /// What is wrong with its value.
    pub fault: String,
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, ConfigError { place, fault }) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "codex-relay: {place}: {fault}")?;
        }
        Ok(())
    }
}

impl Settings {
    /// Reads everything; flag beats environment beats file.
    pub fn read(options: Options, environment: &dyn Strings) -> Result<Self, ConfigErrors> {
        let mut reader = Reader {
            environment,
            file: None,
            errors: Vec::new(),
        };
        reader.open_file(options.config.clone());
        let codex = reader.codex(options.codex.clone());
        let feed = reader.feed(FeedOptions {
            workspace: options.workspace.clone(),
            memory_workspace: options.memory_workspace.clone(),
            profile: options.profile.clone(),
            context: options.context.clone(),
        });
        let orders = reader.orders(options.policy_file.clone(), &feed);
        let destination = reader.destination(options.upstream.clone());
        let own = reader.bearer(&options, &destination);
        let way_out = reader.way_out(&options, &destination);
        let settings = Self {
            codex,
            feed,
            orders,
            destination,
            bearer: own.bearer,
            way_out,
            max_context_bytes: reader.max_context_bytes(options.max_context_bytes),
            on_unrecognized: reader.on_unrecognized(options.on_unrecognized),
            notifications: reader.notifications(),
            telemetry: reader.telemetry(options.log, options.log_format, options.log_file),
            path: environment.find("PATH"),
            cache: reader.cache(),
            environment: own.environment,
        };
        reader.name_unknown_members();
        if reader.errors.is_empty() {
            Ok(settings)
        } else {
            Err(ConfigErrors(reader.errors))
        }
    }
}

pub(super) struct Reader<'a> {
    pub(super) environment: &'a dyn Strings,
    pub(super) file: Option<File>,
    errors: Vec<ConfigError>,
}

/// A value and the place that it was given in.
pub(super) struct Given {
    pub(super) place: String,
    pub(super) value: OsString,
}

impl Reader<'_> {
    fn open_file(&mut self, typed: Option<OsString>) {
        let given = self.given(typed, "--config", env::CONFIG);
        let (place, path) = match given {
            Some(Given { place, value }) => (place, PathBuf::from(value)),
            None => match self.home().map(|home| home.join(DEFAULT_CONFIG)) {
                Some(path) if path.exists() => ("configuration file".to_owned(), path),
                Some(_) | None => return,
            },
        };
        match File::read(&path) {
            Ok(file) => self.file = Some(file),
            Err(error) => self.fault(place, format!("{} {error}", path.display())),
        }
    }

    fn name_unknown_members(&mut self) {
        let Some(file) = &self.file else {
            return;
        };
        let places = file.unknown().into_iter().map(|name| file.place(&name));
        let unknown = places.map(|place| ConfigError {
            place,
            fault: "no such option; see codex-relay --help".to_owned(),
        });
        self.errors.extend(unknown.collect::<Vec<_>>());
    }

    /// What was given for an option; its name in the file follows from its flag.
    pub(super) fn given(
        &mut self,
        typed: Option<OsString>,
        flag: &str,
        variable: &str,
    ) -> Option<Given> {
        let member = flag.trim_start_matches('-').replace('-', "_");
        // Taken in any case: an option that a flag beats is known all the same.
        let in_file = self.file.as_mut().and_then(|file| file.take(&member));
        if let Some(value) = typed {
            let place = flag.to_owned();
            return Some(Given { place, value });
        }
        if let Some(value) = self.environment.find(variable) {
            let place = variable.to_owned();
            return Some(Given { place, value });
        }
        self.of_file(&member, in_file?)
    }

    pub(super) fn of_file(
        &mut self,
        member: &str,
        value: Result<OsString, &'static str>,
    ) -> Option<Given> {
        let place = self.file.as_ref()?.place(member);
        match value {
            Ok(value) => Some(Given { place, value }),
            Err(kind) => {
                self.fault(
                    place,
                    format!("is a TOML {kind}, expected a text or a number"),
                );
                None
            }
        }
    }

    pub(super) fn fault(&mut self, place: impl Into<String>, fault: String) {
        let place = place.into();
        self.errors.push(ConfigError { place, fault });
    }

    /// Chooses among words; anything else is told with the words that there are.
    pub(super) fn word<T: Copy + Default>(
        &mut self,
        given: Option<Given>,
        words: &[(&str, T)],
    ) -> T {
        let Some(Given { place, value }) = given else {
            return T::default();
        };
        let chosen = words.iter().find(|(word, _)| value == *word);
        if let Some((_, meaning)) = chosen {
            return *meaning;
        }
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        self.fault(
            place,
            format!("{} is not one of: {}", shown(&value), names.join(", ")),
        );
        T::default()
    }

    fn codex(&mut self, typed: Option<OsString>) -> Option<PathBuf> {
        let Given { place, value } = self.given(typed, "--codex", env::CODEX)?;
        if value.is_empty() {
            self.fault(
                place,
                "is empty, expected the path of the codex executable".to_owned(),
            );
        }
        Some(value.into())
    }

    fn destination(&mut self, typed: Option<OsString>) -> Destination {
        let Some(Given { place, value }) = self.given(typed, "--upstream", env::UPSTREAM) else {
            return Destination::ByAccount;
        };
        let text = value.to_string_lossy();
        match Base::parse(&text) {
            Ok(base) => Destination::Fixed(base),
            Err(error) => {
                // A password in the URL must not show.
                let shown = if text.contains('@') {
                    "the URL"
                } else {
                    &*text
                };
                self.fault(place, format!("{shown} {error}"));
                Destination::ByAccount
            }
        }
    }

    fn max_context_bytes(&mut self, typed: Option<OsString>) -> usize {
        let given = self.given(typed, "--max-context-bytes", env::MAX_CONTEXT_BYTES);
        let Some(Given { place, value }) = given else {
            return MAX_CONTEXT_BYTES;
        };
        let number = value.to_str().and_then(|text| text.parse::<usize>().ok());
        match number {
            Some(number) if (1..=MAX_CONTEXT_BYTES).contains(&number) => number,
            _ => {
                self.fault(
                    place,
                    format!(
                        "{} is not a number of bytes from 1 to {MAX_CONTEXT_BYTES}",
                        shown(&value)
                    ),
                );
                MAX_CONTEXT_BYTES
            }
        }
    }

    fn on_unrecognized(&mut self, typed: Option<OsString>) -> OnUnrecognized {
        let given = self.given(typed, "--on-unrecognized", env::ON_UNRECOGNIZED);
        let words = [
            ("refuse", OnUnrecognized::Refuse),
            ("pass", OnUnrecognized::Pass),
        ];
        self.word(given, &words)
    }

    fn notifications(&mut self) -> bool {
        let Some(file) = &mut self.file else {
            return false;
        };
        match file.take_flag("notifications") {
            None => false,
            Some(Ok(is_wanted)) => is_wanted,
            Some(Err(kind)) => {
                let place = file.place("notifications");
                self.fault(place, format!("is a TOML {kind}, expected true or false"));
                false
            }
        }
    }

    fn telemetry(
        &mut self,
        level: Option<OsString>,
        format: Option<OsString>,
        file: Option<OsString>,
    ) -> telemetry::Config {
        let levels = [
            ("off", Level(LevelFilter::OFF)),
            ("error", Level(LevelFilter::ERROR)),
            ("warn", Level(LevelFilter::WARN)),
            ("info", Level(LevelFilter::INFO)),
            ("debug", Level(LevelFilter::DEBUG)),
            ("trace", Level(LevelFilter::TRACE)),
        ];
        let level = self.given(level, "--log", env::LOG);
        let formats = [("text", Format::Text), ("json", Format::Json)];
        let format = self.given(format, "--log-format", env::LOG_FORMAT);
        let file = self.given(file, "--log-file", env::LOG_FILE);
        telemetry::Config {
            level: self.word(level, &levels).0,
            format: self.word(format, &formats),
            file: file.map(|given| given.value.into()),
        }
    }

    pub(super) fn home(&self) -> Option<PathBuf> {
        self.environment.find("HOME").map(PathBuf::from)
    }

    fn cache(&self) -> PathBuf {
        let own = self.environment.find("XDG_CACHE_HOME").map(PathBuf::from);
        own.filter(|path| path.is_absolute())
            .or_else(|| Some(self.home()?.join(".cache")))
            .unwrap_or_else(|| PathBuf::from(".codex-relay-cache"))
            .join("codex-relay")
    }
}

#[derive(Clone, Copy)]
struct Level(LevelFilter);

impl Default for Level {
    fn default() -> Self {
        Self(LevelFilter::WARN)
    }
}

/// A value in quotes, as it can be shown.
pub(super) fn shown(value: &OsStr) -> String {
    format!("\"{}\"", value.display())
}

/// Below the home folder.
const DEFAULT_CONFIG: &str = ".codex-relay/config.toml";

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
