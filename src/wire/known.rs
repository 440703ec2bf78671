//! Members that were found once, so that asking for one of them again reads nothing.

use std::ops::Range;

use crate::wire::scan::{self, Members, each_called};

/// A name that is looked for in an object, and those that are looked for in its value.
#[derive(Debug, PartialEq, Eq)]
pub struct Sought {
    name: &'static str,
    within: &'static [Self],
}

impl Sought {
    /// Looks for `name`, and in its value for what is `within`.
    pub const fn new(name: &'static str, within: &'static [Self]) -> Self {
        Self { name, within }
    }

    /// Looks for `name` alone.
    pub const fn leaf(name: &'static str) -> Self {
        Self::new(name, &[])
    }
}

/// A value, and where in it those members are that were looked for.
///
/// Objects may be as long as a line: each is read once, whatever is asked of it afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    range: Range<usize>,
    sought: &'static [Sought],
    /// The last copy of each of `sought`, in its order; short where nothing can be found.
    found: Vec<Option<Self>>,
}

impl Known {
    /// Looks for `sought` in the value at `range`, in which there may be no object.
    pub fn read(text: &[u8], range: Range<usize>, sought: &'static [Sought]) -> Self {
        let mut last = vec![None; sought.len()];
        let is_read = sought.is_empty() || note_members(text, &range, sought, &mut last).is_some();
        let inner = last.into_iter().zip(sought);
        let found = inner.map(|(range, sought)| Some(Self::read(text, range?, sought.within)));
        Self {
            range,
            sought,
            found: found.filter(|_| is_read).collect(),
        }
    }

    /// A value in which nothing was looked for yet.
    pub fn bare(range: Range<usize>) -> Self {
        Self {
            range,
            sought: &[],
            found: Vec::new(),
        }
    }
}

/// Notes the last copy of each member of the object at `range` that is sought; none where it can't be
/// read to its end.
fn note_members(
    text: &[u8],
    range: &Range<usize>,
    sought: &[Sought],
    last: &mut [Option<Range<usize>>],
) -> Option<()> {
    let mut members = Members::at(text, range.start).ok()?;
    let names = sought.iter().map(|sought| sought.name);
    let note = |at, value| {
        if let Some(slot) = last.get_mut(at) {
            *slot = Some(value);
        }
    };
    each_called(text, &mut members, &names, note).ok()
}

/// Where a value stands, and how its members are found.
pub trait Place {
    /// Where it stands.
    fn range(&self) -> Range<usize>;

    /// The member that `path` leads to, last copies taken.
    fn member(&self, text: &[u8], path: &[&str]) -> Option<Range<usize>>;
}

impl Place for Range<usize> {
    fn range(&self) -> Range<usize> {
        self.clone()
    }

    fn member(&self, text: &[u8], path: &[&str]) -> Option<Range<usize>> {
        path.iter().try_fold(self.clone(), |range, name| {
            let [found] = scan::find(text, range.start, [*name]).ok()?;
            found.last
        })
    }
}

impl Place for Known {
    fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    fn member(&self, text: &[u8], path: &[&str]) -> Option<Range<usize>> {
        let Some((name, rest)) = path.split_first() else {
            return Some(self.range());
        };
        match self.sought.iter().position(|sought| sought.name == *name) {
            Some(at) => self.found.get(at)?.as_ref()?.member(text, rest),
            None => self.range.member(text, path),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    static SOUGHT: [Sought; 2] = [
        Sought::new("a", &[Sought::new("b", &[Sought::leaf("c")])]),
        Sought::leaf("d"),
    ];

    const PATHS: [&[&str]; 8] = [
        &[],
        &["a"],
        &["a", "b"],
        &["a", "b", "c"],
        &["a", "b", "c", "d"],
        &["a", "x"],
        &["d", "a"],
        &["x", "a"],
    ];

    fn value() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![Just("1".to_owned()), Just("\"{\\\"a\\\":2}\"".to_owned())];
        leaf.prop_recursive(4, 40, 5, |inner| {
            let key = prop_oneof![Just("a"), Just("b"), Just("c"), Just("\\u0064"), Just("x")];
            let member = (key, inner).prop_map(|(key, value)| format!("\"{key}\": {value}"));
            let members = proptest::collection::vec(member, 0..5);
            members.prop_map(|members| format!("{{{}}}", members.join(",")))
        })
    }

    proptest! {
        #[test]
        fn what_is_known_is_what_a_scan_finds(text in value()) {
            let whole = 0..text.len();
            let known = Known::read(text.as_bytes(), whole.clone(), &SOUGHT);
            for path in PATHS {
                let scanned = whole.member(text.as_bytes(), path);
                prop_assert_eq!(known.member(text.as_bytes(), path), scanned, "{:?}", path);
            }
        }
    }
}
