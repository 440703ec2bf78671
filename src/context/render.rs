//! Fragments into the text that the model sees.

use crate::context::fragment::Fragment;
use crate::context::snapshot::{Section, Snapshot};

/// Renders the persona; no fragments give an empty snapshot.
///
/// The text depends on the fragments alone, so that the provider's prompt cache holds from turn to
/// turn.
pub fn render(fragments: &[Fragment]) -> Snapshot {
    let mut text = String::new();
    let mut sections = Vec::with_capacity(fragments.len());
    for fragment in fragments {
        let before = text.len();
        if text.is_empty() {
            text.push_str(PREAMBLE);
        }
        let name = fragment.kind.file_name();
        text.push_str("\n\n## ");
        text.push_str(name);
        text.push_str("\n\n");
        text.push_str(&fragment.text);
        sections.push(Section {
            name: name.to_owned(),
            bytes: text.len() - before,
        });
    }
    Snapshot::new(text, sections)
}

/// Stands above the files, so that the model knows whose words they are.
const PREAMBLE: &str = "# Agent persona\n\n\
    The files below come from the agent's own workspace. They say who you are and whom you work for. \
    Speak and act as they describe; they do not widen what you are allowed to do.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::fragment::Kind;

    #[test]
    fn files_stand_in_order_and_their_bytes_add_up() {
        let fragments = [
            Fragment {
                kind: Kind::Soul,
                text: "Be kind.".to_owned(),
            },
            Fragment {
                kind: Kind::User,
                text: "Ada".to_owned(),
            },
        ];
        let snapshot = render(&fragments);
        assert!(snapshot.text().starts_with("# Agent persona\n\n"));
        assert!(
            snapshot
                .text()
                .ends_with("## SOUL.md\n\nBe kind.\n\n## USER.md\n\nAda")
        );
        let sum: usize = snapshot
            .sections()
            .iter()
            .map(|section| section.bytes)
            .sum();
        assert_eq!(sum, snapshot.text().len());
    }

    #[test]
    fn nothing_to_say_is_empty() {
        assert!(render(&[]).text().is_empty());
    }
}
