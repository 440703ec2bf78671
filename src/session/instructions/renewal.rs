//! The renewal of a thread's developer instructions: left, resumed with the current text, told of it.
//!
//! ```text
//!  Look ───▶ Leave ───────────▶ Return ─────────────▶ Tell ─────────▶ the turn
//!  resume    unsubscribe        resume with the text  one message of
//!  (as it    (codex keeps it    (codex unloads the    a developer
//!  is)       loaded)            thread, loads it anew)
//! ```
//! A step that fails, or that codex leaves unanswered, refuses the turn; the thread is kept, and
//! nothing that may have been written is written again.

use std::fmt;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::base::limits::MAX_KEPT_CONFIG_BYTES;
use crate::context::orders::Text;
use crate::session::instructions::opening::KeptConfig;
use crate::session::instructions::places::Places;
use crate::session::instructions::sandbox::{self, Ground};
use crate::session::instructions::told::Told;
use crate::wire::envelope::member;
use crate::wire::known::Place;
use crate::wire::{literal, scan};

/// A request of our own on the way to the next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `thread/resume` of a loaded thread, which changes nothing: its answer has the settings.
    Look,
    /// `thread/unsubscribe`: codex unloads nothing that somebody watches.
    Leave,
    /// `thread/resume` with the current text.
    Return,
    /// `thread/inject_items`: the text for the model.
    Tell,
    /// `thread/unsubscribe` where the client wasn't subscribed.
    Part,
}

/// Why a turn can't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The thread is to go another way, and turns may start on it by themselves.
    AtWork,
    /// The thread is ephemeral, and its policy is another now.
    Ephemeral,
    /// Codex kept the thread loaded: somebody else watches it.
    NotUnloaded,
    /// Codex answered with an error.
    Refused,
    /// The client's `config`, its policy for the sandbox, or its instructions are too large to be kept.
    TooLarge,
    /// Codex hasn't answered: nobody knows what it did.
    Unknown,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AtWork => {
                "codex is at work on the thread (a compaction, a review, a command or a goal), which \
                 its renewal would end; send the turn again when that has ended"
            }
            Self::Ephemeral => {
                "the developer policy has changed, and an ephemeral thread can't be resumed with \
                 another; restore the policy, or start a new thread"
            }
            Self::NotUnloaded => {
                "codex did not unload the thread, so somebody else is subscribed to it, or it is a \
                 sub-agent's; end the other subscription and send the turn again"
            }
            Self::Refused => {
                "codex refused a step of the renewal; mend what it names, if anything, and send the turn \
                 again"
            }
            Self::TooLarge => {
                "the thread's config, sandbox policy or instructions are too large to be given again; \
                 resume the thread yourself"
            }
            Self::Unknown => {
                "codex did not answer a step of the renewal, so what it did is unknown; wait and \
                 send the turn again, or resume the thread"
            }
        })
    }
}

impl Step {
    /// The method.
    pub fn method(self) -> &'static str {
        match self {
            Self::Look | Self::Return => "thread/resume",
            Self::Leave | Self::Part => "thread/unsubscribe",
            Self::Tell => "thread/inject_items",
        }
    }

    /// The params as JSON, but for the route.
    ///
    /// A return takes the profile of permissions that the turn runs under where there is one, else
    /// the mode of the sandbox.
    pub fn params(
        self,
        thread: &str,
        told: &Told,
        (text, permissions): (&Text, Permissions<'_>),
    ) -> Vec<u8> {
        let mut params = [b"{\"threadId\":", &literal::quote(thread)[..]].concat();
        match self {
            Self::Leave | Self::Part => {}
            Self::Look => params.extend(b",\"excludeTurns\":true"),
            Self::Return => {
                params.extend(b",\"excludeTurns\":true,\"developerInstructions\":");
                params.extend(literal::quote(&text.whole));
                for (name, value) in &told.kept {
                    params.extend(format!(",\"{name}\":").bytes());
                    params.extend(value);
                }
                if let Some((name, value)) = permissions.member() {
                    params.extend(format!(",\"{name}\":").bytes());
                    params.extend(literal::quote(value));
                }
                if let KeptConfig::Kept(config) = &told.config {
                    params.extend(b",\"config\":");
                    params.extend(config);
                }
            }
            Self::Tell => {
                params.extend(b",\"items\":[");
                params.extend(text.item().to_string().into_bytes());
                params.push(b']');
            }
        }
        params.push(b'}');
        params
    }
}

/// What a thread that is resumed may do; codex takes one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions<'a> {
    /// A profile of permissions by its name.
    pub profile: Option<&'a str>,
    /// The mode of a sandbox.
    pub mode: Option<&'static str>,
}

impl<'a> Permissions<'a> {
    fn member(self) -> Option<(&'static str, &'a str)> {
        let profile = self.profile.map(|profile| (PROFILE, profile));
        profile.or_else(|| self.mode.map(|mode| ("sandbox", mode)))
    }
}

/// What a thread is set to, as far as `turn/start` can set it again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    members: Map<String, Value>,
    /// Where it works.
    ground: Ground,
}

impl Settings {
    /// Reads them from the answer to a resume, and from what codex said when they last changed.
    pub fn read(answer: &Bytes, told: Option<&Bytes>) -> Self {
        let whole = 0..answer.len();
        let find = |path: &[&str]| {
            let at = member(answer, &whole, path)?;
            serde_json::from_slice::<Value>(answer.get(at)?).ok()
        };
        let mut settings = Map::new();
        for (name, path) in IN_ANSWER {
            let path: Vec<&str> = std::iter::once("result")
                .chain(path.iter().copied())
                .collect();
            settings.extend(find(&path).map(|value| (name.to_owned(), value)));
        }
        let told = told.and_then(|it| serde_json::from_slice::<Map<String, Value>>(it).ok());
        let mut told = told.unwrap_or_default();
        for name in TOLD_ALONE {
            if let Some(value) = told.remove(name) {
                settings.entry(name).or_insert(value);
            }
        }
        let of = |name| settings.get(name).cloned().unwrap_or_default();
        let ground = Ground {
            cwd: of("cwd"),
            environments: of("environments"),
            roots: find(&["result", "runtimeWorkspaceRoots"]).unwrap_or_default(),
        };
        Self {
            members: settings,
            ground,
        }
    }

    /// The mode of its sandbox, where no profile is in force.
    pub fn mode(&self) -> Option<&'static str> {
        sandbox::mode(self.members.get(POLICY).filter(|_| !self.has_profile())?)
    }

    fn has_profile(&self) -> bool {
        let profile = self.members.get(PROFILE);
        profile.is_some_and(|it| !it.is_null())
    }

    /// What must be set again, as members of `turn/start`: what differs from `now`, and the policy
    /// `own` that the client has set itself.
    pub fn lost(
        &self,
        now: &Self,
        own: Option<&Value>,
        is_experimental: bool,
    ) -> Vec<(String, Value)> {
        let is_lost = |(name, value): &(&String, &Value)| {
            !value.is_null()
                && name.as_str() != POLICY
                && now.members.get(*name) != Some(value)
                && (is_experimental || !EXPERIMENTAL.contains(&name.as_str()))
        };
        let mut lost: Vec<(String, Value)> = self
            .members
            .iter()
            .filter(is_lost)
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        // Each of them brings the other along, but for one that stands beside it.
        let together = [FOLDER, PLACES];
        if is_experimental && lost.iter().any(|(name, _)| together.contains(&&**name)) {
            for name in together {
                let before = self.members.get(name).filter(|it| !it.is_null());
                if let Some(before) = before.filter(|_| lost.iter().all(|(it, _)| it != name)) {
                    lost.push((name.to_owned(), before.clone()));
                }
            }
        }
        // Codex takes one of them. A profile is its name; what it comes to as a policy says less.
        if !(self.has_profile() && is_experimental) {
            let policy = self.lost_policy(now, own);
            lost.extend(policy.map(|policy| (POLICY.to_owned(), policy)));
        }
        lost
    }

    fn lost_policy(&self, now: &Self, own: Option<&Value>) -> Option<Value> {
        let policy = self.members.get(POLICY).filter(|it| !it.is_null())?;
        let new = now.members.get(POLICY).unwrap_or(&Value::Null);
        let (old, new) = ((policy, &self.ground), (new, &now.ground));
        let own = own.filter(|_| !self.has_profile());
        let is_another = !self.has_profile() && now.has_profile();
        sandbox::lost(old, new, own)
            .or_else(|| is_another.then(|| sandbox::fixed(policy, &self.ground)))
    }
}

/// Of what a renewal has lost, what a turn with `params` and these environments doesn't settle in another
/// way.
pub fn still_lost(
    line: &[u8],
    (params, places): (&impl Place, Option<&Places>),
    mut lost: Vec<(String, Value)>,
) -> Vec<(String, Value)> {
    let has = |name| has(line, params, name);
    if has(PROFILE) || has(POLICY) {
        lost.retain(|(name, _)| name != PROFILE && name != POLICY);
    }
    // A folder, and roots, bring the usual environments along, and one of this machine brings its folder.
    if (has(FOLDER) || has(ROOTS)) && places.is_none() {
        lost.retain(|(name, _)| name != PLACES);
    }
    if places.is_some_and(|places| !places.are_elsewhere()) {
        lost.retain(|(name, _)| name != FOLDER);
    }
    // A mode has a model and an effort of its own, which come before those beside it.
    if let Some((_, mode)) = lost.iter_mut().find(|(name, _)| name == MODE) {
        for (name, in_mode) in [("effort", "reasoning_effort"), ("model", "model")] {
            let value = member(line, params, &[name]).and_then(|at| line.get(at));
            let value = value.and_then(|value| serde_json::from_slice::<Value>(value).ok());
            let settings = mode.get_mut("settings").and_then(Value::as_object_mut);
            if let (Some(value), Some(settings)) = (value.filter(|it| !it.is_null()), settings) {
                settings.insert(in_mode.to_owned(), value);
            }
        }
    }
    lost
}

/// Whether a turn with `params` sets anything of its thread, so that codex tells what it is set to.
pub fn sets_any(line: &[u8], params: &impl Place) -> bool {
    let names = IN_ANSWER.iter().map(|(name, _)| *name);
    let mut names = names.chain(TOLD_ALONE).chain([ROOTS]);
    names.any(|name| has(line, params, name))
}

/// Whether params have a member that is more than `null`.
fn has(line: &[u8], params: &impl Place, name: &str) -> bool {
    member(line, params, &[name]).is_some_and(|at| !scan::is_null(line, &at))
}

/// What a turn with `params` sets its thread to that no answer of codex has as it stands, or that codex
/// tells clients with `experimentalApi` alone.
pub fn set_by_turn(
    line: &[u8],
    params: &impl Place,
    lost: &[(String, Value)],
) -> Map<String, Value> {
    let value = |name| {
        let value = line.get(member(line, params, &[name])?)?;
        let value: Value = serde_json::from_slice(value).ok()?;
        value.is_string().then(|| (name.to_owned(), value))
    };
    let mut sets: Map<String, Value> = ["personality", "summary"]
        .into_iter()
        .filter_map(value)
        .collect();
    // What is set again in the client's place is its own from now on.
    let again = lost.iter().filter(|(name, _)| name == POLICY);
    sets.extend(again.cloned());
    sets.extend(permissions_set_by(line, params));
    sets
}

/// The profile, or the policy, that a request with `params` sets; `null` where it is too large to be kept.
pub fn permissions_set_by(line: &[u8], params: &impl Place) -> Map<String, Value> {
    let value = |name: &str| {
        let value = line.get(member(line, params, &[name])?)?;
        let value = if value.len() > MAX_KEPT_CONFIG_BYTES {
            Some(Value::Null)
        } else {
            let value = serde_json::from_slice::<Value>(value).ok();
            value.filter(|it| !it.is_null())
        };
        Some((name.to_owned(), value?))
    };
    [PROFILE, POLICY].into_iter().filter_map(value).collect()
}

/// Members of `turn/start`, and where the answer to `thread/resume` has them.
const IN_ANSWER: [(&str, &[&str]); 10] = [
    ("approvalPolicy", &["approvalPolicy"]),
    ("approvalsReviewer", &["approvalsReviewer"]),
    (MODE, &["collaborationMode"]),
    (FOLDER, &["cwd"]),
    ("effort", &["reasoningEffort"]),
    (PLACES, &["thread", "environments"]),
    ("model", &["model"]),
    (PROFILE, &["activePermissionProfile", "id"]),
    (POLICY, &["sandbox"]),
    ("serviceTier", &["serviceTier"]),
];

/// Members that a change of settings tells, and the answer to a resume doesn't.
const TOLD_ALONE: [&str; 3] = [MODE, "personality", "summary"];

/// Members that codex takes of a client with `experimentalApi` alone.
const EXPERIMENTAL: [&str; 3] = [MODE, PLACES, PROFILE];

/// The member with the mode that a thread is in, and the model and the effort for it.
const MODE: &str = "collaborationMode";

/// The member with the thread's folder.
const FOLDER: &str = "cwd";

/// The member that says on which machines, and where on them, a thread works.
const PLACES: &str = "environments";

/// The member with the folders that are the thread's workspace.
const ROOTS: &str = "runtimeWorkspaceRoots";

/// The member that chooses a profile of permissions by its name.
pub(super) const PROFILE: &str = "permissions";

/// The member that sets a policy in its place.
pub(super) const POLICY: &str = "sandboxPolicy";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings(profile: Option<&str>, sandbox: &str) -> Settings {
        let profile = profile.map(|id| json!({"id": id, "extends": null}));
        let result = json!({"activePermissionProfile": profile, "sandbox": {"type": sandbox}});
        Settings::read(&Bytes::from(json!({"result": result}).to_string()), None)
    }

    #[test]
    fn profile_is_set_again_by_its_name_and_a_policy_where_there_was_none() {
        let policy = |kind: &str| vec![(POLICY.to_owned(), json!({"type": kind}))];
        let profile = |id: &str| vec![(PROFILE.to_owned(), json!(id))];
        for (before, now, is_experimental, lost) in [
            ((Some("a"), "x"), (Some("a"), "x"), true, vec![]),
            ((Some("a"), "x"), (Some("b"), "x"), true, profile("a")),
            ((Some("a"), "x"), (Some("b"), "y"), true, profile("a")),
            ((Some("a"), "x"), (None, "x"), true, profile("a")),
            ((None, "x"), (Some("b"), "x"), true, policy("x")),
            ((None, "x"), (Some("b"), "y"), false, policy("x")),
            ((None, "x"), (None, "y"), true, policy("x")),
            ((Some("a"), "x"), (Some("b"), "y"), false, policy("x")),
            ((Some("a"), "x"), (Some("b"), "x"), false, vec![]),
        ] {
            let [before, now] = [before, now].map(|(id, sandbox)| settings(id, sandbox));
            assert_eq!(before.lost(&now, None, is_experimental), lost);
        }
    }

    #[test]
    fn choice_of_the_turn_itself_is_left_alone() {
        let lost = vec![
            (POLICY.to_owned(), json!({})),
            ("cwd".to_owned(), json!("/")),
            (PLACES.to_owned(), json!([])),
        ];
        let left = |params: &str| {
            let whole = 0..params.len();
            let list = member(params.as_bytes(), &whole, &[PLACES]);
            let places = list.and_then(|at| Places::read(params.as_bytes(), &at));
            still_lost(params.as_bytes(), (&whole, places.as_ref()), lost.clone())
        };
        assert_eq!(left(r#"{"permissions":"a"}"#), lost[1..]);
        assert_eq!(left(r#"{"sandboxPolicy":{}}"#), lost[1..]);
        assert_eq!(left(r#"{"permissions":null}"#), lost);
        assert_eq!(left(r#"{"cwd":"/a"}"#), lost[..2]);
        assert_eq!(left(r#"{"runtimeWorkspaceRoots":["/a"]}"#), lost[..2]);
        assert_eq!(left(r#"{"environments":[]}"#), lost);
        let here = r#"{"environments":[{"environmentId":"local","cwd":"/a"}]}"#;
        assert_eq!(left(here), [lost[0].clone(), lost[2].clone()]);
    }

    #[test]
    fn mode_that_is_set_again_has_the_model_and_the_effort_of_the_turn() {
        let mode = |model: &str, effort: &str| {
            let settings = json!({"model": model, "reasoning_effort": effort});
            vec![(
                MODE.to_owned(),
                json!({"mode": "plan", "settings": settings}),
            )]
        };
        for (params, model, effort) in [
            (r#"{"effort":"low"}"#, "m", "low"),
            (r#"{"model":"n"}"#, "n", "high"),
            (r#"{"effort":null}"#, "m", "high"),
        ] {
            let whole = 0..params.len();
            let lost = still_lost(params.as_bytes(), (&whole, None), mode("m", "high"));
            assert_eq!(lost, mode(model, effort), "{params}");
        }
    }

    #[test]
    fn folder_and_environments_are_set_again_together() {
        let read = |cwd: &str, place: &str| {
            let environments = json!([{"environmentId": "local", "cwd": place}]);
            let result = json!({"cwd": cwd, "thread": {"environments": environments}});
            Settings::read(&Bytes::from(json!({"result": result}).to_string()), None)
        };
        let before = read("/a", "/b");
        let names = |now: &Settings, is_experimental| {
            let lost = before.lost(now, None, is_experimental);
            let mut names: Vec<String> = lost.into_iter().map(|(name, _)| name).collect();
            names.sort();
            names
        };
        for now in [read("/a", "/a"), read("/c", "/b"), read("/c", "/c")] {
            assert_eq!(names(&now, true), ["cwd", "environments"]);
        }
        assert_eq!(names(&read("/a", "/b"), true), [""; 0]);
        assert_eq!(names(&read("/a", "/a"), false), [""; 0]);
    }
}
