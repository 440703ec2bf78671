//! The persona of the tests, and what became of it in a request.

use codex_relay::commands::witness::{Pair, Recorded};

use super::stage::Stage;

/// A word that stands in the persona once, and nowhere else.
pub(crate) const MARKER: &str = "Quillwhistle-3f9a";

/// Writes the persona into the stage's workspace.
pub(crate) fn write(stage: &Stage) {
    stage.write(
        "SOUL.md",
        &format!("You keep the lighthouse of {MARKER}.\n"),
    );
    stage.write(
        "IDENTITY.md",
        "Your name is \"Marlowe\" \u{2014} caf\u{e9} \u{1f9ed}.\n",
    );
    stage.write(
        "USER.md",
        "You work for Ada.\\ Tabs\tand bells \u{7} included.\n",
    );
}

/// Takes it away.
pub(crate) fn remove(stage: &Stage) {
    for name in ["SOUL.md", "IDENTITY.md", "USER.md"] {
        std::fs::remove_file(stage.workspace.join(name)).unwrap();
    }
}

/// Asserts that what arrived is what codex sent, and one copy of the persona; gives the text of it.
pub(crate) fn assert_injected(pair: &Pair) -> String {
    assert!(
        pair.is_same_outside_instructions(),
        "{pair:?}: {:?}",
        pair.change()
    );
    assert_eq!(pair.changed_headers(), [""; 0], "{pair:?}");
    assert_eq!(pair.arrived.head.target, "/v1/responses");
    injected_text(&pair.arrived, pair.sent.instructions())
}

/// Asserts that a request carries one copy of the persona, behind its own `instructions` if it has some; gives the
/// text of it.
pub(crate) fn injected_text(arrived: &Recorded, own: Option<&str>) -> String {
    assert_eq!(copies(arrived, MARKER), 1, "{arrived:?}");
    let instructions = arrived.instructions().unwrap();
    let text = match own.filter(|own| !own.is_empty()) {
        Some(own) => instructions
            .strip_prefix(own)
            .unwrap()
            .strip_prefix("\n\n")
            .unwrap(),
        None => instructions,
    };
    assert!(text.contains(MARKER));
    text.to_owned()
}

/// Asserts that what arrived is what codex sent, byte for byte, without any persona.
pub(crate) fn assert_untouched(pair: &Pair) {
    assert!(pair.is_identical(), "{pair:?}: {:?}", pair.change());
    assert_eq!(pair.changed_headers(), [""; 0], "{pair:?}");
    assert_eq!(pair.arrived.head.target, "/v1/responses");
    assert_eq!(copies(&pair.arrived, MARKER), 0, "{:?}", pair.arrived);
}

/// How often a word stands in a request, wherever it may be.
pub(crate) fn copies(request: &Recorded, word: &str) -> usize {
    let plain = request.plain().unwrap();
    memchr::memmem::find_iter(&plain, word.as_bytes()).count()
}
