//! Values that must not be printed.

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::base::ids::hex;

/// A secret word: no `Display`, `Debug` hides it, and its memory is cleared when it is dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Keeps a word that somebody else has chosen.
    pub fn new(word: String) -> Self {
        Self(Zeroizing::new(word))
    }

    /// Writes 256 random bits as hexadecimal: 64 characters that are safe in a path and in JSON.
    pub fn from_random(bits: [u8; 32]) -> Self {
        Self(Zeroizing::new(hex(&bits)))
    }

    /// The word itself. Only for the wire, never for a log.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Compares in a time that depends on the lengths alone.
    pub fn matches(&self, other: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(other).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(<redacted>)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_hides_the_word_and_only_the_whole_word_matches() {
        let secret = Secret::from_random([0xAB; 32]);
        assert_eq!(format!("{secret:?}"), "Secret(<redacted>)");
        assert!(secret.matches("ab".repeat(32).as_bytes()));
        assert!(!secret.matches("ab".repeat(31).as_bytes()));
        assert!(!secret.matches("aB".repeat(32).as_bytes()));
    }
}
