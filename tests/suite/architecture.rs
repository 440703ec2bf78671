//! The building code of this crate: which floor each module stands on, and what a floor may use.
//!
//! A failure names the file, the line and the rule. Move the code; change the table only with the
//! README's map.

use std::fs;
use std::path::{Path, PathBuf};

/// Modules from the ground up. A module may use only modules of a lower floor.
const FLOORS: &[(&str, u8)] = &[
    ("base", 0),
    ("wire", 1),
    ("context", 1),
    ("control", 1),
    ("session", 2),
    ("lifecycle", 2),
    ("exchange", 3),
    ("telemetry", 4),
    ("workspace", 4),
    ("upstream", 4),
    ("child", 4),
    ("budget", 5),
    ("feed", 5),
    ("stdio", 6),
    ("relay", 6),
    ("config", 7),
    ("commands", 8),
    ("app", 9),
];

/// Floors up to this one decide; they never do IO.
const LAST_PURE_FLOOR: u8 = 3;

/// What a pure floor must not mention.
const IMPURE: &[&str] = &[
    "async ",
    ".await",
    "tokio",
    "hyper::",
    "hyper_util",
    "rustls",
    "nix::",
    "tracing_subscriber",
    "std::fs",
    "std::env",
    "std::net",
    "std::process",
    "std::thread",
    "Instant::now",
    "SystemTime",
    "unsafe",
];

/// Longest file, tests not counted.
const MAX_LINES: usize = 400;

#[test]
fn every_import_goes_down() {
    let mut faults = Vec::new();
    for file in sources() {
        let Some((module, floor)) = stands_on(&file) else {
            continue;
        };
        for (number, line) in code(&file) {
            for used in modules_used(&line) {
                match floor_of(used) {
                    Some(below) if below < floor || used == module => {}
                    Some(_) => faults.push(format!(
                        "{}:{number}: {module} must not use {used}",
                        file.display()
                    )),
                    None => {
                        faults.push(format!("{}:{number}: {used} has no floor", file.display()));
                    }
                }
            }
            if line.contains("super::super") {
                faults.push(format!(
                    "{}:{number}: write crate:: instead of super::super",
                    file.display()
                ));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn pure_floors_do_no_io() {
    let mut faults = Vec::new();
    for file in sources() {
        if stands_on(&file).is_none_or(|(_, floor)| floor > LAST_PURE_FLOOR) {
            continue;
        }
        for (number, line) in code(&file) {
            for word in IMPURE.iter().filter(|word| line.contains(**word)) {
                faults.push(format!(
                    "{}:{number}: `{}` on a pure floor",
                    file.display(),
                    word.trim()
                ));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn files_stay_readable() {
    let long: Vec<_> = sources()
        .into_iter()
        .map(|file| (code(&file).len(), file))
        .filter(|(lines, _)| *lines > MAX_LINES)
        .map(|(lines, file)| format!("{}: {lines} lines, at most {MAX_LINES}", file.display()))
        .collect();
    assert!(long.is_empty(), "\n{}", long.join("\n"));
}

fn floor_of(module: &str) -> Option<u8> {
    FLOORS
        .iter()
        .find(|(name, _)| *name == module)
        .map(|(_, floor)| *floor)
}

fn stands_on(file: &Path) -> Option<(&'static str, u8)> {
    let relative = file.strip_prefix(root()).unwrap();
    if relative.components().count() == 1 {
        assert!(
            ["lib.rs", "main.rs", "telemetry.rs"].contains(&relative.to_str().unwrap()),
            "{}: a module is a folder on a floor",
            relative.display()
        );
    }
    let top = relative.iter().next()?.to_str()?.trim_end_matches(".rs");
    if top == "lib" || top == "main" {
        return None;
    }
    let found = FLOORS.iter().find(|(name, _)| *name == top);
    Some(*found.unwrap_or_else(|| panic!("{}: give `{top}` a floor", relative.display())))
}

/// The code lines of `file`, numbered, without comments and without its test module.
fn code(file: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(file).unwrap();
    text.lines()
        .enumerate()
        .take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
        .map(|(index, line)| {
            (
                index + 1,
                line.split("//").next().unwrap_or_default().to_owned(),
            )
        })
        .filter(|(_, line)| !line.trim().is_empty())
        .collect()
}

/// Names that follow `crate::` in a line.
fn modules_used(line: &str) -> impl Iterator<Item = &str> {
    line.split("crate::").skip(1).map(move |rest| {
        let end = rest
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        assert!(end > 0, "write one `use crate::module` a line: {line}");
        &rest[..end]
    })
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs")
                && !path.to_string_lossy().ends_with("_tests.rs")
            {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
