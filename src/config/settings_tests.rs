use clap::Parser;

use std::path::Path;

use super::*;
use crate::config::args::Args;

struct Fixed(Vec<(&'static str, String)>);

impl Strings for Fixed {
    fn find(&self, name: &str) -> Option<OsString> {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.into())
    }

    fn all(&self) -> Vec<(OsString, OsString)> {
        self.0
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }
}

fn read(line: &[&str], environment: Vec<(&'static str, String)>) -> Result<Settings, ConfigErrors> {
    let args = [&["codex-relay"], line, &["app-server"]].concat();
    Settings::read(Args::parse_from(args).options, &Fixed(environment))
}

fn workspace(settings: &Settings) -> Option<&Path> {
    match &settings.feed {
        Feed::Nobody => None,
        Feed::Client(local) | Feed::Local(local) => local.workspace.as_ref().map(|it| &*it.root),
    }
}

#[test]
fn defaults_hold_without_a_word() {
    let settings = read(&[], vec![]).unwrap();
    assert_eq!(settings.max_context_bytes, 262_144);
    assert_eq!(settings.destination, Destination::ByAccount);
    assert_eq!(settings.on_unrecognized, OnUnrecognized::Refuse);
    assert!(workspace(&settings).is_none());
}

#[test]
fn workspace_in_the_home_folder_is_the_default_where_it_exists() {
    let home = tempfile::tempdir().unwrap();
    let at_home = vec![("HOME", home.path().display().to_string())];
    assert!(workspace(&read(&[], at_home.clone()).unwrap()).is_none());
    let root = home.path().join(".codex-relay/workspace");
    std::fs::create_dir_all(&root).unwrap();
    assert_eq!(
        workspace(&read(&[], at_home.clone()).unwrap()),
        Some(&*root)
    );
    let none = read(&["--context", "none"], at_home).unwrap();
    assert!(matches!(none.feed, Feed::Nobody));
}

#[test]
fn flag_beats_environment() {
    let environment = vec![
        (env::MAX_CONTEXT_BYTES, "7".to_owned()),
        (env::ON_UNRECOGNIZED, "pass".to_owned()),
    ];
    let settings = read(&["--max-context-bytes", "9"], environment).unwrap();
    assert_eq!(settings.max_context_bytes, 9);
    assert_eq!(settings.on_unrecognized, OnUnrecognized::Pass);
}

#[test]
fn every_mistake_is_told_at_once_with_its_place() {
    let line = [
        "--workspace",
        "/nowhere/at all",
        "--upstream",
        "http://h.example/v1",
        "--max-context-bytes",
        "262145",
        "--log",
        "loud",
    ];
    let environment = vec![
        (env::ON_UNRECOGNIZED, "maybe".to_owned()),
        (env::CONTEXT, "moon".to_owned()),
    ];
    let errors = read(&line, environment).unwrap_err();
    let places: Vec<&str> = errors.0.iter().map(|error| error.place.as_str()).collect();
    assert_eq!(
        places,
        [
            env::CONTEXT,
            "--workspace",
            "--upstream",
            "--max-context-bytes",
            env::ON_UNRECOGNIZED,
            "--log"
        ]
    );
    let text = errors.to_string();
    assert!(text.contains("/nowhere/at all is not a folder"), "{text}");
    assert!(text.contains("1 to 262144"), "{text}");
}

#[test]
fn password_in_a_url_is_not_shown() {
    let errors = read(&["--upstream", "https://u:secret@h.example"], vec![]).unwrap_err();
    assert!(!errors.to_string().contains("secret"), "{errors}");
}

#[test]
fn file_is_read_behind_flag_and_environment_and_unknown_members_are_named() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("my config.toml");
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    let name = file.display().to_string();
    let at = |environment| read(&["--config", &name], environment);
    write("max_context_bytes = 7\non_unrecognized = \"pass\"\n[budgets]\nfile_chars = 9\n");
    let settings = at(vec![(env::ON_UNRECOGNIZED, "refuse".to_owned())]).unwrap();
    assert_eq!(settings.max_context_bytes, 7);
    assert_eq!(settings.on_unrecognized, OnUnrecognized::Refuse);
    write("max_context_byte = 7\nlog = true\n[budgets]\nfile_chars = 0\nfiles = 1\n");
    let errors = at(vec![]).unwrap_err();
    let places: Vec<String> = errors.0.into_iter().map(|error| error.place).collect();
    let member = |member: &str| format!("{name}: {member}");
    assert_eq!(
        places,
        [
            member("budgets.file_chars"),
            member("log"),
            member("budgets.files"),
            member("max_context_byte")
        ]
    );
    write("= 7");
    let errors = at(vec![]).unwrap_err().to_string();
    assert!(errors.contains("is not TOML"), "{errors}");
    let absent = read(&["--config", "/no/such/file"], vec![]).unwrap_err();
    assert!(absent.to_string().contains("can't be read"), "{absent}");
}

#[test]
fn file_in_the_home_folder_is_the_default_where_it_exists() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".codex-relay")).unwrap();
    std::fs::write(
        home.path().join(".codex-relay/config.toml"),
        "log = \"off\"",
    )
    .unwrap();
    let settings = read(&[], vec![("HOME", home.path().display().to_string())]).unwrap();
    assert_eq!(settings.telemetry.level, LevelFilter::OFF);
}

#[test]
fn warnings_for_every_client_are_a_flag_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    let name = file.display().to_string();
    let of = |text: &str| {
        std::fs::write(&file, text).unwrap();
        read(&["--config", &name], vec![])
    };
    assert!(!of("").unwrap().notifications);
    assert!(of("notifications = true").unwrap().notifications);
    let errors = of("notifications = \"yes\"").unwrap_err().to_string();
    assert!(
        errors.contains("notifications: is a TOML string, expected true or false"),
        "{errors}"
    );
}
