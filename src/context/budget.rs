//! Budgets that shape the files before the context as a whole is measured.

use crate::base::limits::{
    FILE_BUDGET_CHARS, MAX_SKILLS, SKILLS_BUDGET_CHARS, TOTAL_BUDGET_CHARS, USER_BUDGET_CHARS,
};
use crate::context::account::{Treatment, Why};
use crate::context::fragment::{Fragment, Kind};

/// Budgets in Unicode scalar values, but for the number of skills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// One file.
    pub file_chars: usize,
    /// USER.md, and the overlay of a person.
    pub user_chars: usize,
    /// All files together.
    pub total_chars: usize,
    /// Skills that are listed.
    pub skills: usize,
    /// The list of skills.
    pub skills_chars: usize,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            file_chars: FILE_BUDGET_CHARS,
            user_chars: USER_BUDGET_CHARS,
            total_chars: TOTAL_BUDGET_CHARS,
            skills: MAX_SKILLS,
            skills_chars: SKILLS_BUDGET_CHARS,
        }
    }
}

/// A file as it fits its budgets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shaped {
    /// What it is for.
    pub kind: Kind,
    /// Its path below the workspace root.
    pub path: String,
    /// What is left of it; empty where nothing is.
    pub text: String,
    /// How long it was, in bytes.
    pub raw_bytes: usize,
    /// What was done to it.
    pub treatment: Treatment,
}

impl Shaped {
    /// Whether there was nothing in it from the start.
    pub fn is_blank(&self) -> bool {
        self.treatment == Treatment::LeftOut(Why::Blank)
    }
}

/// Shapes `fragments` to `budgets`, in order.
///
/// White space at a file's end and a byte order mark don't count. An overlay is taken whole or not
/// at all: half a preference may say the opposite.
pub fn shape(fragments: Vec<Fragment>, budgets: Budgets) -> Vec<Shaped> {
    let mut left = budgets.total_chars;
    let shape_one = |fragment: Fragment| {
        let text = bare(&fragment.text);
        let own = match fragment.kind {
            Kind::User | Kind::Overlay => budgets.user_chars.min(budgets.file_chars),
            Kind::Soul | Kind::Identity | Kind::Bootstrap | Kind::Memory => budgets.file_chars,
        };
        let chars = text.chars().count();
        let budget = own.min(left);
        let why = if chars > own {
            Why::FileBudget(own)
        } else {
            Why::TotalBudget(budgets.total_chars)
        };
        let (text, treatment) = if text.trim_start().is_empty() {
            (String::new(), Treatment::LeftOut(Why::Blank))
        } else if chars <= budget && fragment.unread_bytes == 0 {
            (text.to_owned(), Treatment::Whole)
        } else if fragment.kind == Kind::Overlay {
            (String::new(), Treatment::LeftOut(why))
        } else {
            let why = if chars <= budget { Why::ReadBound } else { why };
            cut(text, chars, budget, fragment.unread_bytes, why)
        };
        left = left.saturating_sub(text.chars().count());
        Shaped {
            kind: fragment.kind,
            path: fragment.path,
            raw_bytes: fragment.text.len() + fragment.unread_bytes,
            text,
            treatment,
        }
    };
    fragments.into_iter().map(shape_one).collect()
}

/// A text without a byte order mark and without white space at its end.
pub fn bare(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text).trim_end()
}

/// Keeps the head and the tail of `text` and says between them how much is missing.
fn cut(text: &str, chars: usize, budget: usize, unread: usize, why: Why) -> (String, Treatment) {
    let longest = marker(chars, unread);
    let room = budget.saturating_sub(longest.chars().count()).min(chars);
    if room < LEAST_KEPT_CHARS {
        return (String::new(), Treatment::LeftOut(why));
    }
    let head = room - room / 4;
    let tail = room / 4;
    let mut out: String = text.chars().take(head).collect();
    out.push_str(&marker(chars - room, unread));
    out.extend(text.chars().skip(chars - tail));
    let treatment = Treatment::Cut {
        chars,
        kept: room,
        why,
    };
    (out, treatment)
}

/// Fewer characters of a file than these say nothing.
const LEAST_KEPT_CHARS: usize = 16;

fn marker(missing: usize, unread: usize) -> String {
    let unread = match unread {
        0 => String::new(),
        bytes => format!(" and {bytes} bytes that were not read"),
    };
    format!("\n[… {missing} characters{unread} left out …]\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(kind: Kind, text: &str) -> Fragment {
        let path = format!("{kind:?}.md");
        let text = text.into();
        Fragment {
            kind,
            path,
            text,
            unread_bytes: 0,
        }
    }

    fn one(kind: Kind, text: &str, budgets: Budgets) -> Shaped {
        shape(vec![file(kind, text)], budgets).remove(0)
    }

    #[test]
    fn file_at_its_budget_stays_and_one_above_is_cut_at_char_borders() {
        let budgets = Budgets {
            file_chars: 100,
            ..Budgets::default()
        };
        let whole = one(Kind::Soul, &"é".repeat(100), budgets);
        assert_eq!(whole.text.chars().count(), 100);
        assert_eq!(whole.treatment, Treatment::Whole);
        let shaped = one(Kind::Soul, &"\u{1f9ed}".repeat(101), budgets);
        assert!(shaped.text.chars().count() <= 100);
        let Treatment::Cut { chars, kept, why } = shaped.treatment else {
            panic!("{shaped:?}")
        };
        assert_eq!((chars, why), (101, Why::FileBudget(100)));
        let left_out = format!("[… {} characters left out …]", 101 - kept);
        let (head, tail) = shaped.text.split_once(&left_out).unwrap();
        let (head, tail) = (head.chars().count() - 1, tail.chars().count() - 1);
        assert_eq!(head + tail, kept);
        assert_eq!(tail, kept / 4);
    }

    #[test]
    fn user_file_has_its_own_budget_and_the_total_holds() {
        let kinds = [Kind::Soul, Kind::Identity, Kind::User];
        let files = || kinds.map(|kind| file(kind, &"x".repeat(6000))).to_vec();
        let budgets = Budgets {
            total_chars: 10_000,
            ..Budgets::default()
        };
        let shaped = shape(files(), budgets);
        let total: usize = shaped.iter().map(|f| f.text.chars().count()).sum();
        assert!(total <= 10_000, "{total}");
        assert_eq!(shaped[0].treatment, Treatment::Whole);
        assert!(matches!(
            shaped[1].treatment,
            Treatment::Cut {
                why: Why::TotalBudget(10_000),
                ..
            }
        ));
        assert!(matches!(shaped[2].treatment, Treatment::LeftOut(_)));
        let shaped = shape(files(), Budgets::default());
        assert!(shaped[2].text.chars().count() <= 4000);
    }

    #[test]
    fn overlay_is_whole_or_absent() {
        let at = one(Kind::Overlay, &"x".repeat(4000), Budgets::default());
        assert_eq!(at.treatment, Treatment::Whole);
        let above = one(Kind::Overlay, &"x".repeat(4001), Budgets::default());
        assert_eq!(above.text, "");
        assert_eq!(
            above.treatment,
            Treatment::LeftOut(Why::FileBudget(USER_BUDGET_CHARS))
        );
    }

    #[test]
    fn blank_files_are_left_out_and_a_byte_order_mark_goes() {
        let blank = one(Kind::Soul, "\u{feff} \n\t", Budgets::default());
        assert_eq!(blank.treatment, Treatment::LeftOut(Why::Blank));
        let marked = one(Kind::Soul, "\u{feff}a\r\nb\r\n", Budgets::default());
        assert_eq!(
            (marked.text.as_str(), marked.treatment),
            ("a\r\nb", Treatment::Whole)
        );
    }
}
