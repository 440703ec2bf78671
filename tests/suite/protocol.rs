//! `proto/` says what codex's own schema and the recorded requests say.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use codex_relay::session::methods;
use serde_json::Value;

use crate::support::codex::{Codex, Version};
use crate::support::fixtures::{Fixture, recorded};

#[test]
fn schema_of_v171_has_what_the_relay_touches() {
    check_schema(Version::V171);
}

#[test]
fn schema_of_v155_has_what_the_relay_touches() {
    check_schema(Version::V155);
}

#[test]
fn every_method_of_the_table_is_one_that_the_relay_knows() {
    let table = table("codex-app-server");
    for row in rows(&table, "client_request") {
        let method = text(row, "method");
        assert!(methods::of_client(method).is_some(), "{method}");
    }
    for row in rows(&table, "notification") {
        let method = text(row, "method");
        assert!(methods::of_codex(method).is_some(), "{method}");
    }
}

#[test]
fn recorded_requests_have_what_the_relay_reads() {
    let table = table("model-request");
    let all = recorded();
    let mut faults = Vec::new();
    for part in ["body", "client_metadata", "turn_metadata", "header"] {
        for row in rows(&table, part) {
            for (version, purpose) in places(&table, row) {
                let is_of = |it: &&Fixture| it.version == version && it.purpose == purpose;
                let is_of = |it: &&Fixture| is_of(it) && it.login == login(row);
                let found: Vec<_> = all.iter().filter(is_of).collect();
                let name = text(row, "name");
                let has_all = found.iter().all(|it| value_of(it, part, name).is_some());
                if found.is_empty() || !has_all {
                    faults.push(format!("{version} {purpose}: no {name} in {part}"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn values_of_the_metadata_are_those_recorded() {
    let table = table("model-request");
    for row in rows(&table, "turn_metadata") {
        let listed: BTreeSet<_> = strings(row, "values").into_iter().collect();
        let all = recorded();
        let seen = all
            .iter()
            .filter_map(|it| value_of(it, "turn_metadata", text(row, "name")));
        let seen: BTreeSet<_> = seen.collect();
        let seen: BTreeSet<_> = seen.iter().map(String::as_str).collect();
        assert!(listed.is_empty() || listed == seen, "{listed:?} {seen:?}");
    }
}

fn check_schema(version: Version) {
    let table = table("codex-app-server");
    assert!(strings(&table, "versions").contains(&version.number()));
    let (stable, all) = (Schema::of(version, false), Schema::of(version, true));
    let mut faults = Vec::new();
    for row in rows(&table, "client_request") {
        let method = text(row, "method");
        for member in [strings(row, "reads"), strings(row, "edits")].concat() {
            if !stable.has_param("ClientRequest", method, member) {
                faults.push(format!("{method} takes no {member}"));
            }
        }
        for member in strings(row, "experimental") {
            let is_stable = stable.has_param("ClientRequest", method, member);
            if is_stable || !all.has_param("ClientRequest", method, member) {
                faults.push(format!(
                    "{member} of {method} isn't experimental (any more)"
                ));
            }
        }
        for member in strings(row, "learns") {
            let answer = stable.file(text(row, "answer"));
            if !has(&answer, &answer, member) {
                faults.push(format!("{method} answers no {member}"));
            }
        }
    }
    for row in rows(&table, "notification") {
        for member in strings(row, "learns") {
            if !stable.has_param("ServerNotification", text(row, "method"), member) {
                faults.push(format!("{} tells no {member}", text(row, "method")));
            }
        }
    }
    assert!(
        faults.is_empty(),
        "{}:\n{}",
        version.number(),
        faults.join("\n")
    );
}

/// The schema that a codex prints of itself.
struct Schema(tempfile::TempDir);

impl Schema {
    fn of(version: Version, experimental: bool) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut codex = Command::new(Codex::installed(version).native);
        codex.args(["app-server", "generate-json-schema", "--out"]);
        codex.arg(folder.path()).env("CODEX_HOME", folder.path());
        if experimental {
            codex.arg("--experimental");
        }
        assert!(codex.output().unwrap().status.success());
        Self(folder)
    }

    fn file(&self, name: &str) -> Value {
        let file = fs::read(self.0.path().join(format!("{name}.json"))).unwrap();
        serde_json::from_slice(&file).unwrap()
    }

    fn has_param(&self, kind: &str, method: &str, member: &str) -> bool {
        let root = self.file(kind);
        let messages = root["oneOf"].as_array().unwrap();
        let of_method = |it: &&Value| it["properties"]["method"]["enum"][0] == method;
        let message = messages.iter().find(of_method);
        message.is_some_and(|it| has(&root, &it["properties"]["params"], member))
    }
}

/// Says whether a schema has a member, by its dotted name.
fn has(root: &Value, schema: &Value, member: &str) -> bool {
    let (first, rest) = member.split_once('.').unwrap_or((member, ""));
    if let Some(name) = schema["$ref"].as_str() {
        let target = name.trim_start_matches('#');
        return has(root, root.pointer(target).unwrap(), member);
    }
    let choices = ["anyOf", "allOf", "oneOf"].map(|word| schema[word].as_array());
    let mut choices = choices.into_iter().flatten().flatten();
    let found = &schema["properties"][first];
    choices.any(|choice| has(root, choice, member))
        || (!found.is_null() && (rest.is_empty() || has(root, found, rest)))
}

fn value_of(fixture: &Fixture, part: &str, name: &str) -> Option<String> {
    let value = match part {
        "header" => return fixture.header(name).map(str::to_owned),
        "body" => fixture.json.get(name),
        "client_metadata" => fixture.json["client_metadata"].get(name),
        _ => fixture.metadata.get(name),
    }?;
    Some(
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned),
    )
}

/// The versions and purposes that a row is about.
fn places<'a>(table: &'a Value, row: &'a Value) -> Vec<(&'a str, &'a str)> {
    let only = strings(row, "only");
    let versions = if only.is_empty() {
        strings(table, "versions")
    } else {
        only
    };
    let pairs = versions.iter().flat_map(|version| {
        let purposes = strings(row, "seen_on").into_iter();
        purposes.map(|purpose| (*version, purpose))
    });
    pairs.collect()
}

fn login(row: &Value) -> &str {
    row["login"].as_str().unwrap_or("api-key")
}

fn table(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("proto/{name}.toml"));
    toml::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn rows<'a>(table: &'a Value, name: &str) -> &'a [Value] {
    table[name].as_array().unwrap()
}

fn text<'a>(row: &'a Value, name: &str) -> &'a str {
    row[name].as_str().unwrap()
}

fn strings<'a>(row: &'a Value, name: &str) -> Vec<&'a str> {
    let list = row[name].as_array().into_iter().flatten();
    list.map(|it| it.as_str().unwrap()).collect()
}

#[test]
fn schema_of_the_relays_own_methods_is_that_of_its_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto/relay.schema.json");
    let made = format!("{:#}\n", codex_relay::control::schema::schema());
    if std::env::var_os("SUITE_WRITE_SCHEMA").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "proto/relay.schema.json is older than src/control: SUITE_WRITE_SCHEMA=1 cargo test schema_of_the_relays"
    );
}
