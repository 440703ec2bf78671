//! A bounded copy of a document of rules: its head, the lines of its middle that order something, its tail.

use crate::context::budget::bare;

/// Cuts `text` to `budget` Unicode scalar values, `unread` bytes of it left out already.
///
/// Of a text over the budget a half goes to its head, a quarter to its tail, and the rest to the
/// lines between them that say what must or must not be done.
pub fn excerpt(text: &str, unread: usize, budget: usize) -> String {
    let text = bare(text);
    let chars = text.chars().count();
    if chars <= budget && unread == 0 {
        return text.to_owned();
    }
    let room = budget.saturating_sub(2 * MARKER_CHARS).min(chars);
    let (head, tail) = (room / 2, room / 4);
    let first: String = text.chars().take(head).collect();
    let last: String = text.chars().skip(chars - tail).collect();
    let between: String = text.chars().skip(head).take(chars - head - tail).collect();
    let mut left = room - head - tail;
    let mut orders = Vec::new();
    // The first and the last piece belong to lines of head and tail.
    let lines: Vec<&str> = between.lines().collect();
    let inner = lines
        .get(1..lines.len().saturating_sub(1))
        .unwrap_or_default();
    for line in inner.iter().filter(|line| is_order(line)) {
        let length = line.chars().count() + 1;
        if length <= left {
            left -= length;
            orders.push(*line);
        }
    }
    let marker = marker(chars - room + left, unread);
    let orders = if orders.is_empty() {
        String::new()
    } else {
        format!("{}\n[… more left out …]\n", orders.join("\n"))
    };
    format!("{first}\n{marker}\n{orders}{last}")
}

/// Whether a line says what must or must not be done.
fn is_order(line: &str) -> bool {
    let lower = line.to_lowercase();
    let mut words = lower.split(|it: char| !it.is_alphanumeric() && it != '\'');
    lower.contains("do not") || words.any(|word| ORDERS.contains(&word))
}

fn marker(missing: usize, unread: usize) -> String {
    let unread = match unread {
        0 => String::new(),
        bytes => format!(" and {bytes} bytes that were not read"),
    };
    format!(
        "[… {missing} characters{unread} left out; of these, lines that order something follow …]"
    )
}

/// Words of lines that a reader must not miss.
const ORDERS: [&str; 10] = [
    "must",
    "never",
    "always",
    "don't",
    "required",
    "forbidden",
    "only",
    "shall",
    "important",
    "policy",
];

/// Room for one marker.
const MARKER_CHARS: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_within_its_budget_stays() {
        assert_eq!(excerpt("a\nb\n\n", 0, 3), "a\nb");
    }

    #[test]
    fn long_text_keeps_head_orders_and_tail() {
        let filler = "nothing to see here, just words\n".repeat(400);
        let text = format!(
            "# Head\n{filler}Never push to main.\n{filler}You MUST sign off.\n{filler}the tail"
        );
        let cut = excerpt(&text, 0, 2000);
        assert!(cut.chars().count() <= 2000, "{}", cut.chars().count());
        assert!(cut.starts_with("# Head\n") && cut.ends_with("the tail"));
        assert!(
            cut.contains("\nNever push to main.\nYou MUST sign off.\n"),
            "{cut}"
        );
        assert!(cut.contains("left out"));
    }

    #[test]
    fn what_was_not_read_is_told_and_borders_are_of_characters() {
        let cut = excerpt(&"\u{1f9ed}".repeat(5000), 7, 1000);
        assert!(cut.chars().count() <= 1000);
        assert!(cut.contains("and 7 bytes that were not read"));
    }
}
