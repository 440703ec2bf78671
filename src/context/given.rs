//! What a client gives as context: one text, or sections with names.

use std::fmt;
use std::sync::Arc;

use crate::context::account::{Carrier, Source, Treatment, Why};
use crate::context::budget::bare;
use crate::context::compose::Prepared;
use crate::context::reference::Reference;
use crate::context::snapshot::{Section, Snapshot};
use crate::context::wish::Wish;

/// A context in the client's own words: nothing is added to them, nothing is cut.
#[derive(Clone, PartialEq, Eq)]
pub struct Given {
    parts: Vec<Part>,
    /// It came as one text: then it is the whole context.
    is_text: bool,
}

/// One named text.
#[derive(Clone, PartialEq, Eq)]
pub struct Part {
    /// What the client calls it.
    pub name: String,
    /// The text.
    pub text: String,
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text is private: a log must not hold it.
        f.debug_struct("Part")
            .field("name", &self.name)
            .field("bytes", &self.text.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Given")
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}

impl Given {
    /// Takes one text.
    pub fn of_text(text: String) -> Self {
        let name = "text".to_owned();
        Self {
            parts: vec![Part { name, text }],
            is_text: true,
        }
    }

    /// Takes sections: persona, skills and memory first, the others behind them as they came.
    pub fn of_sections(mut parts: Vec<Part>) -> Self {
        parts.sort_by_key(|part| rank(&part.name));
        Self {
            parts,
            is_text: false,
        }
    }

    /// The client's texts, and the configured `guidance` where it says nothing of the memory itself.
    fn parts<'a>(&'a self, guidance: &'a str) -> Vec<(&'a str, String)> {
        let own = self.parts.iter();
        let own = own.map(|part| (part.name.as_str(), part.text.clone()));
        let mut parts: Vec<_> = own.filter(|(_, text)| !text.is_empty()).collect();
        let guidance = bare(guidance);
        let has_memory = self.parts.iter().any(|part| part.name == MEMORY);
        if !self.is_text && !has_memory && !guidance.trim().is_empty() {
            let behind = |(name, _): &(&str, String)| rank(name) > rank(MEMORY);
            let at = parts.iter().position(behind).unwrap_or(parts.len());
            parts.insert(at, ("memory guidance", format!("# Memory\n\n{guidance}")));
        }
        parts
    }
}

/// Puts a client's context together for a turn. `guidance` is the configured word on the memory.
pub fn compose_given(given: &Given, guidance: &str, wish: &Wish) -> Prepared {
    let mut text = String::new();
    let mut sections = Vec::new();
    let mut account = Vec::new();
    let mut add = |name: &str, part: &str| {
        let before = text.len();
        if before > 0 {
            text.push_str("\n\n");
        }
        text.push_str(part);
        let bytes = text.len() - before;
        let name = name.to_owned();
        sections.push(Section { name, bytes });
        bytes
    };
    if let Some(opening) = wish.kind.opening() {
        add("turn kind", opening);
    }
    let is_shown = wish.kind.has_workspace();
    for (name, part) in given.parts(guidance) {
        let injected_bytes = if is_shown { add(name, &part) } else { 0 };
        account.push(Source {
            path: name.to_owned(),
            carrier: Carrier::Context,
            raw_bytes: part.len(),
            injected_bytes,
            treatment: shown(is_shown),
        });
    }
    if let Some(closing) = wish.kind.closing().filter(|_| !wish.is_shared) {
        add("turn kind", closing);
    }
    Prepared {
        snapshot: Arc::new(Snapshot::new(text, sections)),
        references: Vec::new(),
        account,
        warnings: Vec::new(),
    }
}

/// Puts the client's references in the place of all others.
pub fn replace_references(prepared: &mut Prepared, references: &[Reference], wish: &Wish) {
    let is_shown = wish.kind.has_workspace();
    prepared
        .account
        .retain(|source| source.carrier != Carrier::Reference);
    let sources = references.iter().map(|reference| Source {
        path: reference.path.clone(),
        carrier: Carrier::Reference,
        raw_bytes: reference.raw_bytes,
        injected_bytes: if is_shown { reference.text.len() } else { 0 },
        treatment: shown(is_shown),
    });
    prepared.account.extend(sources);
    prepared.references = if is_shown {
        references.to_vec()
    } else {
        Vec::new()
    };
}

fn shown(is_shown: bool) -> Treatment {
    if is_shown {
        Treatment::Whole
    } else {
        Treatment::LeftOut(Why::Kind)
    }
}

/// The order of the sections that have a place of their own.
fn rank(name: &str) -> usize {
    let known = ["persona", "skills", MEMORY];
    let place = known.iter().position(|known| *known == name);
    place.unwrap_or(known.len())
}

/// The section that stands for the configured word on the memory.
const MEMORY: &str = "memory";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::turn_kind::TurnKind;

    fn sections(pairs: &[(&str, &str)]) -> Given {
        let part = |(name, text): &(&str, &str)| Part {
            name: (*name).to_owned(),
            text: (*text).to_owned(),
        };
        Given::of_sections(pairs.iter().map(part).collect())
    }

    fn text(given: &Given, guidance: &str, kind: TurnKind) -> String {
        let wish = Wish {
            kind,
            ..Wish::default()
        };
        let prepared = compose_given(given, guidance, &wish);
        let bytes: usize = prepared.snapshot.sections().iter().map(|it| it.bytes).sum();
        assert_eq!(bytes, prepared.snapshot.text().len());
        prepared.snapshot.text().to_owned()
    }

    #[test]
    fn sections_have_their_order_and_one_blank_line_between_them() {
        let given = sections(&[
            ("notes", "n"),
            ("memory", "m"),
            ("empty", ""),
            ("a", "a"),
            ("skills", "s"),
            ("persona", "p"),
        ]);
        let user = TurnKind::User;
        assert_eq!(text(&given, "configured", user), "p\n\ns\n\nm\n\nn\n\na");
        let given = sections(&[("notes", "n"), ("persona", "p\n")]);
        assert_eq!(text(&given, " \n", user), "p\n\n\nn");
        assert_eq!(text(&given, "look", user), "p\n\n\n# Memory\n\nlook\n\nn");
    }

    #[test]
    fn text_is_the_whole_context_but_for_the_kind_of_the_turn() {
        let given = Given::of_text(" caf\u{e9} ".to_owned());
        assert_eq!(text(&given, "look", TurnKind::User), " caf\u{e9} ");
        assert!(text(&given, "", TurnKind::Cron).starts_with("# Scheduled job\n\n"));
        assert!(text(&given, "", TurnKind::Heartbeat).starts_with(" caf\u{e9} \n\n# Heartbeat"));
        assert!(!text(&given, "", TurnKind::CronLightweight).contains("caf"));
        let empty = Given::of_text(String::new());
        assert_eq!(text(&empty, "look", TurnKind::User), "");
    }

    #[test]
    fn references_of_the_client_stand_for_all_others() {
        let mut prepared = Prepared::nothing();
        prepared.references = vec![Reference::new("/w", "BOOTSTRAP.md".to_owned(), "b")];
        let own = [Reference::named("notes".to_owned(), "n")];
        replace_references(&mut prepared, &own, &Wish::default());
        assert_eq!(prepared.references, own);
        let wish = Wish {
            kind: TurnKind::CronLightweight,
            ..Wish::default()
        };
        replace_references(&mut prepared, &own, &wish);
        assert!(prepared.references.is_empty());
        assert_eq!(prepared.account.len(), 1);
    }
}
