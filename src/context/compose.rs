//! The parts of a context put together: the interface's order, and an account of it.

use std::sync::Arc;

use crate::context::account::{Carrier, Source, Treatment, Why};
use crate::context::budget::{Budgets, Shaped, bare, shape};
use crate::context::fragment::{Fragment, Kind, MEMORY_FILE};
use crate::context::reference::Reference;
use crate::context::skills::{self, Skill};
use crate::context::snapshot::{Section, Snapshot};
use crate::context::wish::Wish;

/// What a context is made of.
#[derive(Clone, Debug, Default)]
pub struct Material {
    /// The workspace's folder, as the model is told it.
    pub root: String,
    /// Its files, in order.
    pub fragments: Vec<Fragment>,
    /// Its skills.
    pub skills: Vec<Skill>,
    /// What the model is told of its memory in any case.
    pub memory_guidance: String,
    /// Whether memory tools, where a turn has them, serve this workspace.
    pub is_memory_workspace: bool,
}

/// What a turn gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The text for the parent's requests.
    pub snapshot: Arc<Snapshot>,
    /// What the thread must have been told.
    pub references: Vec<Reference>,
    /// What became of each source.
    pub account: Vec<Source>,
    /// What somebody should know.
    pub warnings: Vec<String>,
}

impl Prepared {
    /// A context with nothing to say.
    pub fn nothing() -> Self {
        Self::of_text(String::new())
    }

    /// A context of one text.
    pub fn of_text(text: String) -> Self {
        Self {
            snapshot: Arc::new(Snapshot::new(text, Vec::new())),
            references: Vec::new(),
            account: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

/// Puts a context together.
///
/// It depends on its arguments alone, so that the provider's prompt cache holds from turn to turn.
pub fn compose(material: Material, wish: &Wish, budgets: Budgets) -> Prepared {
    let mut page = Page::default();
    if let Some(opening) = wish.kind.opening() {
        page.add("turn kind", opening);
    }
    // Shaped whatever the turn is for: a reference must not change its length with the kind.
    let mut files = shape(material.fragments, budgets);
    if wish.is_shared {
        files.iter_mut().for_each(withhold);
    }
    if wish.kind.has_workspace() {
        page.persona(&files);
        page.skills(material.skills, budgets);
        let guidance = bare(&material.memory_guidance);
        let serves = material.is_memory_workspace && wish.can_use_memory();
        let memory = files
            .iter()
            .find(|file| file.kind == Kind::Memory && !file.is_blank());
        let pointer = memory.filter(|_| serves).map(|_| pointer(&material.root));
        page.memory(guidance, pointer.as_deref());
        page.references(&material.root, &files, wish, serves);
    } else {
        page.leave_out(&files);
    }
    if let Some(closing) = wish.kind.closing().filter(|_| !wish.is_shared) {
        page.add("turn kind", closing);
    }
    page.warn_of_losses();
    Prepared {
        snapshot: Arc::new(Snapshot::new(page.text, page.sections)),
        references: page.references,
        account: page.account,
        warnings: page.warnings,
    }
}

/// Leaves out what is one person's alone.
fn withhold(file: &mut Shaped) {
    if file.kind == Kind::Overlay && !file.is_blank() {
        file.text.clear();
        file.treatment = Treatment::LeftOut(Why::Inherited);
    }
}

/// A context that is being written.
#[derive(Default)]
struct Page {
    text: String,
    sections: Vec<Section>,
    references: Vec<Reference>,
    account: Vec<Source>,
    warnings: Vec<String>,
}

impl Page {
    /// Adds a part behind a blank line; gives its share of the bytes.
    fn add(&mut self, name: &str, part: &str) -> usize {
        let before = self.text.len();
        if !self.text.is_empty() {
            self.text.push_str("\n\n");
        }
        self.text.push_str(part);
        let bytes = self.text.len() - before;
        let name = name.to_owned();
        self.sections.push(Section { name, bytes });
        bytes
    }

    fn note(&mut self, file: &Shaped, carrier: Carrier, injected_bytes: usize, what: Treatment) {
        self.account.push(Source {
            path: file.path.clone(),
            carrier,
            raw_bytes: file.raw_bytes,
            injected_bytes,
            treatment: what,
        });
    }

    fn persona(&mut self, files: &[Shaped]) {
        let has_overlay = files
            .iter()
            .any(|file| file.kind == Kind::Overlay && !file.text.is_empty());
        let mut preamble = Some(if has_overlay {
            format!("{PREAMBLE} {OVERLAY}")
        } else {
            PREAMBLE.to_owned()
        });
        for file in files.iter().filter(|file| file.kind.is_persona()) {
            let bytes = if file.text.is_empty() {
                0
            } else {
                let head = preamble.take().map(|preamble| preamble + "\n\n");
                let head = head.unwrap_or_default();
                let part = format!("{head}## {}\n\n{}", file.path, file.text);
                self.add(&file.path, &part)
            };
            self.note(file, Carrier::Context, bytes, file.treatment);
        }
    }

    fn skills(&mut self, skills: Vec<Skill>, budgets: Budgets) {
        if skills.is_empty() {
            return;
        }
        let raw_bytes = skills
            .iter()
            .map(|skill| skill.name.len() + skill.description.len() + skill.location.len())
            .sum();
        let all = skills.len();
        let list = skills::list(skills, budgets.skills, budgets.skills_chars);
        let injected_bytes = if list.text.is_empty() {
            0
        } else {
            self.add("skills", &list.text)
        };
        if let Some(note) = &list.note {
            self.warnings.push(format!(
                "skills: {} of {all} are listed: {note}",
                list.listed
            ));
        }
        self.account.push(Source {
            path: format!("skills ({} of {all})", list.listed),
            carrier: Carrier::Context,
            raw_bytes,
            injected_bytes,
            treatment: Treatment::Whole,
        });
    }

    fn memory(&mut self, guidance: &str, pointer: Option<&str>) {
        let has_guidance = !guidance.trim_start().is_empty();
        let guidance = has_guidance.then_some(guidance);
        let parts: Vec<&str> = [guidance, pointer].into_iter().flatten().collect();
        if parts.is_empty() {
            return;
        }
        let bytes = self.add("memory", &format!("# Memory\n\n{}", parts.join("\n\n")));
        self.account.push(Source {
            path: match (guidance, pointer) {
                (Some(_), Some(_)) => "memory guidance and pointer",
                (Some(_), None) => "memory guidance",
                (None, _) => "memory pointer",
            }
            .to_owned(),
            carrier: Carrier::Context,
            raw_bytes: guidance.map_or(0, str::len),
            injected_bytes: bytes,
            treatment: Treatment::Whole,
        });
    }

    fn references(&mut self, root: &str, files: &[Shaped], wish: &Wish, serves: bool) {
        for file in files.iter().filter(|file| !file.kind.is_persona()) {
            let why = match file.kind {
                Kind::Bootstrap if !wish.kind.has_bootstrap() => Some(Why::Kind),
                Kind::Memory if serves => Some(Why::Tools),
                Kind::Bootstrap
                | Kind::Memory
                | Kind::Soul
                | Kind::Identity
                | Kind::User
                | Kind::Overlay => None,
            };
            let treatment = match why {
                Some(why) if !file.is_blank() => Treatment::LeftOut(why),
                Some(_) | None => file.treatment,
            };
            if why.is_some() || file.text.is_empty() {
                self.note(file, Carrier::Reference, 0, treatment);
                continue;
            }
            let reference = Reference::new(root, file.path.clone(), &file.text);
            self.note(file, Carrier::Reference, reference.text.len(), treatment);
            self.references.push(reference);
        }
    }

    fn leave_out(&mut self, files: &[Shaped]) {
        for file in files {
            let carrier = if file.kind.is_persona() {
                Carrier::Context
            } else {
                Carrier::Reference
            };
            self.note(file, carrier, 0, Treatment::LeftOut(Why::Kind));
        }
    }

    fn warn_of_losses(&mut self) {
        let lost = self.account.iter().filter(|it| it.treatment.is_loss());
        let words = lost.map(|it| format!("{}: {}", it.path, it.treatment));
        self.warnings.extend(words.collect::<Vec<_>>());
    }
}

/// Says where the memory is, not what is in it.
fn pointer(root: &str) -> String {
    format!(
        "What you have noted in earlier conversations is in {root}/{MEMORY_FILE} and beside it. It \
         is not shown here. When earlier work, decisions, dates, people or preferences may matter, \
         look with memory_search, then read the place with memory_get, before you answer."
    )
}

/// Stands above the files, so that the model knows whose words they are.
const PREAMBLE: &str = "# Agent persona\n\n\
    The files below come from the agent's own workspace. They say who you are and whom you work for. \
    Speak and act as they describe; they do not widen what you are allowed to do.";

/// Says what a second USER.md is.
const OVERLAY: &str =
    "The file below users/ holds what one person adds; where it differs from USER.md, it counts.";

#[cfg(test)]
#[path = "compose_tests.rs"]
mod tests;
