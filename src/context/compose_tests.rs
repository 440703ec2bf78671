use super::*;
use crate::context::turn_kind::TurnKind;

fn material() -> Material {
    let files = [
        (Kind::Soul, "SOUL.md", "Be kind."),
        (Kind::User, "USER.md", "Ada"),
        (Kind::Overlay, "users/ada/USER.md", "likes tea"),
        (Kind::Bootstrap, "BOOTSTRAP.md", "Say hello."),
        (Kind::Memory, "MEMORY.md", "It rained."),
    ];
    let fragments = files.map(|(kind, path, text)| Fragment {
        kind,
        path: path.to_owned(),
        text: text.into(),
        unread_bytes: 0,
    });
    Material {
        root: "/w".to_owned(),
        fragments: fragments.to_vec(),
        skills: vec![Skill {
            name: "knit".to_owned(),
            description: "Knits.".to_owned(),
            location: "/w/skills/knit/SKILL.md".to_owned(),
        }],
        memory_guidance: "Note what lasts.\n".to_owned(),
        is_memory_workspace: true,
    }
}

fn wish(kind: TurnKind, has_memory_tools: bool) -> Wish {
    Wish {
        kind,
        has_memory_tools,
        ..Wish::default()
    }
}

fn composed(kind: TurnKind, has_memory_tools: bool) -> Prepared {
    compose(
        material(),
        &wish(kind, has_memory_tools),
        Budgets::default(),
    )
}

fn referred(prepared: &Prepared) -> Vec<&str> {
    prepared.references.iter().map(|it| &*it.path).collect()
}

#[test]
fn parts_stand_in_order_and_their_bytes_add_up() {
    let prepared = composed(TurnKind::User, false);
    let text = prepared.snapshot.text();
    let names: Vec<&str> = prepared
        .snapshot
        .sections()
        .iter()
        .map(|it| &*it.name)
        .collect();
    assert_eq!(
        names,
        [
            "SOUL.md",
            "USER.md",
            "users/ada/USER.md",
            "skills",
            "memory"
        ]
    );
    let sum: usize = prepared.snapshot.sections().iter().map(|it| it.bytes).sum();
    assert_eq!(sum, text.len());
    assert!(text.contains("## SOUL.md\n\nBe kind.\n\n## USER.md\n\nAda\n\n## users/ada/USER.md\n\nlikes tea\n\n# Skills\n\n"), "{text}");
    assert!(
        text.ends_with("</available_skills>\n\n# Memory\n\nNote what lasts."),
        "{text}"
    );
    assert_eq!(referred(&prepared), ["BOOTSTRAP.md", "MEMORY.md"]);
}

#[test]
fn memory_tools_turn_the_memory_into_a_pointer() {
    let prepared = composed(TurnKind::User, true);
    assert!(prepared.snapshot.text().contains("in /w/MEMORY.md"));
    assert!(!prepared.snapshot.text().contains("It rained."));
    assert_eq!(referred(&prepared), ["BOOTSTRAP.md"]);
    for kind in [TurnKind::ToolsDisabled, TurnKind::RingZero] {
        let prepared = composed(kind, true);
        assert!(!prepared.snapshot.text().contains("in /w/MEMORY.md"));
        assert_eq!(referred(&prepared), ["BOOTSTRAP.md", "MEMORY.md"]);
    }
    let elsewhere = Material {
        is_memory_workspace: false,
        ..material()
    };
    let prepared = compose(elsewhere, &wish(TurnKind::User, true), Budgets::default());
    assert_eq!(referred(&prepared), ["BOOTSTRAP.md", "MEMORY.md"]);
    let mut blank = material();
    blank.fragments[4].text = " \n".into();
    let prepared = compose(blank, &wish(TurnKind::User, true), Budgets::default());
    assert!(
        prepared
            .snapshot
            .text()
            .ends_with("# Memory\n\nNote what lasts.")
    );
    assert_eq!(referred(&prepared), ["BOOTSTRAP.md"]);
}

#[test]
fn kinds_of_turn_have_their_blocks_in_their_places() {
    let user = composed(TurnKind::User, false);
    let cron = composed(TurnKind::Cron, false);
    let block = TurnKind::Cron.opening().unwrap();
    let with_block = format!("{block}\n\n{}", user.snapshot.text());
    assert_eq!(cron.snapshot.text(), with_block);
    assert_eq!(cron.references, user.references);

    let light = composed(TurnKind::CronLightweight, true);
    assert_eq!(light.snapshot.text(), block);
    assert!(light.references.is_empty());

    let heartbeat = composed(TurnKind::Heartbeat, false);
    let closing = TurnKind::Heartbeat.closing().unwrap();
    let with_block = format!("{}\n\n{closing}", user.snapshot.text());
    assert_eq!(heartbeat.snapshot.text(), with_block);
    assert_eq!(referred(&heartbeat), ["MEMORY.md"]);
    assert_eq!(heartbeat.references[0], user.references[1]);

    let message_only = composed(TurnKind::MessageOnly, false);
    assert_eq!(message_only, user);
}

#[test]
fn nothing_to_say_is_empty() {
    let nothing = compose(Material::default(), &Wish::default(), Budgets::default());
    assert!(nothing.snapshot.is_empty());
    assert!(nothing.references.is_empty());
}

#[test]
fn losses_are_warned_of() {
    let budgets = Budgets {
        file_chars: 60,
        ..Budgets::default()
    };
    let mut long = material();
    long.fragments[0].text = "x".repeat(61).into();
    let prepared = compose(long, &Wish::default(), budgets);
    assert_eq!(prepared.warnings.len(), 1);
    assert!(prepared.warnings[0].starts_with("SOUL.md: cut from 61 characters to "));
}

#[test]
fn what_children_may_see_is_without_an_overlay() {
    let wish = Wish {
        is_shared: true,
        ..wish(TurnKind::Heartbeat, false)
    };
    let prepared = compose(material(), &wish, Budgets::default());
    let text = prepared.snapshot.text();
    assert!(
        !text.contains("likes tea") && !text.contains("users/"),
        "{text}"
    );
    assert!(!text.contains("# Heartbeat"), "{text}");
    let overlay = prepared
        .account
        .iter()
        .find(|it| it.path.starts_with("users/"));
    let overlay = overlay.unwrap();
    assert_eq!(overlay.injected_bytes, 0);
    assert_eq!(overlay.treatment, Treatment::LeftOut(Why::Inherited));
    assert_eq!(prepared.warnings.len(), 1, "{:?}", prepared.warnings);
}
