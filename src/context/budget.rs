//! Budgets that shape the files before the context as a whole is measured.

use crate::base::limits::{FILE_BUDGET_CHARS, TOTAL_BUDGET_CHARS, USER_BUDGET_CHARS};
use crate::context::fragment::{Fragment, Kind};

/// Budgets in Unicode scalar values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// One file.
    pub file_chars: usize,
    /// USER.md.
    pub user_chars: usize,
    /// All files together.
    pub total_chars: usize,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            file_chars: FILE_BUDGET_CHARS,
            user_chars: USER_BUDGET_CHARS,
            total_chars: TOTAL_BUDGET_CHARS,
        }
    }
}

/// A file that was cut or left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The file.
    pub file: &'static str,
    /// Its own length in Unicode scalar values.
    pub chars: usize,
    /// How many of them were kept.
    pub kept: usize,
}

/// Shapes `fragments` to `budgets`; blank ones are dropped, the cuts are told.
pub fn shape(fragments: Vec<Fragment>, budgets: Budgets) -> (Vec<Fragment>, Vec<Cut>) {
    let mut left = budgets.total_chars;
    let mut shaped = Vec::with_capacity(fragments.len());
    let mut cuts = Vec::new();
    for fragment in fragments {
        let text = fragment.text.trim_end();
        if text.trim_start().is_empty() {
            continue;
        }
        let own = match fragment.kind {
            Kind::User => budgets.user_chars.min(budgets.file_chars),
            Kind::Soul | Kind::Identity => budgets.file_chars,
        };
        let chars = text.chars().count();
        let budget = own.min(left);
        let (text, kept) = if chars <= budget {
            (text.to_owned(), chars)
        } else {
            cut(text, chars, budget)
        };
        if kept < chars {
            let file = fragment.kind.file_name();
            cuts.push(Cut { file, chars, kept });
        }
        left = left.saturating_sub(text.chars().count());
        if kept > 0 {
            let kind = fragment.kind;
            shaped.push(Fragment { kind, text });
        }
    }
    (shaped, cuts)
}

/// Keeps the head and the tail of `text` and says between them how much is missing.
fn cut(text: &str, chars: usize, budget: usize) -> (String, usize) {
    let longest = marker(chars);
    let room = budget.saturating_sub(longest.chars().count());
    if room == 0 {
        return (String::new(), 0);
    }
    let head = room - room / 4;
    let tail = room / 4;
    let mut out: String = text.chars().take(head).collect();
    out.push_str(&marker(chars - room));
    out.extend(text.chars().skip(chars - tail));
    (out, room)
}

fn marker(missing: usize) -> String {
    format!("\n[… {missing} characters left out …]\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soul(text: String) -> Vec<Fragment> {
        let kind = Kind::Soul;
        vec![Fragment { kind, text }]
    }

    #[test]
    fn file_at_its_budget_stays_and_one_above_is_cut_at_char_borders() {
        let budgets = Budgets {
            file_chars: 100,
            ..Budgets::default()
        };
        let (whole, cuts) = shape(soul("é".repeat(100)), budgets);
        assert_eq!((whole[0].text.chars().count(), cuts), (100, vec![]));
        let (shaped, cuts) = shape(soul("é".repeat(101)), budgets);
        assert!(shaped[0].text.chars().count() <= 100);
        assert_eq!(cuts[0].chars, 101);
        let left_out = format!("{} characters left out", 101 - cuts[0].kept);
        assert!(shaped[0].text.contains(&left_out), "{}", shaped[0].text);
    }

    #[test]
    fn user_file_has_its_own_budget_and_the_total_holds() {
        let fragments = Kind::ALL.map(|kind| Fragment {
            kind,
            text: "x".repeat(6000),
        });
        let budgets = Budgets {
            total_chars: 10_000,
            ..Budgets::default()
        };
        let (shaped, cuts) = shape(fragments.to_vec(), budgets);
        let total: usize = shaped.iter().map(|f| f.text.chars().count()).sum();
        assert!(total <= 10_000, "{total}");
        assert_eq!(
            cuts.iter().map(|c| c.file).collect::<Vec<_>>(),
            ["IDENTITY.md", "USER.md"]
        );
        let (shaped, _) = shape(fragments.to_vec(), Budgets::default());
        assert!(shaped[2].text.chars().count() <= 4000);
    }

    #[test]
    fn blank_files_are_dropped() {
        assert_eq!(
            shape(soul(" \n\t".to_owned()), Budgets::default()),
            (vec![], vec![])
        );
    }
}
