//! The credential of the upstream: where it comes from, and who must not see it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::secret::Secret;
use crate::config::args::Options;
use crate::config::env;
use crate::config::settings::{Given, Reader, shown};
use crate::upstream::bearer::{Bearer, BearerError, Source, credential, read_file};
use crate::upstream::destination::Destination;

/// The credential, and the environment that is left for other programs.
pub(super) struct Own {
    pub(super) bearer: Option<Arc<Bearer>>,
    pub(super) environment: Vec<(OsString, OsString)>,
}

impl Reader<'_> {
    /// Reads where the upstream's credential comes from.
    pub(super) fn bearer(&mut self, options: &Options, destination: &Destination) -> Own {
        let variable = options.upstream_bearer_env.clone();
        let variable = self.given(variable, "--upstream-bearer-env", env::UPSTREAM_BEARER_ENV);
        let file = options.upstream_bearer_file.clone();
        let file = self.given(file, "--upstream-bearer-file", env::UPSTREAM_BEARER_FILE);
        let flag = "--upstream-bearer-command";
        let command = options.upstream_bearer_command.clone();
        let command = self.given(command, flag, env::UPSTREAM_BEARER_COMMAND);
        let mut environment = self.environment.all();
        if let Some(variable) = &variable {
            environment.retain(|(name, _)| *name != variable.value);
        }
        let all = [&variable, &file, &command];
        let places: Vec<&str> = all
            .iter()
            .filter_map(|it| Some(&*it.as_ref()?.place))
            .collect();
        let place = places.first().copied().unwrap_or_default().to_owned();
        let several = (places.len() > 1).then(|| places.join(" and "));
        if let Some(several) = several {
            self.fault(
                several,
                "are given together, expected one of them".to_owned(),
            );
        }
        if !place.is_empty() && *destination == Destination::ByAccount {
            self.fault(
                place,
                "needs --upstream: it must be clear whom the credential is for".to_owned(),
            );
        }
        let source = variable.and_then(|given| self.of_variable(&given));
        let source = source.or_else(|| self.of_file_option(file?));
        let source = source.or_else(|| {
            let line = self.of_command(command?)?;
            let environment = environment.clone();
            Some(Source::Command { line, environment })
        });
        let bearer = source.map(|source| Arc::new(Bearer::new(source)));
        Own {
            bearer,
            environment,
        }
    }

    fn of_variable(&mut self, Given { place, value: name }: &Given) -> Option<Source> {
        let value = name.to_str().and_then(|name| self.environment.find(name));
        let Some(value) = value else {
            let mut all = self.environment.all().into_iter();
            let what = if all.any(|(known, _)| known == *name) {
                "is empty, expected the credential"
            } else {
                "is not set"
            };
            let fault = format!("the environment variable {} {what}", shown(name));
            self.fault(place.clone(), fault);
            return None;
        };
        let value = value.into_string();
        let is_good = match &value {
            Ok(value) => credential(value).map(|_| ()),
            Err(_) => Err(BearerError::NotAWord),
        };
        let value = value.unwrap_or_default();
        if let Err(error) = is_good {
            self.fault(
                place.clone(),
                format!("the variable {} {error}", shown(name)),
            );
        }
        Some(Source::Value(Secret::new(value)))
    }

    fn of_file_option(&mut self, Given { place, value }: Given) -> Option<Source> {
        let path = PathBuf::from(&value);
        if let Err(error) = read_file(&path) {
            self.fault(place, format!("{} {error}", shown(&value)));
            return None;
        }
        // A relative path must not follow a later change of folder.
        Some(Source::File(std::path::absolute(&path).unwrap_or(path)))
    }

    fn of_command(&mut self, Given { place, value }: Given) -> Option<OsString> {
        if value.to_string_lossy().trim().is_empty() {
            self.fault(place, "is empty, expected a shell command".to_owned());
            return None;
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::env::Strings;
    use crate::config::settings::{ConfigErrors, Settings};

    struct Fixed(Vec<(&'static str, String)>);

    impl Strings for Fixed {
        fn find(&self, name: &str) -> Option<OsString> {
            let found = self.0.iter().find(|(known, _)| *known == name);
            let found = found.map(|(_, value)| OsString::from(value));
            found.filter(|value| !value.is_empty())
        }

        fn all(&self) -> Vec<(OsString, OsString)> {
            let pairs = self.0.iter();
            pairs
                .map(|(name, value)| (name.into(), value.into()))
                .collect()
        }
    }

    const UPSTREAM: (&str, &str) = (env::UPSTREAM, "https://gateway.example/v1");

    fn read(pairs: &[(&'static str, &str)]) -> Result<Settings, ConfigErrors> {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        Settings::read(Options::default(), &Fixed(pairs.collect()))
    }

    #[test]
    fn variable_with_the_credential_is_taken_out_of_the_environment_of_others() {
        let settings = read(&[
            UPSTREAM,
            (env::UPSTREAM_BEARER_ENV, "GATEWAY_KEY"),
            ("GATEWAY_KEY", "hidden"),
            ("OTHER", "kept"),
        ]);
        let settings = settings.unwrap();
        let names: Vec<_> = settings.environment.iter().map(|(name, _)| name).collect();
        assert!(names.iter().any(|name| *name == "OTHER"));
        assert!(names.iter().all(|name| *name != "GATEWAY_KEY"));
        let bearer = settings.bearer.clone().unwrap();
        assert_eq!(bearer.option(), "--upstream-bearer-env");
        assert!(!format!("{settings:?}{bearer:?}").contains("hidden"));
        assert!(read(&[UPSTREAM]).unwrap().bearer.is_none());
    }

    #[test]
    fn file_and_command_may_be_named_by_the_configuration_file() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.toml");
        let key = folder.path().join("key");
        std::fs::write(&key, "word\n").unwrap();
        let of = |text: &str| {
            std::fs::write(&config, text).unwrap();
            let settings = read(&[UPSTREAM, (env::CONFIG, &config.display().to_string())]);
            settings.unwrap().bearer.unwrap().option()
        };
        let file = format!("upstream_bearer_file = {:?}", key.display().to_string());
        assert_eq!(of(&file), "--upstream-bearer-file");
        assert_eq!(
            of("upstream_bearer_command = \"echo word\""),
            "--upstream-bearer-command"
        );
    }

    #[test]
    fn every_mistake_names_the_option_and_never_the_credential() {
        let words = |pairs: &[(&'static str, &str)]| read(pairs).unwrap_err().to_string();
        let two = words(&[
            UPSTREAM,
            (env::UPSTREAM_BEARER_ENV, "KEY"),
            ("KEY", "hidden words"),
            (env::UPSTREAM_BEARER_COMMAND, " "),
        ]);
        let both = "CODEX_RELAY_UPSTREAM_BEARER_ENV and CODEX_RELAY_UPSTREAM_BEARER_COMMAND";
        assert!(two.contains(both), "{two}");
        assert!(
            two.contains("the variable \"KEY\" gives more than one word"),
            "{two}"
        );
        assert!(!two.contains("hidden"), "{two}");
        let none = words(&[(env::UPSTREAM_BEARER_ENV, "KEY")]);
        assert!(none.contains("needs --upstream"), "{none}");
        assert!(none.contains("\"KEY\" is not set"), "{none}");
        let empty = words(&[UPSTREAM, (env::UPSTREAM_BEARER_ENV, "KEY"), ("KEY", "")]);
        assert!(empty.contains("\"KEY\" is empty"), "{empty}");
        let folder = words(&[UPSTREAM, (env::UPSTREAM_BEARER_FILE, "/dev/null")]);
        assert!(
            folder.contains("\"/dev/null\" is no regular file"),
            "{folder}"
        );
        let file = words(&[UPSTREAM, (env::UPSTREAM_BEARER_FILE, "/no/such/file")]);
        assert!(file.contains("\"/no/such/file\" can't be read"), "{file}");
        let empty = words(&[UPSTREAM, (env::UPSTREAM_BEARER_COMMAND, " ")]);
        assert!(empty.contains("expected a shell command"), "{empty}");
    }
}
