//! The program under the name `codex`: a pure stand-in.

use std::ffi::{OsStr, OsString};

/// What a stand-in does with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StandIn {
    /// Hands them to the real codex.
    Exec,
    /// Relays an app-server, started with exactly these arguments.
    Relay,
}

/// Judges the arguments behind the program's name.
///
/// `app-server` relays, also behind codex's global options; its tools (`daemon`, `generate-…`,
/// `help`) and everything else are codex's own.
pub fn judge(args: &[OsString]) -> StandIn {
    let mut args = args.iter().map(OsString::as_os_str);
    if next_word(&mut args) != Some(OsStr::new("app-server")) {
        return StandIn::Exec;
    }
    let informs = |arg: &OsStr| {
        ["-h", "--help", "-V", "--version", "--print-startup-config"]
            .iter()
            .any(|option| arg == *option)
    };
    if args.clone().any(informs) {
        return StandIn::Exec;
    }
    match next_word(&mut args) {
        None => StandIn::Relay,
        Some(word) if word == ATTACHMENT => StandIn::Relay,
        Some(_) => StandIn::Exec,
    }
}

/// Whether `app-server proxy` is started: it attaches to a codex that runs elsewhere.
pub fn is_attachment(codex_args: &[OsString]) -> bool {
    let mut args = codex_args.iter().map(OsString::as_os_str);
    next_word(&mut args) == Some(OsStr::new("app-server"))
        && next_word(&mut args) == Some(OsStr::new(ATTACHMENT))
}

/// The subcommand of `app-server` that speaks for another process.
const ATTACHMENT: &str = "proxy";

/// Whether `--listen` asks for anything but standard input and output; gives its value.
pub fn foreign_listen(codex_args: &[OsString]) -> Option<String> {
    let mut args = codex_args.iter();
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy();
        let value = match text.strip_prefix("--listen") {
            Some("") => args.next()?.to_string_lossy().into_owned(),
            Some(rest) => rest.strip_prefix('=')?.to_owned(),
            None => continue,
        };
        if value != "stdio://" {
            return Some(value);
        }
    }
    None
}

/// The next argument that is neither an option nor the value of one.
fn next_word<'a>(args: &mut impl Iterator<Item = &'a OsStr>) -> Option<&'a OsStr> {
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy();
        if !text.starts_with('-') {
            return Some(arg);
        }
        if WITH_VALUE.contains(&text.as_ref()) {
            args.next();
        }
    }
    None
}

/// Options of codex that take the next argument as their value (0.155.1 to 0.171.0).
const WITH_VALUE: [&str; 27] = [
    "-c",
    "--config",
    "--enable",
    "--disable",
    "--remote",
    "--remote-auth-token-env",
    "-i",
    "--image",
    "-m",
    "--model",
    "--local-provider",
    "-p",
    "--profile",
    "-s",
    "--sandbox",
    "-C",
    "--cd",
    "--add-dir",
    "-a",
    "--ask-for-approval",
    "--listen",
    "--startup-client-info",
    "--cloud-skills-snapshot",
    "--code-mode-host",
    "--ws-auth",
    "--ws-token-file",
    "--session-source",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(line: &str) -> StandIn {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        judge(&args)
    }

    #[test]
    fn app_server_relays_and_everything_else_is_codex() {
        for line in [
            "app-server",
            "app-server --listen stdio://",
            "app-server -c a=b --stdio",
            "-c model=x app-server",
            "app-server proxy --sock x",
            "--config=model=x --enable f app-server --analytics-default-enabled",
        ] {
            assert_eq!(judged(line), StandIn::Relay, "{line}");
        }
        for line in [
            "",
            "exec app-server",
            "-c app-server",
            "hello app-server",
            "app-server daemon start",
            "app-server generate-ts --out x",
            "app-server --help",
            "--version",
        ] {
            assert_eq!(judged(line), StandIn::Exec, "{line}");
        }
    }

    #[test]
    fn attachments_are_known() {
        let attached = |line: &str| {
            let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            is_attachment(&args)
        };
        assert!(attached("app-server proxy"));
        assert!(attached("-c a=b app-server -c c=d proxy --sock x"));
        assert!(!attached("app-server"));
        assert!(!attached("app-server --listen proxy"));
        assert!(!attached("exec app-server proxy"));
    }

    #[test]
    fn only_standard_streams_may_be_listened_on() {
        let listen = |line: &str| {
            let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            foreign_listen(&args)
        };
        assert_eq!(listen("--listen stdio:// -c x"), None);
        assert_eq!(listen("--listen=stdio://"), None);
        assert_eq!(listen("--stdio"), None);
        assert_eq!(
            listen("--listen ws://1.2.3.4:5").as_deref(),
            Some("ws://1.2.3.4:5")
        );
        assert_eq!(listen("-c x --listen=off").as_deref(), Some("off"));
    }
}
