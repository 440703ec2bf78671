use std::fs;
use std::os::unix::fs::symlink;

use super::*;

fn load(root: &Path, profile: Option<&str>) -> Loaded {
    let workspace = Workspace::new(root.to_path_buf(), None, Surroundings::default());
    let profile = profile.map(|it| ProfileId::new(it).unwrap());
    workspace
        .load(profile.as_ref(), None, SystemTime::UNIX_EPOCH)
        .unwrap()
}

fn paths(loaded: &Loaded) -> Vec<&str> {
    let fragments = loaded.material.fragments.iter();
    fragments.map(|it| &*it.path).collect()
}

#[test]
fn files_come_in_order_and_the_unreadable_are_named() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    fs::create_dir_all(at("users/ada")).unwrap();
    for name in [
        "MEMORY.md",
        "USER.md",
        "users/ada/USER.md",
        "BOOTSTRAP.md",
        "SOUL.md",
        "TOOLS.md",
    ] {
        fs::write(at(name), name).unwrap();
    }
    fs::create_dir(at("IDENTITY.md")).unwrap();
    let loaded = load(root.path(), Some("ada"));
    assert_eq!(
        paths(&loaded),
        [
            "SOUL.md",
            "USER.md",
            "users/ada/USER.md",
            "BOOTSTRAP.md",
            "MEMORY.md"
        ]
    );
    assert_eq!(
        loaded.warnings,
        ["IDENTITY.md left out: it is not a regular file"]
    );
    assert_eq!(loaded.notes.len(), 1);
    assert!(loaded.notes[0].starts_with("TOOLS.md is not loaded: "));
    let shared = load(root.path(), None);
    assert!(!paths(&shared).contains(&"users/ada/USER.md"));
    assert_eq!(paths(&shared), paths(&load(root.path(), Some("bob"))));
}

#[test]
fn overlay_is_read_without_any_link() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    fs::create_dir_all(at("users/ada")).unwrap();
    fs::create_dir_all(at("users/eve")).unwrap();
    fs::write(at("users/ada/USER.md"), "a").unwrap();
    symlink("ada", at("users/bob")).unwrap();
    symlink("../ada/USER.md", at("users/eve/USER.md")).unwrap();
    fs::create_dir_all(at("users/kim")).unwrap();
    fs::hard_link(at("users/ada/USER.md"), at("users/kim/USER.md")).unwrap();
    for profile in ["bob", "eve", "kim"] {
        let loaded = load(root.path(), Some(profile));
        assert_eq!(paths(&loaded), [""; 0], "{profile}");
        assert_eq!(loaded.warnings.len(), 1, "{profile}");
    }
}

#[test]
fn memory_of_another_workspace_is_told_apart() {
    let root = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let link = other.path().join("link");
    symlink(root.path(), &link).unwrap();
    for (memory, serves) in [
        (None, true),
        (Some(root.path().to_path_buf()), true),
        (Some(link), true),
        (Some(other.path().to_path_buf()), false),
        (Some(root.path().join("gone")), false),
    ] {
        let workspace = Workspace::new(root.path().into(), memory.clone(), Surroundings::default());
        let loaded = workspace.load(None, None, SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(loaded.material.is_memory_workspace, serves, "{memory:?}");
    }
}

#[test]
fn nothing_outside_is_read_while_folders_turn_into_links_and_back() {
    let root = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    for (place, text) in [(outside.path(), "outside"), (root.path(), "inside")] {
        fs::create_dir_all(place.join("users/ada")).unwrap();
        fs::create_dir_all(place.join("skills/knit")).unwrap();
        fs::write(place.join("users/ada/USER.md"), text).unwrap();
        let skill = format!("---\ndescription: {text}\n---\n");
        fs::write(place.join("skills/knit/SKILL.md"), skill).unwrap();
    }
    let at = |name: &str| root.path().join(name);
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                for name in ["users", "skills"] {
                    fs::rename(at(name), at("aside")).unwrap();
                    symlink(outside.path().join(name), at(name)).unwrap();
                    fs::remove_file(at(name)).unwrap();
                    fs::rename(at("aside"), at(name)).unwrap();
                }
            }
        });
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..2000 {
            let loaded = load(root.path(), Some("ada"));
            let material = loaded.material;
            seen.extend(material.fragments.iter().map(|it| it.text.to_string()));
            seen.extend(material.skills.into_iter().map(|it| it.description));
        }
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        seen
    });
    assert!(!seen.contains("outside"), "{seen:?}");
}

#[test]
fn unreadable_file_is_left_out_and_named() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("SOUL.md");
    fs::write(&path, "s").unwrap();
    let nobody = std::os::unix::fs::PermissionsExt::from_mode(0o000);
    fs::set_permissions(&path, nobody).unwrap();
    let loaded = load(root.path(), None);
    // Root may read everything.
    if nix::unistd::geteuid().is_root() {
        assert_eq!(paths(&loaded), ["SOUL.md"]);
    } else {
        assert_eq!(paths(&loaded), [""; 0]);
        assert_eq!(loaded.warnings.len(), 1);
    }
}

#[test]
fn root_that_is_no_folder_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    fs::write(&file, "").unwrap();
    let load = |root: PathBuf| {
        Workspace::new(root, None, Surroundings::default()).load(None, None, SystemTime::UNIX_EPOCH)
    };
    assert!(matches!(load(file), Err(LoadError::NotAFolder)));
    assert!(matches!(
        load(root.path().join("no")),
        Err(LoadError::Root(_))
    ));
}
