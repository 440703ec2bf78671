//! Mistakes in proxies and roots are told at the start.

use std::process::Command;

use crate::support::front::Authority;
use crate::support::proxy::PASSWORD;

fn started(option: &[&str], variable: (&str, &str)) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_codex-relay"))
        .args(option)
        .args(["--codex", "/bin/true", "app-server"])
        .env_clear()
        .env(variable.0, variable.1)
        .output()
        .unwrap();
    let words = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), words)
}

#[test]
fn files_of_roots_that_can_not_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let good = Authority::new("Authority of the test").file(folder.path());
    let broken = folder.path().join("broken.pem");
    let text = std::fs::read_to_string(&good).unwrap();
    std::fs::write(
        &broken,
        format!("{text}-----BEGIN CERTIFICATE-----\nAAAA\n"),
    )
    .unwrap();
    let (good, broken) = (good.display().to_string(), broken.display().to_string());
    assert_eq!(
        started(&["--ca-file", &good], ("A", "b")),
        (Some(0), String::new())
    );
    let (code, words) = started(&["--ca-file", &broken], ("A", "b"));
    assert_eq!(code, Some(64));
    assert!(
        words.contains(&format!("--ca-file: {broken} certificate 2 is damaged")),
        "{words}"
    );
    for name in [
        "CODEX_CA_CERTIFICATE",
        "SSL_CERT_FILE",
        "NODE_EXTRA_CA_CERTS",
    ] {
        let (code, words) = started(&[], (name, "/nowhere/roots.pem"));
        assert_eq!(code, Some(64), "{name}");
        assert!(
            words.contains(&format!("{name}: /nowhere/roots.pem can't be read")),
            "{words}"
        );
    }
}

#[test]
fn proxies_that_can_not_be_used_are_told_without_their_password() {
    let url = format!("ftp://me:{PASSWORD}@proxy.example");
    let (code, words) = started(&[], ("HTTPS_PROXY", &url));
    assert_eq!(code, Some(64));
    assert!(
        words.contains("HTTPS_PROXY: has the scheme \"ftp\""),
        "{words}"
    );
    assert!(!words.contains(PASSWORD), "{words}");
}

#[test]
fn stand_in_hands_codex_what_is_codex_own_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let stand_in = folder.path().join("codex");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_codex-relay"), &stand_in).unwrap();
    let output = Command::new(stand_in)
        .arg("--version")
        .env_clear()
        .env("CODEX_RELAY_CODEX", "/bin/echo")
        .env("SSL_CERT_FILE", "/nowhere/roots.pem")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}
