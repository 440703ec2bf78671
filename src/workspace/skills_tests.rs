use std::fs;
use std::os::unix::fs::symlink;

use super::*;

fn write(root: &Path, folder: &str, front_matter: &str) {
    let path = root.join("skills").join(folder);
    fs::create_dir_all(&path).unwrap();
    fs::write(
        path.join("SKILL.md"),
        format!("---\n{front_matter}\n---\nbody"),
    )
    .unwrap();
}

fn names(root: &Path, around: &Surroundings) -> (Vec<String>, Vec<String>) {
    let mut warnings = Vec::new();
    let folder = Root::open(root).unwrap();
    let now = SystemTime::UNIX_EPOCH;
    let skills = find(
        (root, &folder),
        &Cache::default(),
        (around, None),
        now,
        &mut warnings,
    );
    (skills.into_iter().map(|it| it.name).collect(), warnings)
}

#[test]
fn skills_that_are_of_no_use_here_are_not_listed() {
    let root = tempfile::tempdir().unwrap();
    let programs = tempfile::tempdir().unwrap();
    let program = programs.path().join("knit");
    fs::write(&program, "").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(programs.path().join("text"), "").unwrap();
    let system = std::env::consts::OS;
    for (folder, more) in [
        ("a-plain", ""),
        ("b-program", "requires: {bins: [knit]}"),
        ("c-one-of", "requires: {anyBins: [none, knit]}"),
        ("d-variable", "requires: {env: [YARN]}"),
        (
            "e-always",
            "metadata: {openclaw: {always: true, requires: {bins: [none]}}}",
        ),
        ("n-no-program", "requires: {bins: [knit, text]}"),
        ("n-no-variable", "requires: {env: [WOOL]}"),
        ("n-other-system", "os: [plan9]"),
        ("n-hidden", "disable-model-invocation: true"),
        ("n-off", ""),
    ] {
        write(
            root.path(),
            folder,
            &format!("name: {folder}\ndescription: d\n{more}"),
        );
    }
    write(
        root.path(),
        "f-system",
        &format!("description: d\nos: {system}"),
    );
    let around = Surroundings {
        path: Some(programs.path().into()),
        variables: ["YARN".into()].into(),
        disabled: ["n-off".to_owned()].into(),
        of_codex: Vec::new(),
    };
    let (names, warnings) = names(root.path(), &around);
    assert_eq!(
        names,
        [
            "a-plain",
            "b-program",
            "c-one-of",
            "d-variable",
            "e-always",
            "f-system"
        ]
    );
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn what_is_no_skill_is_passed_over_or_named() {
    let root = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    write(root.path(), "good", "description: d");
    write(root.path(), "bad", "name: bad");
    write(outside.path(), "far", "description: d");
    fs::create_dir(root.path().join("skills/empty")).unwrap();
    fs::write(root.path().join("skills/README.md"), "").unwrap();
    symlink(
        outside.path().join("skills/far"),
        root.path().join("skills/far"),
    )
    .unwrap();
    let (names, warnings) = names(root.path(), &Surroundings::default());
    assert_eq!(names, ["good"]);
    assert_eq!(
        warnings,
        [
            "skills/bad/SKILL.md left out: it has no description in its front matter",
            "skills/far/SKILL.md left out: it is reached by a symbolic link that may not be followed",
        ]
    );
}

#[test]
fn skills_that_codex_lists_itself_are_not_listed_twice() {
    let root = tempfile::tempdir().unwrap();
    let codex = tempfile::tempdir().unwrap();
    write(root.path(), "shared", "description: d");
    write(root.path(), "own", "description: d");
    let around = |folder: PathBuf| Surroundings {
        of_codex: vec![folder],
        ..Surroundings::default()
    };
    symlink(
        root.path().join("skills/shared"),
        codex.path().join("shared"),
    )
    .unwrap();
    assert_eq!(names(root.path(), &around(codex.path().into())).0, ["own"]);
    let whole = codex.path().join("skills");
    symlink(root.path().join("skills"), &whole).unwrap();
    assert_eq!(names(root.path(), &around(whole)).0, [""; 0]);
}
