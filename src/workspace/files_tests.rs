use std::fs;
use std::os::unix::fs::symlink;

use super::*;

fn text(root: &Root, path: &str, links: Links) -> Result<Option<String>, ReadError> {
    let Some(file) = root.file(Path::new(path), links)? else {
        return Ok(None);
    };
    Ok(Some(to_text(&read_head(file, 16)?)))
}

#[test]
fn only_regular_files_of_the_root_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(outside.path().join("secret"), "s").unwrap();
    symlink(outside.path().join("secret"), at("link")).unwrap();
    symlink(outside.path(), at("way-out")).unwrap();
    symlink("..", at("up")).unwrap();
    symlink("loop", at("loop")).unwrap();
    symlink("plain", at("inside")).unwrap();
    fs::hard_link(outside.path().join("secret"), at("hard")).unwrap();
    fs::create_dir(at("folder")).unwrap();
    nix::unistd::mkfifo(&at("pipe"), Mode::S_IRWXU).unwrap();
    fs::write(at("plain"), b"a\xffb").unwrap();
    let root = Root::open(folder.path()).unwrap();
    let read = |path| text(&root, path, Links::Inside);
    assert!(matches!(read("absent"), Ok(None)));
    assert!(matches!(read("plain/below"), Ok(None)));
    for path in [
        "link",
        "way-out/secret",
        "up/x",
        "loop",
        "../x",
        "/etc/passwd",
    ] {
        assert!(matches!(read(path), Err(ReadError::Link)), "{path}");
    }
    assert!(matches!(read("hard"), Err(ReadError::HardLink)));
    assert!(matches!(read("folder"), Err(ReadError::NotRegular)));
    assert!(matches!(read("pipe"), Err(ReadError::NotRegular)));
    assert_eq!(read("plain").unwrap().as_deref(), Some("a\u{fffd}b"));
    #[cfg(target_os = "linux")]
    assert_eq!(read("inside").unwrap().as_deref(), Some("a\u{fffd}b"));
    assert!(matches!(
        text(&root, "inside", Links::Never),
        Err(ReadError::Link)
    ));
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK;
    for (path, error) in [
        ("link", Errno::ELOOP),
        ("inside", Errno::ELOOP),
        ("../x", Errno::EXDEV),
        ("/etc/passwd", Errno::EXDEV),
    ] {
        assert_eq!(
            root.walk(Path::new(path), flags).unwrap_err(),
            error,
            "{path}"
        );
    }
    // The system tells a link that must be a folder from one that must not be followed, or doesn't.
    assert!(root.walk(Path::new("way-out/secret"), flags).is_err());
    assert!(root.walk(Path::new("plain"), flags).is_ok());
}

#[test]
fn bound_holds_and_no_character_is_halved() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("at"), "0123456789abcdef").unwrap();
    fs::write(folder.path().join("above"), "0123456789abcd\u{1f9ed}").unwrap();
    let root = Root::open(folder.path()).unwrap();
    let head = |name: &str| {
        let file = root.file(Path::new(name), Links::Inside).unwrap().unwrap();
        read_head(file, 16).unwrap()
    };
    assert_eq!((to_text(&head("at")).len(), head("at").unread), (16, 0));
    assert_eq!(to_text(&head("above")), "0123456789abcd");
    assert_eq!(head("above").unread, 2);
}

#[test]
fn names_come_in_order_within_their_bound() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["b", "a", ".hidden", "c"] {
        fs::create_dir_all(folder.path().join("skills").join(name)).unwrap();
    }
    let root = Root::open(folder.path()).unwrap();
    let names = |most| root.names(Path::new("skills"), most).unwrap().unwrap();
    assert_eq!(
        names(3),
        (["a", "b", "c"].map(str::to_owned).to_vec(), false)
    );
    assert!(names(2).1);
    assert!(root.names(Path::new("none"), 3).unwrap().is_none());
}
