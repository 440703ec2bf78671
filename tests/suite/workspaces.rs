//! Golden workspaces: what `render` says of each folder in `fixtures/workspaces`.
//!
//! `UPDATE_FIXTURES=1 cargo test workspaces` writes what it says now: read the difference before it is kept.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use toml::Table;

use crate::support::needs_superuser;

/// The length of each workspace's path: the paths of skills count in their budget.
const PATH_BYTES: usize = 100;

/// What stands for the workspace's path in what is expected.
const PLACE: &str = "/workspace";

#[test]
fn every_workspace_renders_as_it_is_written_down() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/workspaces");
    let mut cases: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    cases.sort();
    assert!(cases.len() >= 9, "{cases:?}");
    let faults: Vec<String> = cases.iter().flat_map(|case| check(case)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn file_that_may_not_be_read_is_left_out_with_a_warning() {
    needs_superuser();
    let stage = TempDir::new().unwrap();
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(stage.path(), 0o755);
    for (name, text) in [("SOUL.md", "Open.\n"), ("USER.md", "Shut-3b.\n")] {
        fs::write(stage.path().join(name), text).unwrap();
    }
    mode(&stage.path().join("USER.md"), 0o000);
    let mut command = Command::new(env!("CARGO_BIN_EXE_codex-relay"));
    command.env_clear().env("HOME", stage.path());
    command.arg("--workspace").arg(stage.path()).arg("render");
    let output = command.uid(65534).gid(65534).output().unwrap();
    let (text, notes) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert!(output.status.success(), "{notes}");
    assert!(
        text.contains("Open.") && !text.contains("Shut-3b"),
        "{text}"
    );
    let is_told = |line: &str| line.contains("USER.md") && line.contains("ermission denied");
    assert!(notes.lines().any(is_told), "{notes}");
}

fn check(case: &Path) -> Vec<String> {
    let stage = TempDir::new().unwrap();
    let stem = stage.path().display().to_string();
    let name = "w".repeat(PATH_BYTES.checked_sub(stem.len() + 1).unwrap());
    let root = stage.path().join(name);
    fs::create_dir(&root).unwrap();
    copy(&case.join("files"), &root);
    let about: Table = fs::read_to_string(case.join("case.toml"))
        .unwrap()
        .parse()
        .unwrap();
    // Sockets are bound below; they live as long as the case.
    let _made: Vec<_> = list(&about, "make")
        .iter()
        .map(|one| make(&root, stage.path(), one.as_table().unwrap()))
        .collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_codex-relay"));
    command.env_clear().env("HOME", stage.path());
    command.arg("--workspace").arg(&root);
    if case.join("config.toml").exists() {
        command.arg("--config").arg(case.join("config.toml"));
    }
    let arguments = list(&about, "arguments");
    let output = command
        .args(arguments.iter().map(|it| it.as_str().unwrap()))
        .output()
        .unwrap();
    let exit = about.get("exit").map_or(0, |it| it.as_integer().unwrap());
    let mut faults = Vec::new();
    if output.status.code().map(i64::from) != Some(exit) {
        faults.push(format!("{}: {}", case.display(), output.status));
    }
    let placed = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).unwrap();
        text.replace(root.to_str().unwrap(), PLACE)
    };
    let account = placed(&output.stderr);
    let digest = |line: &str| line.split(", sha256 ").next().unwrap().to_owned() + "\n";
    let account: String = account.lines().map(digest).collect();
    faults.extend(compare(&case.join("context.md"), &placed(&output.stdout)));
    faults.extend(compare(&case.join("account.txt"), &account));
    faults
}

fn compare(path: &Path, actual: &str) -> Option<String> {
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        fs::write(path, actual).unwrap();
        return None;
    }
    let expected = fs::read_to_string(path).unwrap_or_default();
    (expected != actual).then(|| {
        let path = path.display();
        format!("{path}: expected\n{expected}\n--- and not\n{actual}\n---")
    })
}

fn list(table: &Table, name: &str) -> Vec<toml::Value> {
    let list = table.get(name).and_then(|it| it.as_array());
    list.cloned().unwrap_or_default()
}

/// Makes what a repository can't hold; what must be kept alive is given back.
fn make(root: &Path, outside: &Path, one: &Table) -> Option<UnixListener> {
    let text = |name: &str| one.get(name).map(|it| it.as_str().unwrap());
    let number = |name: &str| usize::try_from(one[name].as_integer().unwrap()).unwrap();
    let path = root.join(text("path").unwrap());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    match text("what").unwrap() {
        "repeated" => {
            let [head, body, tail] = ["head", "text", "tail"].map(|it| text(it).unwrap_or(""));
            let body = body.repeat(number("times"));
            fs::write(path, format!("{head}{body}{tail}")).unwrap();
        }
        "link-out" => {
            let secret = outside.join("secret");
            fs::write(&secret, "from outside").unwrap();
            symlink(secret, path).unwrap();
        }
        "hard-link-out" => {
            let secret = outside.join("other-secret");
            fs::write(&secret, "from outside").unwrap();
            fs::hard_link(secret, path).unwrap();
        }
        "link" => symlink(text("to").unwrap(), path).unwrap(),
        // Nobody can open it, whoever runs the tests.
        "socket" => {
            // The path of a socket is short: it is bound beside, then moved.
            let beside = outside.join("s");
            let socket = UnixListener::bind(&beside).unwrap();
            fs::rename(beside, path).unwrap();
            return Some(socket);
        }
        "skills" => {
            for index in 0..number("count") {
                let folder = path.join(format!("skill-{index:03}"));
                fs::create_dir_all(&folder).unwrap();
                let about = format!("Skill {index} {}", text("text").unwrap());
                let text = format!("---\nname: skill-{index:03}\ndescription: {about}\n---\n");
                fs::write(folder.join("SKILL.md"), text).unwrap();
            }
        }
        other => panic!("nobody makes {other}"),
    }
    None
}

fn copy(from: &Path, to: &Path) {
    let Ok(entries) = fs::read_dir(from) else {
        return;
    };
    for entry in entries {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
