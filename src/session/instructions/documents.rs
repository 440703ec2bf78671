//! What codex itself shows of the workspace's AGENTS.md, so that a copy stands just where it doesn't.
//!
//! Codex reads the documents of a thread when it loads it, and again at the first turn in another
//! folder, with other environments or with other permissions; each answer to a start, a resume and a
//! fork lists them as `instructionSources` (0.155.1 and 0.171.0). Which folder that is, `places` says.
//! The resume of a loaded thread lists what was read last, and not what its next turn will have. A
//! profile of permissions that gives no access to a folder leaves its document out; one that denies it
//! by name makes codex refuse the thread or the turn.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::limits::{MAX_KEPT_LISTINGS, MAX_LISTED_DOCUMENTS};
use crate::context::orders::{Agents, Orders};
use crate::context::turn_kind::TurnKind;
use crate::session::instructions::places::Places;
use crate::wire::envelope::{member, member_text, text};
use crate::wire::known::Place;
use crate::wire::scan::{self, Elements, ScanError};

/// What codex has told of a thread's documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Documents {
    /// The profile of permissions that is in force; none where a sandbox policy is.
    pub profile: Option<Arc<str>>,
    /// What it listed, the newest last; one for each profile.
    listings: Vec<Listing>,
}

/// The documents that codex read in a folder, under a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listing {
    profile: Option<Arc<str>>,
    folder: PathBuf,
    /// The folders that they are in.
    shown: Vec<PathBuf>,
}

impl Documents {
    /// Learns from the result of an answer that opens a thread; with `has_file` the workspace has had
    /// an AGENTS.md before codex looked.
    pub fn learn(&mut self, line: &[u8], result: &impl Place, has_file: bool) {
        let named = member_text(line, result, &["activePermissionProfile", "id"]);
        self.profile = named.map(Arc::from);
        let shown = member(line, result, &["instructionSources"]);
        let shown = shown.and_then(|at| folders(line, &at).ok());
        let places = Places::find(line, result, &["thread", "environments"]);
        if places.as_ref().is_some_and(Places::are_elsewhere) {
            // It says nothing of a folder of this machine.
            return;
        }
        let folder = places.as_ref().and_then(Places::folder).cloned();
        let cwd = || member_text(line, result, &["cwd"]).map(PathBuf::from);
        let folder = folder.or_else(cwd);
        let (Some(shown), Some(folder), true) = (shown, folder, has_file) else {
            return;
        };
        let listing = Listing {
            profile: self.profile.clone(),
            folder,
            shown,
        };
        self.listings.retain(|it| it.profile != listing.profile);
        if self.listings.len() >= MAX_KEPT_LISTINGS {
            self.listings.remove(0);
        }
        self.listings.push(listing);
    }

    /// Takes over what is known of the same thread from before.
    pub fn keep_older(&mut self, older: Self) {
        let mut listings = older.listings;
        listings.retain(|it| self.listings.iter().all(|own| own.profile != it.profile));
        listings.append(&mut self.listings);
        let surplus = listings.len().saturating_sub(MAX_KEPT_LISTINGS);
        self.listings = listings.split_off(surplus);
    }

    /// Takes it as shown where it lies, if codex has not told of this folder and profile.
    pub fn suppose(&mut self, agents: &Agents, folder: Option<&Path>, profile: Option<&Arc<str>>) {
        let name = profile.map(|it| &**it);
        if let (None, Some(folder)) = (self.shows(agents, folder, name), folder) {
            self.listings.push(Listing {
                profile: profile.cloned(),
                folder: folder.to_owned(),
                shown: agents.found_at.clone().into_iter().collect(),
            });
        }
    }

    /// Whether codex shows the workspace's document to a thread in `folder` under `profile`; none
    /// where it has to be asked.
    pub fn shows(
        &self,
        agents: &Agents,
        folder: Option<&Path>,
        profile: Option<&str>,
    ) -> Option<bool> {
        let Some(at) = &agents.found_at else {
            return Some(false);
        };
        let is_it = |it: &&Listing| it.profile.as_deref() == profile && Some(&*it.folder) == folder;
        if let Some(listing) = self.listings.iter().find(is_it) {
            return Some(listing.shown.contains(at));
        }
        let is_settled = profile.is_none_or(is_built_in) || !agents.is_discovered;
        is_settled.then_some(agents.is_discovered)
    }
}

/// The folders of the files that the array at `at` lists.
fn folders(line: &[u8], at: &Range<usize>) -> Result<Vec<PathBuf>, ScanError> {
    let mut elements = Elements::at(line, at.start)?;
    let mut folders = Vec::new();
    while let Some(element) = elements.next_element()? {
        let file = text(line, &element).map(PathBuf::from);
        let folder = file.as_deref().and_then(Path::parent);
        if folders.len() < MAX_LISTED_DOCUMENTS {
            folders.extend(folder.map(Path::to_owned));
        }
    }
    Ok(folders)
}

/// Whether a configuration, the member `config` of this object, leaves room for the documents of a
/// project.
pub fn has_room(line: &[u8], object: &impl Place) -> Option<bool> {
    let bytes = member(line, object, &["config", ROOM_MEMBER])?;
    (!scan::is_null(line, &bytes)).then(|| line.get(bytes) != Some(b"0"))
}

/// The profile that a turn with `params` runs under, where `now` is in force before it.
pub fn profile_of_turn(
    line: &[u8],
    params: &impl Place,
    now: Option<&Arc<str>>,
) -> Option<Arc<str>> {
    if let Some(chosen) = member_text(line, params, &["permissions"]) {
        return Some(chosen.into());
    }
    let policy = member(line, params, &["sandboxPolicy"]);
    let is_policy = policy.is_some_and(|it| !scan::is_null(line, &it));
    now.filter(|_| !is_policy).cloned()
}

/// Whether codex knows a profile by itself; those read everywhere.
pub fn is_built_in(profile: &str) -> bool {
    profile.starts_with(':')
}

/// The copy of AGENTS.md, where a turn of this kind needs one.
pub fn copy(orders: &Orders, kind: TurnKind, is_routed: bool, is_shown: bool) -> Option<&str> {
    let is_wanted = match kind {
        TurnKind::User | TurnKind::Heartbeat | TurnKind::Cron => true,
        // On a route the thread stays as it is.
        TurnKind::CronLightweight => is_routed,
        TurnKind::MessageOnly | TurnKind::ToolsDisabled | TurnKind::RingZero => false,
    };
    let agents = orders.agents.as_ref().filter(|_| is_wanted && !is_shown)?;
    Some(&agents.text)
}

/// The setting that bounds what codex shows of documents, in bytes; with 0 it shows none.
pub const ROOM_MEMBER: &str = "project_doc_max_bytes";

#[cfg(test)]
mod tests {
    use super::*;

    fn agents() -> Agents {
        Agents {
            text: "t".into(),
            found_at: Some("/ws".into()),
            is_discovered: true,
        }
    }

    fn learn(documents: &mut Documents, profile: &str, sources: &str, has_file: bool) {
        let line = format!(
            r#"{{"cwd":"/ws/a","activePermissionProfile":{profile},"instructionSources":{sources}}}"#
        );
        documents.learn(line.as_bytes(), &(0..line.len()), has_file);
    }

    fn shows(documents: &Documents, folder: &str, profile: Option<&str>) -> Option<bool> {
        documents.shows(&agents(), Some(Path::new(folder)), profile)
    }

    #[test]
    fn listing_of_the_same_profile_and_folder_decides() {
        let mut documents = Documents::default();
        assert_eq!(shows(&documents, "/ws/a", None), Some(true));
        assert_eq!(shows(&documents, "/ws/a", Some(":workspace")), Some(true));
        assert_eq!(shows(&documents, "/ws/a", Some("mine")), None);
        learn(&mut documents, r#"{"id":"mine"}"#, "[]", true);
        assert_eq!(documents.profile.as_deref(), Some("mine"));
        learn(
            &mut documents,
            "null",
            r#"["/ws/AGENTS.override.md"]"#,
            true,
        );
        assert_eq!(documents.profile, None);
        assert_eq!(shows(&documents, "/ws/a", Some("mine")), Some(false));
        assert_eq!(shows(&documents, "/ws/a", None), Some(true));
        assert_eq!(shows(&documents, "/ws/b", Some("mine")), None);
        let mut newer = Documents::default();
        learn(&mut newer, r#"{"id":"mine"}"#, r#"["/ws/AGENTS.md"]"#, true);
        newer.keep_older(documents);
        assert_eq!(shows(&newer, "/ws/a", Some("mine")), Some(true));
        assert_eq!(shows(&newer, "/ws/a", None), Some(true));
    }

    #[test]
    fn listing_from_before_the_file_says_nothing() {
        let mut documents = Documents::default();
        learn(&mut documents, "null", "[]", false);
        assert_eq!(shows(&documents, "/ws/a", None), Some(true));
    }

    #[test]
    fn listing_is_of_the_environment_of_this_machine() {
        for (environments, folder) in [
            (
                r#"[{"environmentId":"local","cwd":"/ws/b"}]"#,
                Some("/ws/b"),
            ),
            ("[]", None),
            (r#"[{"environmentId":"far","cwd":"/ws/a"}]"#, None),
        ] {
            let line = format!(
                r#"{{"cwd":"/ws/a","thread":{{"environments":{environments}}},"instructionSources":[]}}"#
            );
            let mut documents = Documents::default();
            documents.learn(line.as_bytes(), &(0..line.len()), true);
            let listed = documents.listings.first().map(|it| it.folder.as_path());
            assert_eq!(listed, folder.map(Path::new), "{environments}");
        }
    }

    #[test]
    fn what_codex_does_not_tell_is_asked_once() {
        let mut documents = Documents::default();
        let mine: Arc<str> = "mine".into();
        let folder = Path::new("/ws/a");
        documents.suppose(&agents(), Some(folder), Some(&mine));
        assert_eq!(shows(&documents, "/ws/a", Some("mine")), Some(true));
        learn(&mut documents, r#"{"id":"mine"}"#, "[]", true);
        documents.suppose(&agents(), Some(folder), Some(&mine));
        assert_eq!(shows(&documents, "/ws/a", Some("mine")), Some(false));
    }

    #[test]
    fn number_of_listings_has_a_bound() {
        let mut documents = Documents::default();
        for number in 0..=MAX_KEPT_LISTINGS {
            learn(
                &mut documents,
                &format!(r#"{{"id":"p{number}"}}"#),
                "[]",
                true,
            );
        }
        assert_eq!(documents.listings.len(), MAX_KEPT_LISTINGS);
        assert_eq!(shows(&documents, "/ws/a", Some("p0")), None);
        assert_eq!(shows(&documents, "/ws/a", Some("p1")), Some(false));
    }

    #[test]
    fn turn_chooses_its_profile() {
        let now: Arc<str> = "mine".into();
        for (params, profile) in [
            ("{}", Some("mine")),
            (r#"{"permissions":null,"sandboxPolicy":null}"#, Some("mine")),
            (r#"{"permissions":"other"}"#, Some("other")),
            (r#"{"sandboxPolicy":{"type":"readOnly"}}"#, None),
        ] {
            let chosen = profile_of_turn(params.as_bytes(), &(0..params.len()), Some(&now));
            assert_eq!(chosen.as_deref(), profile, "{params}");
        }
    }
}
