//! The list of skills: names, descriptions and places, never the bodies.

use std::fmt::Write as _;

/// A skill that the model may use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// The absolute path of its SKILL.md.
    pub location: String,
    /// When to use it.
    pub description: String,
}

/// A list of skills within its budgets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// The section, with the note if anything was left out; empty without skills.
    pub text: String,
    /// What was left out, for a person.
    pub note: Option<String>,
    /// How many skills are listed.
    pub listed: usize,
}

/// Lists `skills` by name, within `most` entries and `chars` Unicode scalar values.
///
/// Where they don't fit, descriptions are shortened to the longest length that does, then left out,
/// and only then skills.
pub fn list(mut skills: Vec<Skill>, most: usize, chars: usize) -> List {
    if skills.is_empty() {
        return List::default();
    }
    skills.sort();
    let all = skills.len();
    skills.truncate(most);
    let fits = |count: usize, description: usize| {
        let shown = skills.get(..count).unwrap_or_default();
        let note = note(all - count, is_shorter(shown, description), description);
        let text = section(shown, description, note.as_deref());
        (text.chars().count() <= chars).then_some(List {
            text,
            note,
            listed: count,
        })
    };
    let count = skills.len();
    fits(count, usize::MAX)
        .or_else(|| {
            let length = longest(DESCRIPTION_CHARS, |length| fits(count, length).is_some())?;
            fits(count, length)
        })
        .or_else(|| fits(count, 0))
        .or_else(|| {
            let count = longest((1, count), |count| fits(count, 0).is_some())?;
            fits(count, 0)
        })
        .unwrap_or_else(|| List {
            // Not even one fits: a heading above nothing would only confuse.
            note: note(all, false, 0),
            ..List::default()
        })
}

/// The largest number within a range that `fits`, which holds for all below it.
fn longest((mut low, mut high): (usize, usize), fits: impl Fn(usize) -> bool) -> Option<usize> {
    let mut best = None;
    while low <= high {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            best = Some(middle);
            low = middle + 1;
        } else {
            high = middle.checked_sub(1)?;
        }
    }
    best
}

fn is_shorter(skills: &[Skill], description: usize) -> bool {
    skills
        .iter()
        .any(|skill| skill.description.chars().nth(description).is_some())
}

fn note(missing: usize, is_shorter: bool, description: usize) -> Option<String> {
    let shorter = match (is_shorter, description) {
        (false, _) => None,
        (true, 0) => Some("Descriptions are left out".to_owned()),
        (true, length) => Some(format!("Descriptions are cut to {length} characters")),
    };
    let missing = (missing > 0).then(|| format!("{missing} more skills are not listed"));
    let parts: Vec<String> = [shorter, missing].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("{} to keep this list short.", parts.join(", and ")))
}

fn section(skills: &[Skill], description: usize, note: Option<&str>) -> String {
    let mut text = PREAMBLE.to_owned();
    if let Some(note) = note {
        text.push_str("\n\n");
        text.push_str(note);
    }
    text.push_str("\n\n<available_skills>");
    for skill in skills {
        let _ = write!(text, "\n<skill>\n<name>{}</name>", escaped(&skill.name));
        let shown = shortened(&skill.description, description);
        if !shown.is_empty() {
            let _ = write!(text, "\n<description>{}</description>", escaped(&shown));
        }
        let location = escaped(&skill.location);
        let _ = write!(text, "\n<location>{location}</location>\n</skill>");
    }
    text.push_str("\n</available_skills>");
    text
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().nth(most).is_none() {
        return text.to_owned();
    }
    let Some(most) = most.checked_sub(1) else {
        return String::new();
    };
    let head: String = text.chars().take(most).collect();
    format!("{}…", head.trim_end())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Lengths that descriptions are cut to before they are left out.
const DESCRIPTION_CHARS: (usize, usize) = (4, 220);

const PREAMBLE: &str = "# Skills\n\n\
    Each skill below is a folder with instructions for one kind of task. When a task matches a \
    description, read the file at its location before you begin, and follow it. Relative paths in a \
    skill start from its folder.";

#[cfg(test)]
mod tests {
    use super::*;

    fn skills(count: usize, description: &str) -> Vec<Skill> {
        let skill = |index: usize| Skill {
            name: format!("skill-{index:03}"),
            description: description.to_owned(),
            location: format!("/w/skills/skill-{index:03}/SKILL.md"),
        };
        (0..count).rev().map(skill).collect()
    }

    #[test]
    fn list_is_sorted_and_escaped() {
        let mut two = skills(2, "a <b> & c");
        two[0].name = "<z>".to_owned();
        let list = list(two, 150, 18_000);
        assert_eq!(list.note, None);
        assert!(
            list.text.ends_with(
                "<available_skills>\n<skill>\n<name>&lt;z&gt;</name>\n\
                 <description>a &lt;b&gt; &amp; c</description>\n\
                 <location>/w/skills/skill-001/SKILL.md</location>\n</skill>\n<skill>\n\
                 <name>skill-000</name>\n<description>a &lt;b&gt; &amp; c</description>\n\
                 <location>/w/skills/skill-000/SKILL.md</location>\n</skill>\n</available_skills>"
            ),
            "{}",
            list.text
        );
        assert_eq!(super::list(Vec::new(), 150, 18_000), List::default());
    }

    #[test]
    fn descriptions_are_shortened_before_skills_are_dropped() {
        let long = "d".repeat(1000);
        let shorter = list(skills(100, &long), 150, 18_000);
        assert_eq!(shorter.listed, 100);
        let count = shorter.text.chars().count();
        assert!((17_900..=18_000).contains(&count), "{count}");
        assert!(shorter.note.unwrap().starts_with("Descriptions are cut to"));

        let bare = list(skills(150, &long), 150, 15_000);
        assert_eq!(bare.listed, 150);
        assert!(!bare.text.contains("<description>"));

        let fewer = list(skills(400, &long), 150, 5_000);
        assert!((1..150).contains(&fewer.listed), "{}", fewer.listed);
        let missing = format!("{} more skills are not listed", 400 - fewer.listed);
        assert!(fewer.text.contains(&missing), "{}", fewer.text);
        assert!(fewer.text.contains("skill-000"));
    }

    #[test]
    fn number_of_skills_is_bounded_with_a_note() {
        let many = list(skills(400, "d"), 150, 100_000);
        assert_eq!(many.listed, 150);
        assert_eq!(
            many.note.as_deref(),
            Some("250 more skills are not listed to keep this list short.")
        );
        let none = list(skills(3, "d"), 150, 10);
        assert_eq!((none.text.as_str(), none.listed), ("", 0));
        assert!(none.note.is_some());
    }
}
