//! README's tables say what the code says.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use codex_relay::base::limits;
use codex_relay::base::reason::Reason;
use codex_relay::session::methods::RelayMethod;

fn readme() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap()
}

/// The first cells of the table that begins with `head`, without code marks.
fn first_cells(head: &str) -> Vec<String> {
    let text = readme();
    let table = text
        .split(head)
        .nth(1)
        .unwrap_or_else(|| panic!("README has no table {head}"));
    table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.split('|').nth(1).unwrap().trim().replace('`', ""))
        .collect()
}

#[test]
fn every_reason_code_is_explained() {
    let told: Vec<String> = first_cells("| reason | what it means |");
    let known: Vec<&str> = Reason::ALL.iter().map(|reason| reason.code()).collect();
    assert_eq!(told, known);
}

#[test]
fn every_option_is_explained() {
    let told: BTreeSet<String> = first_cells("| flag | environment | default | meaning |")
        .iter()
        .map(|cell| cell.split_whitespace().next().unwrap().to_owned())
        .collect();
    let help = std::process::Command::new(env!("CARGO_BIN_EXE_codex-relay"))
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let known: BTreeSet<String> = help
        .lines()
        .filter_map(|line| line.trim().strip_prefix("--"))
        .map(|rest| format!("--{}", rest.split_whitespace().next().unwrap()))
        .collect();
    assert_eq!(told, known);
}

#[test]
fn every_method_of_the_relay_is_explained() {
    let told = first_cells("| method | params | result |");
    let mut known = RelayMethod::ALL.map(|(name, _)| name);
    known.sort_by_key(|name| told.iter().position(|it| it == name));
    assert_eq!(told, known);
}

#[test]
fn limits_are_those_of_the_code() {
    let text = readme();
    let grouped = |number: usize| {
        let digits = number.to_string();
        let groups: Vec<&str> = digits
            .as_bytes()
            .rchunks(3)
            .rev()
            .map(|group| std::str::from_utf8(group).unwrap())
            .collect();
        groups.join(",")
    };
    for limit in [
        limits::MAX_CONTEXT_BYTES,
        limits::MAX_BODY_BYTES,
        limits::MAX_METADATA_BYTES,
        limits::MAX_THREADS,
        limits::MAX_REFERENCES_BYTES,
        limits::FILE_BUDGET_CHARS,
        limits::USER_BUDGET_CHARS,
        limits::TOTAL_BUDGET_CHARS,
    ] {
        assert!(text.contains(&grouped(limit)), "{limit}");
    }
}

#[test]
fn every_floor_of_the_map_is_in_the_tree() {
    let text = readme();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for entry in fs::read_dir(source).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.trim_end_matches(".rs");
        let is_root = ["lib", "main"].contains(&module);
        assert!(
            is_root || text.contains(&format!("`{module}`")),
            "{module} is not on the map"
        );
    }
}
