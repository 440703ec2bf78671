//! The members of a JSON object that comes in parts: the scanner for what is never held whole.
//!
//! It checks what [`scan`](crate::wire::scan) checks, and keeps nothing but the name of a member.

use crate::wire::nesting::Nesting;
use crate::wire::scan::{ScanError, value_end_within};
use crate::wire::strings::skim;

/// Reads on, part by part.
#[derive(Debug)]
pub struct Walk {
    /// How many bytes were read.
    at: usize,
    state: State,
    open: Nesting,
    key: Vec<u8>,
    /// What the next byte of a string or a word must be.
    within: Within,
    /// A container that this part has no end of was found: those within it are read byte by byte.
    is_at_the_end: bool,
}

/// Something at the outermost level, with the byte where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Behind the opening brace.
    Begin(usize),
    /// The name of a member, as it stands between its quotes; cut where it is longer than any name
    /// that is looked for.
    Key(Vec<u8>),
    /// The value of the last key begins.
    Value(usize),
    /// Behind the value.
    ValueEnd(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Start,
    FirstKey,
    Key,
    Colon,
    Value,
    FirstElement,
    AfterValue,
    Text { is_key: bool },
    Word,
    Number,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    Plain,
    Escape,
    /// So many hexadecimal digits are to come.
    Hex(u8),
    /// What is left of `true`, `false` or `null`.
    Rest(&'static [u8]),
    Number(Number),
}

/// The part of a number that was read last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Digits,
    Point,
    Fraction,
    Exponent,
    Sign,
    Power,
}

impl Walk {
    /// Begins in front of the object.
    pub fn new() -> Self {
        Self {
            at: 0,
            state: State::Start,
            open: Nesting::default(),
            key: Vec::new(),
            within: Within::Plain,
            is_at_the_end: false,
        }
    }

    /// Reads `part`, and tells what is in it in order.
    ///
    /// # Errors
    /// Where the bytes so far are not the beginning of a JSON object. There is no going on then.
    pub fn push(&mut self, part: &[u8], told: &mut Vec<Event>) -> Result<(), ScanError> {
        let begin = self.at;
        let mut at = 0;
        self.is_at_the_end = false;
        while let Some(byte) = part.get(at).copied() {
            if let State::Text { is_key } = self.state {
                if self.within == Within::Plain {
                    let end = skim(part, at);
                    if is_key {
                        self.keep(part.get(at..end).unwrap_or_default());
                    }
                    if end > at {
                        at = end;
                        continue;
                    }
                }
                self.at = begin + at;
                self.text(byte, is_key, told)?;
                at += 1;
                continue;
            }
            self.at = begin + at;
            if let Some(end) = self.whole_container(part, at, byte) {
                at = end;
                self.state = State::AfterValue;
                continue;
            }
            // The byte behind a number belongs to what follows.
            if self.step(byte, told)? {
                at += 1;
            }
        }
        self.at = begin + part.len();
        Ok(())
    }

    /// Where the container ends that begins at byte `at` of `part`, if it stands within another one
    /// and all of it is here: such are read at once.
    fn whole_container(&mut self, part: &[u8], at: usize, byte: u8) -> Option<usize> {
        let is_value = matches!(self.state, State::Value | State::FirstElement);
        if !is_value || !matches!(byte, b'{' | b'[') || self.is_outermost() || self.is_at_the_end {
            return None;
        }
        // What is wrong with it, if anything is, is found byte by byte.
        let end = value_end_within(part, at, self.open.within()).ok();
        self.is_at_the_end = end.is_none();
        end
    }

    /// Whether the object is over, and nothing but white space came behind it.
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// How many bytes were read.
    pub fn position(&self) -> usize {
        self.at
    }

    fn fault(&self) -> ScanError {
        ScanError::Syntax { at: self.at }
    }

    fn is_outermost(&self) -> bool {
        self.open.top().is_none()
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = MAX_KEY_BYTES.saturating_sub(self.key.len());
        let taken = bytes.get(..bytes.len().min(room)).unwrap_or_default();
        self.key.extend_from_slice(taken);
    }

    /// Takes a byte of a string that isn't plain, or stands in an escape.
    fn text(&mut self, byte: u8, is_key: bool, told: &mut Vec<Event>) -> Result<(), ScanError> {
        self.within = match (self.within, byte) {
            (Within::Plain, b'"') => {
                if is_key {
                    self.state = State::Colon;
                    if self.is_outermost() {
                        told.push(Event::Key(std::mem::take(&mut self.key)));
                    }
                    self.key.clear();
                } else {
                    self.end_value(self.at + 1, told);
                }
                return Ok(());
            }
            (Within::Plain, b'\\') => Within::Escape,
            (Within::Escape, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                Within::Plain
            }
            (Within::Escape, b'u') => Within::Hex(4),
            (Within::Hex(left), byte) if byte.is_ascii_hexdigit() => match left {
                0 | 1 => Within::Plain,
                more => Within::Hex(more - 1),
            },
            _ => return Err(self.fault()),
        };
        if is_key {
            self.keep(&[byte]);
        }
        Ok(())
    }

    /// Takes a byte outside of strings; whether it is done with it.
    fn step(&mut self, byte: u8, told: &mut Vec<Event>) -> Result<bool, ScanError> {
        let is_space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        match (self.state, byte) {
            (State::Word, _) => self.word(byte, told)?,
            (State::Number, _) => return self.number(byte, told),
            _ if is_space => {}
            (State::Start, b'{') => {
                told.push(Event::Begin(self.at + 1));
                self.state = State::FirstKey;
            }
            (State::Start, _) => return Err(ScanError::NotAnObject { at: self.at }),
            (State::FirstKey | State::Key, b'"') => {
                self.state = State::Text { is_key: true };
                self.within = Within::Plain;
            }
            (State::FirstKey, b'}') | (State::FirstElement, b']') => self.close(told),
            (State::Colon, b':') => self.state = State::Value,
            (State::Value | State::FirstElement, _) => self.begin_value(byte, told)?,
            (State::AfterValue, _) => match (self.open.top(), byte) {
                (Some(true) | None, b',') => self.state = State::Key,
                (Some(false), b',') => self.state = State::Value,
                (Some(true) | None, b'}') | (Some(false), b']') => self.close(told),
                _ => return Err(self.fault()),
            },
            _ => return Err(self.fault()),
        }
        Ok(true)
    }

    fn begin_value(&mut self, byte: u8, told: &mut Vec<Event>) -> Result<(), ScanError> {
        if self.is_outermost() {
            told.push(Event::Value(self.at));
        }
        let word = |rest| (State::Word, Within::Rest(rest));
        let number = |begun| (State::Number, Within::Number(begun));
        (self.state, self.within) = match byte {
            b'{' | b'[' => {
                let object = byte == b'{';
                if !self.open.push(object) {
                    return Err(ScanError::TooDeep { at: self.at });
                }
                let inside = if object {
                    State::FirstKey
                } else {
                    State::FirstElement
                };
                (inside, Within::Plain)
            }
            b'"' => (State::Text { is_key: false }, Within::Plain),
            b't' => word(b"rue"),
            b'f' => word(b"alse"),
            b'n' => word(b"ull"),
            b'-' => number(Number::Minus),
            b'0' => number(Number::Zero),
            b'1'..=b'9' => number(Number::Digits),
            _ => return Err(self.fault()),
        };
        Ok(())
    }

    /// Closes the innermost container, or the object itself.
    fn close(&mut self, told: &mut Vec<Event>) {
        if self.is_outermost() {
            self.state = State::Over;
            return;
        }
        self.open.pop();
        self.end_value(self.at + 1, told);
    }

    fn end_value(&mut self, end: usize, told: &mut Vec<Event>) {
        self.state = State::AfterValue;
        if self.is_outermost() {
            told.push(Event::ValueEnd(end));
        }
    }

    fn word(&mut self, byte: u8, told: &mut Vec<Event>) -> Result<(), ScanError> {
        let Within::Rest([first, rest @ ..]) = self.within else {
            return Err(self.fault());
        };
        if *first != byte {
            return Err(self.fault());
        }
        self.within = Within::Rest(rest);
        if rest.is_empty() {
            self.end_value(self.at + 1, told);
        }
        Ok(())
    }

    fn number(&mut self, byte: u8, told: &mut Vec<Event>) -> Result<bool, ScanError> {
        use Number::{Digits, Exponent, Fraction, Minus, Point, Power, Sign, Zero};
        let Within::Number(part) = self.within else {
            return Err(self.fault());
        };
        let next = match (part, byte) {
            (Minus, b'0') => Zero,
            (Minus, b'1'..=b'9') | (Digits, b'0'..=b'9') => Digits,
            (Zero | Digits, b'.') => Point,
            (Point | Fraction, b'0'..=b'9') => Fraction,
            (Zero | Digits | Fraction, b'e' | b'E') => Exponent,
            (Exponent, b'+' | b'-') => Sign,
            (Exponent | Sign | Power, b'0'..=b'9') => Power,
            (Zero | Digits | Fraction | Power, _) => {
                self.end_value(self.at, told);
                return Ok(false);
            }
            _ => return Err(self.fault()),
        };
        self.within = Within::Number(next);
        Ok(true)
    }
}

impl Default for Walk {
    fn default() -> Self {
        Self::new()
    }
}

/// Longer than every name that is looked for, each of its characters written as an escape.
const MAX_KEY_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::scan::{Members, ends_at};

    /// The members as the scanner for whole texts finds them.
    fn scanned(text: &[u8]) -> Result<Vec<Event>, ScanError> {
        let mut members = Members::at(text, 0)?;
        let mut told = vec![Event::Begin(members.position())];
        while let Some(member) = members.next_member()? {
            told.push(Event::Key(text[member.key].to_vec()));
            told.push(Event::Value(member.value.start));
            told.push(Event::ValueEnd(member.value.end));
        }
        ends_at(text, members.position())?;
        Ok(told)
    }

    fn walked(text: &[u8], cuts: &[usize]) -> Result<Vec<Event>, ScanError> {
        let mut walk = Walk::new();
        let mut told = Vec::new();
        let mut from = 0;
        for cut in cuts.iter().copied().chain([text.len()]) {
            walk.push(&text[from..cut], &mut told)?;
            from = cut;
        }
        let at = walk.position();
        if walk.is_over() {
            return Ok(told);
        }
        Err(ScanError::Syntax { at })
    }

    fn check(text: &[u8], cuts: &[usize]) {
        match (scanned(text), walked(text, cuts)) {
            (Ok(expected), Ok(told)) => assert_eq!(told, expected),
            (Err(_), Err(_)) => {}
            (expected, told) => panic!("{expected:?} {told:?} {}", String::from_utf8_lossy(text)),
        }
    }

    const SAMPLES: [&str; 12] = [
        r#" { "a" : 1e400 ,"b":[{"a":"x\"}"}], "a":"\ud83d", "":{} } "#,
        r#"{"a":-0.5E-7,"b":[],"c":[[],{}],"d":null,"e":true,"f":false,"g":0}"#,
        r#"{"instructions":"x\u00e9","\u0061":{"instructions":[1,2]}}"#,
        "{}",
        "[]",
        r#"{"a":01}"#,
        r#"{"a":1,}"#,
        r#"{"a":tru}"#,
        r#"{"a":"x"#,
        r#"{"a" 1}"#,
        r#"{"a":1} x"#,
        "{\"a\":\"\n\"}",
    ];

    #[test]
    fn parts_tell_what_the_whole_tells_wherever_they_are_cut() {
        for text in SAMPLES {
            let text = text.as_bytes();
            for first in 0..=text.len() {
                for second in first..=text.len() {
                    check(text, &[first, second]);
                }
            }
        }
    }

    #[test]
    fn nesting_has_the_same_bound() {
        for depth in [1000, 1024, 1025] {
            let text = format!("{{\"a\":{}1{}}}", "[".repeat(depth), "]".repeat(depth));
            check(text.as_bytes(), &[7]);
        }
    }

    proptest! {
        #[test]
        fn random_texts_of_json_are_walked_as_they_are_scanned(
            text in r#"\{(["\\{}\[\]:,a01eE.+ntrufls -]|"[a-z]{0,3}":|[0-9]|"x"){0,30}\}?"#,
            cut in any::<prop::sample::Index>(),
        ) {
            let text = text.as_bytes();
            check(text, &[cut.index(text.len() + 1)]);
        }

        #[test]
        fn long_strings_are_walked_as_they_are_scanned(
            text in r#"([a-z]{0,40}(\\[nu"x]|\x00|\\u00e9)?){0,12}"#,
            cut in any::<prop::sample::Index>(),
        ) {
            let text = format!("{{\"input\":[\"{text}\"],\"b\":1}}");
            check(text.as_bytes(), &[cut.index(text.len() + 1)]);
        }
    }
}
