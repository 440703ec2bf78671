//! Where a thread works: the folder of this machine that codex reads documents and skills from.
//!
//! What was measured on 0.155.1 and 0.171.0:
//!
//! - Codex reads the documents of each environment that a thread is in, from the `cwd` of its entry,
//!   wherever in the list that stands; the thread's own `cwd` says nothing then. An entry without a
//!   `cwd`, with one that isn't absolute, or a second one of the same machine is refused.
//! - `environments` of a start, a turn or a change of settings stay for what follows. The thread's `cwd`
//!   becomes that of the entry `local`, but for a start and where a `cwd` stands beside them.
//! - A `cwd` without `environments`, in a turn or a change of settings, brings the usual environments
//!   back, in that folder, also after an empty list and also where it is the folder from before.
//! - A fork, and a thread that is loaded anew, is in the usual environments and the thread's `cwd`; both
//!   methods take no `environments`, and a resume of a loaded thread changes nothing.
//! - Which environments are usual is a setting of the user's; this machine need not be among them.
//! - 0.155.1 passes over the `environments` of `thread/settings/update`, and doesn't tell of any in
//!   `thread/settings/updated`, whose `cwd` may be another folder than theirs. The answers to a start, a
//!   resume and a fork have them.

use std::ops::Range;
use std::path::PathBuf;

use crate::wire::envelope::{member, member_text};
use crate::wire::known::Place;
use crate::wire::scan::Elements;

/// Where commands of a thread run, as a list of environments says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Places {
    /// Nowhere: the list is empty.
    None,
    /// On this machine, in this folder, and perhaps on others; without a folder codex refuses it.
    Here(Option<PathBuf>),
    /// On other machines alone.
    Elsewhere,
}

impl Places {
    /// Reads the list at `list`; nothing where there is none.
    pub fn read(line: &[u8], list: &Range<usize>) -> Option<Self> {
        let mut places = Self::None;
        let mut environments = Elements::at(line, list.start).ok()?;
        while let Some(environment) = environments.next_element().ok()? {
            let id = member_text(line, &environment, &["environmentId"]);
            if id.as_deref() == Some(THIS_MACHINE) {
                let folder = member_text(line, &environment, &["cwd"]);
                places = Self::Here(folder.map(PathBuf::from));
            } else if places == Self::None {
                places = Self::Elsewhere;
            }
        }
        Some(places)
    }

    /// Reads the list that `path` leads to from `place`; nothing where there is none.
    pub fn find(line: &[u8], place: &impl Place, path: &[&str]) -> Option<Self> {
        Self::read(line, &member(line, place, path)?)
    }

    /// Whether no folder of the thread is one of this machine.
    pub fn are_elsewhere(&self) -> bool {
        matches!(self, Self::None | Self::Elsewhere)
    }

    /// The folder of this machine.
    pub fn folder(&self) -> Option<&PathBuf> {
        match self {
            Self::Here(folder) => folder.as_ref(),
            Self::None | Self::Elsewhere => None,
        }
    }
}

/// Where a thread works, as far as codex or the client told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whereabouts {
    /// The folder of this machine that codex reads documents and skills from.
    pub folder: Option<PathBuf>,
    /// It is nowhere on this machine.
    pub is_without_files: bool,
    /// The client has chosen the environments: a folder that codex tells without them is not theirs.
    pub is_chosen: bool,
}

impl Whereabouts {
    /// Where a turn or a change of settings goes that has this `cwd` and these environments; none
    /// where it has neither.
    pub fn of_request(
        &self,
        line: &[u8],
        params: &impl Place,
        (places, usual_are_elsewhere): (Option<&Places>, bool),
    ) -> Option<Self> {
        let cwd = member_text(line, params, &["cwd"]).map(PathBuf::from);
        let Some(places) = places else {
            return cwd.map(|cwd| Self {
                folder: Some(cwd),
                is_without_files: usual_are_elsewhere,
                is_chosen: false,
            });
        };
        let folder = places.folder().cloned().or(cwd);
        Some(Self {
            folder: folder.or_else(|| self.folder.clone()),
            is_without_files: places.are_elsewhere(),
            is_chosen: true,
        })
    }

    /// Learns what codex tells of a thread's settings.
    pub fn learn(&mut self, cwd: Option<PathBuf>, places: Option<&Places>) {
        if let Some(places) = places {
            self.is_without_files = places.are_elsewhere();
        } else if self.is_chosen {
            return;
        }
        let folder = places.and_then(Places::folder).cloned().or(cwd);
        self.folder = folder.or_else(|| self.folder.take());
    }
}

/// What codex calls the machine that it runs on, read from 0.155.1 and 0.171.0.
const THIS_MACHINE: &str = "local";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_say_where_a_thread_is() {
        let here = |folder: &str| Some(Places::Here(Some(folder.into())));
        for (list, places) in [
            ("[]", Some(Places::None)),
            (r#"[{"environmentId":"local","cwd":"/a"}]"#, here("/a")),
            (
                r#"[{"environmentId":"far","cwd":"/b"},{"cwd":"/a","environmentId":"local"}]"#,
                here("/a"),
            ),
            (
                r#"[{"environmentId":"local","cwd":"/a"},{"environmentId":"far","cwd":"/b"}]"#,
                here("/a"),
            ),
            (r#"[{"environmentId":"local"}]"#, Some(Places::Here(None))),
            (
                r#"[{"environmentId":"far","cwd":"/local"}]"#,
                Some(Places::Elsewhere),
            ),
            (r#"[{"cwd":"/a"}]"#, Some(Places::Elsewhere)),
            ("null", None),
        ] {
            let read = Places::read(list.as_bytes(), &(0..list.len()));
            assert_eq!(read, places, "{list}");
        }
    }

    fn place(folder: &str, is_without_files: bool, is_chosen: bool) -> Whereabouts {
        Whereabouts {
            folder: Some(folder.into()),
            is_without_files,
            is_chosen,
        }
    }

    #[test]
    fn environments_beat_the_folder_beside_them() {
        let now = place("/now", true, true);
        for (params, goes_to) in [
            ("{}", None),
            (r#"{"cwd":null,"environments":null}"#, None),
            (r#"{"cwd":"/a"}"#, Some(place("/a", false, false))),
            (
                r#"{"environments":[{"environmentId":"local","cwd":"/b"}],"cwd":"/a"}"#,
                Some(place("/b", false, true)),
            ),
            (
                r#"{"environments":[],"cwd":"/a"}"#,
                Some(place("/a", true, true)),
            ),
            (r#"{"environments":[]}"#, Some(place("/now", true, true))),
        ] {
            let whole = 0..params.len();
            let list = member(params.as_bytes(), &whole, &["environments"]);
            let places = list.and_then(|at| Places::read(params.as_bytes(), &at));
            let request = (places.as_ref(), false);
            let goes = now.of_request(params.as_bytes(), &whole, request);
            assert_eq!(goes, goes_to, "{params}");
        }
        let params = br#"{"cwd":"/a"}"#;
        let goes = now.of_request(params, &(0..params.len()), (None, true));
        assert_eq!(goes, Some(place("/a", true, false)), "where that is usual");
    }

    #[test]
    fn folder_that_codex_tells_alone_is_not_that_of_chosen_environments() {
        for (is_chosen, places, folder) in [
            (false, None, "/told"),
            (true, None, "/now"),
            (true, Some(Places::Here(Some("/place".into()))), "/place"),
            (true, Some(Places::Here(None)), "/told"),
        ] {
            let mut now = place("/now", false, is_chosen);
            now.learn(Some("/told".into()), places.as_ref());
            assert_eq!(now, place(folder, false, is_chosen));
        }
        let mut now = place("/now", false, true);
        now.learn(None, Some(&Places::None));
        assert_eq!(now, place("/now", true, true));
    }
}
