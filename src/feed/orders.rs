//! The developer policy and the copy of AGENTS.md, read afresh within a deadline.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::OFlag;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{error::Elapsed, timeout};

use crate::base::limits::{CONTEXT_DEADLINE, FILE_BUDGET_CHARS, MAX_FILE_BYTES, MAX_POLICY_BYTES};
use crate::context::agents::excerpt;
use crate::context::orders::{Agents, Orders};
use crate::workspace::files::{Links, Root, read_head, to_text};

/// Where the standing orders of threads come from.
#[derive(Clone, Debug, Default)]
pub struct OrdersFeed {
    /// The file of the developer policy.
    pub policy: Option<PathBuf>,
    /// The agent workspace, whose AGENTS.md codex may not find by itself.
    pub workspace: Option<PathBuf>,
}

/// Why there are no orders.
#[derive(Debug, thiserror::Error)]
pub enum OrdersError {
    /// The file of the policy can't be used.
    #[error("--policy-file: {path}: {fault}")]
    Policy {
        /// The file.
        path: String,
        /// What is wrong with it.
        fault: PolicyFault,
    },
    /// Reading took too long.
    #[error("reading the developer policy took more than {} s", CONTEXT_DEADLINE.as_secs())]
    Slow(#[from] Elapsed),
    /// The reader failed.
    #[error("reading the developer policy failed")]
    Reader(#[from] JoinError),
}

/// Why a file is no policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyFault {
    /// The system says no.
    #[error("can't be read: {0}")]
    Read(io::Error),
    /// It is over the bound.
    #[error("is over {MAX_POLICY_BYTES} bytes, the limit of a policy")]
    TooLarge,
    /// It is a folder, a pipe or a device.
    #[error("is not a regular file")]
    NotRegular,
    /// It isn't text.
    #[error("is not UTF-8 text")]
    NotText,
}

impl OrdersFeed {
    /// Reads the orders for a thread that works in `folder`.
    ///
    /// A policy file that is gone is an absent policy; one that can't be read is an error, so that
    /// no turn runs without it unnoticed.
    pub async fn read(&self, folder: Option<&Path>) -> Result<Orders, OrdersError> {
        if self.policy.is_none() && self.workspace.is_none() {
            return Ok(Orders::default());
        }
        let (feed, folder) = (self.clone(), folder.map(Path::to_path_buf));
        let reading = spawn_blocking(move || feed.read_now(folder.as_deref()));
        timeout(CONTEXT_DEADLINE, reading).await??
    }

    fn read_now(&self, folder: Option<&Path>) -> Result<Orders, OrdersError> {
        let policy = self.policy.as_deref().map(policy).transpose()?.flatten();
        let document = self.workspace.as_deref().and_then(document);
        let has_document = document.is_some();
        let agents = document.zip(folder).map(|(text, folder)| {
            let here = std::env::current_dir().unwrap_or_default();
            let folder = whole(&here, folder);
            let found_at = self.workspace.as_deref().and_then(|it| above(it, &folder));
            Agents {
                text,
                is_discovered: found_at.is_some_and(|it| is_in_project(it, &folder)),
                found_at: found_at.map(Path::to_owned),
            }
        });
        Ok(Orders {
            policy,
            agents,
            has_document,
        })
    }
}

/// Reads the policy at `path`; none where there is no file.
pub fn policy(path: &Path) -> Result<Option<Arc<str>>, OrdersError> {
    read_policy(path).map_err(|fault| OrdersError::Policy {
        path: path.display().to_string(),
        fault,
    })
}

fn read_policy(path: &Path) -> Result<Option<Arc<str>>, PolicyFault> {
    // Without waiting for the other end of a pipe.
    let flags = OFlag::O_NONBLOCK.bits();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(PolicyFault::Read(error)),
    };
    if !file.metadata().map_err(PolicyFault::Read)?.is_file() {
        return Err(PolicyFault::NotRegular);
    }
    let mut bytes = Vec::new();
    let bound = u64::try_from(MAX_POLICY_BYTES).unwrap_or(u64::MAX);
    file.take(bound + 1)
        .read_to_end(&mut bytes)
        .map_err(PolicyFault::Read)?;
    if bytes.len() > MAX_POLICY_BYTES {
        return Err(PolicyFault::TooLarge);
    }
    let text = String::from_utf8(bytes).map_err(|_| PolicyFault::NotText)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text).trim();
    Ok(Some(text.into()))
}

/// Copies the workspace's AGENTS.md.
fn document(workspace: &Path) -> Option<Arc<str>> {
    let root = Root::open(workspace).ok()?;
    let file = root.file(Path::new(AGENTS), Links::Inside).ok()??;
    let head = read_head(file, MAX_FILE_BYTES).ok()?;
    let text = excerpt(&to_text(&head), head.unread, FILE_BUDGET_CHARS);
    if text.trim().is_empty() {
        return None;
    }
    let path = workspace.join(AGENTS).display().to_string();
    let path = path.replace('&', "&amp;").replace('"', "&quot;");
    let text =
        format!("<agent_workspace_document path=\"{path}\">\n{text}\n</agent_workspace_document>");
    Some(text.into())
}

/// A folder as codex takes it: one that isn't absolute begins where codex does, which is `here`, and what
/// leads up is cut off without a look at links (0.155.1 and 0.171.0).
fn whole(here: &Path, folder: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in here.join(folder).components() {
        match part {
            Component::ParentDir => {
                whole.pop();
            }
            Component::CurDir => {}
            Component::Normal(_) | Component::Prefix(_) | Component::RootDir => whole.push(part),
        }
    }
    whole
}

/// The workspace as `folder` itself or one above it: codex takes a folder as it is named.
fn above<'a>(workspace: &Path, folder: &'a Path) -> Option<&'a Path> {
    let workspace = workspace.canonicalize().ok()?;
    let is_it = |it: &&Path| it.canonicalize().is_ok_and(|it| it == workspace);
    folder.ancestors().find(is_it)
}

/// Codex reads the documents of the folder that it works in and of the folders above it, up to the
/// nearest one with a `.git`; without such a one, of its folder alone (0.155.1 and 0.171.0).
fn is_in_project(at: &Path, folder: &Path) -> bool {
    let project = folder.ancestors().find(|it| it.join(".git").exists());
    at == folder || project.is_some_and(|it| at.starts_with(it))
}

/// The document of rules.
const AGENTS: &str = "AGENTS.md";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn policy_is_absent_text_or_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.md");
        assert_eq!(read_policy(&path).unwrap(), None);
        fs::write(&path, "\u{feff}Be brief.\n").unwrap();
        assert_eq!(read_policy(&path).unwrap().as_deref(), Some("Be brief."));
        fs::write(&path, " \n").unwrap();
        assert_eq!(read_policy(&path).unwrap().as_deref(), Some(""));
        fs::write(&path, "x".repeat(MAX_POLICY_BYTES + 1)).unwrap();
        assert!(matches!(read_policy(&path), Err(PolicyFault::TooLarge)));
        fs::write(&path, b"\xff").unwrap();
        assert!(matches!(read_policy(&path), Err(PolicyFault::NotText)));
        assert!(matches!(
            read_policy(folder.path()),
            Err(PolicyFault::NotRegular)
        ));
    }

    #[test]
    fn folder_is_taken_without_a_look_at_the_disk() {
        for (folder, taken) in [
            ("/a/b", "/a/b"),
            ("/a/./b/../c/", "/a/c"),
            ("/../a", "/a"),
            ("b/c", "/here/b/c"),
            ("../b", "/b"),
            ("", "/here"),
        ] {
            let whole = whole(Path::new("/here"), Path::new(folder));
            assert_eq!(whole.as_os_str(), taken, "{folder}");
        }
    }

    #[test]
    fn document_is_discovered_from_the_project_s_root_to_the_folder() {
        let outer = tempfile::tempdir().unwrap();
        let at = |path: &str| outer.path().join(path);
        fs::create_dir_all(at("ws/below/deep")).unwrap();
        fs::create_dir_all(at("else")).unwrap();
        let found = |folder: &str| {
            let folder = at(folder);
            above(&at("ws"), &folder).is_some_and(|it| is_in_project(it, &folder))
        };
        assert!(found("ws"));
        assert!(!found("ws/below"), "there is no project");
        assert!(!found("else"));
        fs::create_dir(at("ws/.git")).unwrap();
        assert!(found("ws/below/deep"));
        fs::create_dir(at("ws/below/.git")).unwrap();
        assert!(!found("ws/below/deep"), "the project begins below");
        fs::remove_dir(at("ws/.git")).unwrap();
        fs::remove_dir(at("ws/below/.git")).unwrap();
        fs::create_dir(at(".git")).unwrap();
        assert!(found("ws/below"));
        assert!(!found("else"));
    }
}
