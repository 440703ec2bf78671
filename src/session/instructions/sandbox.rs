//! What a thread may write to, given again without making more of it.
//!
//! Codex tells a policy with what follows from the thread's place among its `writableRoots`: its
//! workspace roots, and the folders of its environments. Set again as it is told, all of that would
//! be the client's own choice, and stay writable wherever the thread goes (0.155.1 and 0.171.0). So a
//! thread is resumed with the mode, which leaves codex to find the roots anew, and a turn sets the
//! policy that the client itself has set, to the letter. Where neither comes to what was there, it is
//! given what doesn't follow from its place.

use serde_json::Value;

/// Where a thread works.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ground {
    pub(super) cwd: Value,
    pub(super) environments: Value,
    /// Its workspace roots.
    pub(super) roots: Value,
}

impl Ground {
    /// Whether a folder is writable since the thread works there.
    fn has(&self, folder: &Value) -> bool {
        let is_listed = |list: &Value| list.as_array().is_some_and(|it| it.contains(folder));
        let is_of = |environment: &Value| {
            environment["cwd"] == *folder || is_listed(&environment["runtimeWorkspaceRoots"])
        };
        let environments = self.environments.as_array();
        self.cwd == *folder
            || is_listed(&self.roots)
            || environments.is_some_and(|all| all.iter().any(is_of))
    }

    /// Whether a policy there is told as another: codex can't put the folder of the thread itself,
    /// which is writable nowhere, into one.
    fn blurs(&self) -> bool {
        let roots = self.roots.as_array();
        roots.is_some_and(|roots| !roots.contains(&self.cwd))
    }
}

/// The mode of a policy, as `thread/resume` takes it.
pub fn mode(policy: &Value) -> Option<&'static str> {
    match policy["type"].as_str()? {
        "dangerFullAccess" => Some("danger-full-access"),
        "readOnly" => Some("read-only"),
        "workspaceWrite" => Some("workspace-write"),
        _ => None,
    }
}

/// The policy that must be set again where codex told `old` on one ground and tells `new` on another, if
/// any; `own` is what the client has set last.
pub fn lost(
    (old, ground): (&Value, &Ground),
    (new, new_ground): (&Value, &Ground),
    own: Option<&Value>,
) -> Option<Value> {
    if let Some(own) = own.filter(|own| is_told_as(own, old, ground)) {
        // What it comes to may be the same, and what is told of it, too.
        return Some(own.clone());
    }
    let is_same = old == new;
    let is_moved = own.is_none() && ground != new_ground;
    let is_kept = is_same || is_moved && is_within((new, new_ground), (old, ground));
    (!is_kept).then(|| fixed(old, ground))
}

/// What of a policy doesn't follow from the thread's place.
pub fn fixed(policy: &Value, ground: &Ground) -> Value {
    let mut fixed = policy.clone();
    let has_tmp = is_unset(&policy["excludeSlashTmp"]);
    if let Some(roots) = fixed.get_mut(ROOTS).and_then(Value::as_array_mut) {
        roots.retain(|root| !(ground.has(root) || has_tmp && root == "/tmp"));
    }
    fixed
}

/// Whether codex tells the client's policy `own` as `told`.
fn is_told_as(own: &Value, told: &Value, ground: &Ground) -> bool {
    own["type"] == told["type"]
        && has_same_network(own, told)
        && roots(own).all(|root| ground.has(root) || roots(told).any(|it| it == root))
}

/// Whether a policy allows no more than another, but for what follows from the place.
fn is_within((new, new_ground): (&Value, &Ground), (old, ground): (&Value, &Ground)) -> bool {
    let excludes = |name| is_unset(&old[name]) || !is_unset(&new[name]);
    // Where it is blurred, the folder for what is temporary is told by its name.
    let excludes_as_much = ground.blurs() || ["excludeSlashTmp", TMPDIR].into_iter().all(excludes);
    new["type"] == old["type"]
        && has_same_network(new, old)
        && excludes_as_much
        && roots(new).all(|root| new_ground.has(root) || roots(old).any(|it| it == root))
}

fn has_same_network(one: &Value, other: &Value) -> bool {
    let is_off = |network: &Value| {
        network.is_null() || *network == Value::Bool(false) || network == "restricted"
    };
    let (one, other) = (&one["networkAccess"], &other["networkAccess"]);
    one == other || is_off(one) && is_off(other)
}

fn roots(policy: &Value) -> impl Iterator<Item = &Value> {
    policy[ROOTS].as_array().into_iter().flatten()
}

fn is_unset(flag: &Value) -> bool {
    *flag != Value::Bool(true)
}

/// What the client lets be written to.
const ROOTS: &str = "writableRoots";

const TMPDIR: &str = "excludeTmpdirEnvVar";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ground(cwd: &str, roots: &[&str]) -> Ground {
        let environment =
            json!({"environmentId": "local", "cwd": roots[0], "runtimeWorkspaceRoots": roots});
        Ground {
            cwd: cwd.into(),
            environments: json!([environment]),
            roots: json!(roots),
        }
    }

    fn policy(roots: &[&str], excludes_tmpdir: bool, network: bool) -> Value {
        json!({
            "type": "workspaceWrite",
            "writableRoots": roots,
            "networkAccess": network,
            "excludeTmpdirEnvVar": excludes_tmpdir,
            "excludeSlashTmp": false,
        })
    }

    fn plain(roots: &[&str]) -> Value {
        policy(roots, false, false)
    }

    #[test]
    fn what_follows_from_the_place_is_set_by_nobody() {
        let (here, moved) = (ground("/a", &["/a", "/r"]), ground("/b", &["/b"]));
        let old = (&plain(&["/r"]), &here);
        assert_eq!(lost(old, (&plain(&["/r"]), &here), None), None);
        assert_eq!(lost(old, (&plain(&[]), &moved), None), None);
        // A configuration has changed meanwhile.
        let wider = [plain(&["/r", "/q"]), policy(&["/r"], false, true)];
        for new in &wider {
            assert_eq!(lost(old, (new, &here), None), Some(plain(&[])));
            assert_eq!(lost(old, (new, &moved), None), Some(plain(&[])));
        }
        let tighter = policy(&["/q", "/r"], true, false);
        let again = Some(policy(&["/q"], true, false));
        assert_eq!(
            lost((&tighter, &here), (&plain(&["/r"]), &here), None),
            again
        );
        assert_eq!(lost((&tighter, &here), (&plain(&[]), &moved), None), again);
    }

    #[test]
    fn blurred_policy_is_found_anew_and_set_without_the_place() {
        let (before, now) = (ground("/a", &["/x"]), ground("/a", &["/a"]));
        let blurred = policy(&["/x", "/tmp"], true, false);
        let old = (&blurred, &before);
        assert_eq!(lost(old, (&plain(&[]), &now), None), None);
        let again = Some(policy(&[], true, false));
        assert_eq!(lost(old, (&plain(&["/q"]), &now), None), again);
        assert_eq!(lost(old, (&json!({"type": "readOnly"}), &now), None), again);
    }

    #[test]
    fn own_policy_is_set_as_it_stands_while_it_is_in_force() {
        let here = ground("/a", &["/a", "/r"]);
        let old = (&plain(&["/q", "/r"]), &here);
        let now = (&plain(&["/q", "/r"]), &here);
        for own in [plain(&["/q"]), plain(&["/a", "/q", "/r"])] {
            assert_eq!(lost(old, now, Some(&own)), Some(own));
        }
        let terse = json!({"type": "workspaceWrite", "writableRoots": ["/q"]});
        assert_eq!(lost(old, now, Some(&terse)), Some(terse));
        for other in [
            plain(&["/z"]),
            policy(&[], false, true),
            json!({"type": "readOnly"}),
        ] {
            assert_eq!(lost(old, now, Some(&other)), None);
            let elsewhere = (&plain(&[]), &ground("/b", &["/b"]));
            let fixed = Some(plain(&["/q"]));
            assert_eq!(lost(old, elsewhere, Some(&other)), fixed);
        }
    }

    #[test]
    fn mode_is_named_as_a_resume_takes_it() {
        for (kind, name) in [
            ("dangerFullAccess", Some("danger-full-access")),
            ("externalSandbox", None),
            ("readOnly", Some("read-only")),
            ("workspaceWrite", Some("workspace-write")),
        ] {
            assert_eq!(mode(&json!({"type": kind})), name);
        }
        assert_eq!(mode(&Value::Null), None);
    }
}
