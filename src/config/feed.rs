//! Where contexts come from, and what shapes them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::ids::ProfileId;
use crate::config::env;
use crate::config::settings::{Given, Reader, shown};
use crate::context::budget::Budgets;
use crate::context::supplier::Supplier;
use crate::feed::orders::{self, OrdersFeed};
use crate::feed::source::{Feed, Local};
use crate::workspace::load::Workspace;
use crate::workspace::skills::Surroundings;

/// What was typed of it.
#[derive(Debug, Default)]
pub(super) struct FeedOptions {
    pub(super) workspace: Option<OsString>,
    pub(super) memory_workspace: Option<OsString>,
    pub(super) profile: Option<OsString>,
    pub(super) context: Option<OsString>,
}

impl Reader<'_> {
    pub(super) fn feed(&mut self, options: FeedOptions) -> Feed {
        let given = self.given(options.context, "--context", env::CONTEXT);
        let supplier = self.word(given, &Supplier::ALL);
        let given = self.given(options.workspace, "--workspace", env::WORKSPACE);
        let root = match given {
            Some(given) => Some(self.folder(given)),
            None => self
                .home()
                .map(|home| home.join(DEFAULT_WORKSPACE))
                .filter(|root| root.is_dir()),
        };
        let flag = "--memory-workspace";
        let memory = self.given(options.memory_workspace, flag, env::MEMORY_WORKSPACE);
        let memory = memory.map(|given| self.folder(given));
        let profile = self.profile(options.profile);
        let around = self.surroundings();
        let local = Local {
            workspace: root.map(|root| Workspace::new(root, memory, around)),
            profile,
            budgets: self.budgets(),
            memory_guidance: self.memory_guidance(),
            ..Local::default()
        };
        match supplier {
            Supplier::Workspace => Feed::Local(Arc::new(local)),
            Supplier::Client => Feed::Client(Arc::new(Local {
                workspace: None,
                ..local
            })),
            Supplier::Nobody => Feed::Nobody,
        }
    }

    /// The developer policy, and the workspace whose AGENTS.md codex may not find.
    pub(super) fn orders(&mut self, typed: Option<OsString>, feed: &Feed) -> OrdersFeed {
        let given = self.given(typed, "--policy-file", env::POLICY_FILE);
        let policy = given.map(|Given { place, value }| {
            let path = PathBuf::from(value);
            match orders::policy(&path) {
                Ok(Some(_)) => {}
                Ok(None) => self.fault(place, format!("{} is not there", path.display())),
                Err(error) => self.fault(place, error.to_string()),
            }
            // A relative path must not follow a later change of folder.
            std::path::absolute(&path).unwrap_or(path)
        });
        let workspace = match feed {
            Feed::Client(local) | Feed::Local(local) => {
                local.workspace.as_ref().map(|it| it.root.clone())
            }
            Feed::Nobody => None,
        };
        OrdersFeed { policy, workspace }
    }

    fn folder(&mut self, Given { place, value }: Given) -> PathBuf {
        let root = PathBuf::from(value);
        if !root.is_dir() {
            self.fault(place, format!("{} is not a folder", root.display()));
        }
        // A relative root must not follow a later change of folder.
        std::path::absolute(&root).unwrap_or(root)
    }

    fn profile(&mut self, typed: Option<OsString>) -> Option<ProfileId> {
        let Given { place, value } = self.given(typed, "--profile", env::PROFILE)?;
        let profile = value.to_str().and_then(ProfileId::new);
        if profile.is_none() {
            let shown = shown(&value);
            self.fault(
                place,
                format!("{shown} is not an id: a letter or digit, then letters, digits, _ and -"),
            );
        }
        profile
    }

    fn memory_guidance(&mut self) -> String {
        let member = "memory_guidance";
        let value = self.file.as_mut().and_then(|file| file.take(member));
        let given = value.and_then(|value| self.of_file(member, value));
        let given = given.map(|given| given.value.to_string_lossy().into_owned());
        given.unwrap_or_default()
    }

    fn surroundings(&mut self) -> Surroundings {
        let home = self.home();
        let codex_home = self.environment.find("CODEX_HOME").map(PathBuf::from);
        let codex_home = codex_home.or_else(|| Some(home.as_ref()?.join(".codex")));
        let own = codex_home.map(|it| it.join("skills"));
        let shared = home.map(|it| it.join(".agents/skills"));
        let of_codex = [own, shared, Some(PathBuf::from("/etc/codex/skills"))];
        let variables = self.environment.all().into_iter().map(|(name, _)| name);
        Surroundings {
            path: self.environment.find("PATH"),
            variables: variables.collect(),
            disabled: self.disabled_skills(),
            of_codex: of_codex.into_iter().flatten().collect(),
        }
    }

    fn disabled_skills(&mut self) -> BTreeSet<String> {
        let Some(file) = &mut self.file else {
            return BTreeSet::new();
        };
        match file.take_list("skills", "disabled") {
            None => BTreeSet::new(),
            Some(Ok(names)) => names.into_iter().collect(),
            Some(Err(kind)) => {
                let place = file.place("skills.disabled");
                self.fault(place, format!("is a TOML {kind}, expected a list of texts"));
                BTreeSet::new()
            }
        }
    }

    fn budgets(&mut self) -> Budgets {
        let standard = Budgets::default();
        Budgets {
            file_chars: self.budget("file_chars", standard.file_chars),
            user_chars: self.budget("user_chars", standard.user_chars),
            total_chars: self.budget("total_chars", standard.total_chars),
            skills: self.budget("skills", standard.skills),
            skills_chars: self.budget("skills_chars", standard.skills_chars),
        }
    }

    fn budget(&mut self, name: &str, standard: usize) -> usize {
        let value = self
            .file
            .as_mut()
            .and_then(|file| file.take_from("budgets", name));
        let member = format!("budgets.{name}");
        let Some(given) = value.and_then(|value| self.of_file(&member, value)) else {
            return standard;
        };
        match given.value.to_str().and_then(|text| text.parse().ok()) {
            Some(number) if number > 0 => number,
            _ => {
                let shown = shown(&given.value);
                let what = if name == "skills" {
                    "skills"
                } else {
                    "characters"
                };
                self.fault(
                    given.place,
                    format!("{shown} is not a number of {what}, 1 or more"),
                );
                standard
            }
        }
    }
}

/// Below the home folder.
pub const DEFAULT_WORKSPACE: &str = ".codex-relay/workspace";
