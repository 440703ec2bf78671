//! The child's command line and environment.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// How codex is started.
#[derive(Clone)]
pub struct Config {
    /// The executable.
    pub program: PathBuf,
    /// Its arguments, `app-server` included.
    pub args: Vec<OsString>,
    /// Its whole environment.
    pub environment: Vec<(OsString, OsString)>,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Arguments and environment may hold credentials.
        f.debug_struct("Config")
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

/// The child's environment: ours, less what would change its libraries and what is the relay's
/// own, with loopback taken out of every proxy's way.
pub fn environment(
    own: impl IntoIterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    let mut kept: Vec<(OsString, OsString)> = own
        .into_iter()
        .filter(|(name, _)| !is_removed(name))
        .collect();
    for name in ["NO_PROXY", "no_proxy"] {
        let old = kept.iter().position(|(known, _)| known == name);
        let value = old.map(|at| kept.swap_remove(at).1).unwrap_or_default();
        kept.push((name.into(), with_loopback(&value)));
    }
    kept
}

fn is_removed(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let prefixes: [&[u8]; 2] = [b"DYLD_", b"CODEX_RELAY_"];
    let exact: [&[u8]; 3] = [b"LD_PRELOAD", b"LD_AUDIT", b"LD_LIBRARY_PATH"];
    exact.contains(&name) || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// Adds the loopback addresses that a list of exceptions lacks; `*` has them all.
fn with_loopback(list: &OsStr) -> OsString {
    let text = list.to_string_lossy();
    let entries: Vec<&str> = text.split(',').map(str::trim).collect();
    let mut out = list.to_os_string();
    if entries.contains(&"*") {
        return out;
    }
    for address in ["127.0.0.1", "localhost", "::1"] {
        if !entries.contains(&address) {
            if !out.is_empty() {
                out.push(",");
            }
            out.push(address);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let own = pairs
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        let mut out: Vec<(String, String)> = environment(own)
            .into_iter()
            .map(|(n, v)| (n.into_string().unwrap(), v.into_string().unwrap()))
            .collect();
        out.sort();
        out
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn loader_variables_and_our_own_are_taken_out() {
        let own = [
            ("PATH", "/bin"),
            ("LD_PRELOAD", "x"),
            ("LD_AUDIT", "x"),
            ("LD_LIBRARY_PATH", "x"),
            ("DYLD_INSERT_LIBRARIES", "x"),
            ("CODEX_RELAY_UPSTREAM", "x"),
            ("CODEX_HOME", "/h"),
        ];
        let all = "127.0.0.1,localhost,::1";
        assert_eq!(
            of(&own),
            [
                pair("CODEX_HOME", "/h"),
                pair("NO_PROXY", all),
                pair("PATH", "/bin"),
                pair("no_proxy", all)
            ]
        );
    }

    #[test]
    fn exceptions_of_the_users_own_are_kept_and_loopback_comes_once() {
        let own = [("NO_PROXY", "a.example, localhost"), ("no_proxy", "*")];
        assert_eq!(
            of(&own),
            [
                pair("NO_PROXY", "a.example, localhost,127.0.0.1,::1"),
                pair("no_proxy", "*")
            ]
        );
    }
}
