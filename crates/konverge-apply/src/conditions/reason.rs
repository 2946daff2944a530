//! Words that the API server checks.

use std::{borrow::Cow, fmt};

use konverge_core::{error::Classify, reasons};

/// The API server's limit for a reason, in bytes.
const LIMIT: usize = 1024;

/// Why a condition is as it is: one `CamelCase` word for programs, from a fixed list.
///
/// ```
/// use konverge_apply::conditions::Reason;
///
/// // A bad word does not compile.
/// const SYNCED: Reason = Reason::new("ConfigMapSynced");
/// assert_eq!(SYNCED.to_string(), "ConfigMapSynced");
/// assert!(Reason::parse("not a word").is_err());
/// ```
///
/// ```compile_fail
/// use konverge_apply::conditions::Reason;
///
/// const BAD: Reason = Reason::new("not a word");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reason(Cow<'static, str>);

/// No word that the API server takes for a reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no reason: it has to begin with a letter and have letters, digits, '_', ',' and ':', at most 1024")]
pub struct InvalidReason(String);

impl Reason {
    /// A word that is written in the program. For `const`, where a bad one does not compile.
    ///
    /// # Panics
    ///
    /// When a bad word is given at run time; use [`parse`](Self::parse) there.
    pub const fn new(word: &'static str) -> Self {
        assert!(is_reason(word), "a reason is one CamelCase word");
        Self(Cow::Borrowed(word))
    }

    /// A word that is known at run time only.
    pub fn parse(word: &str) -> Result<Self, InvalidReason> {
        if is_reason(word) { Ok(Self(Cow::Owned(word.to_owned()))) } else { Err(InvalidReason(word.to_owned())) }
    }

    /// The reason of an error; `Failed` for one whose reason is no word.
    pub fn of(error: &impl Classify) -> Self {
        let word = error.reason();
        Self(Cow::Borrowed(if is_reason(word) { word } else { reasons::FAILED }))
    }

    /// The word.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// `^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`, the pattern of the API's `Condition`.
const fn is_reason(word: &str) -> bool {
    let bytes = word.as_bytes();
    if bytes.is_empty() || bytes.len() > LIMIT || !bytes[0].is_ascii_alphabetic() {
        return false;
    }
    let mut position = 1;
    while position < bytes.len() {
        let byte = bytes[position];
        let is_word = byte.is_ascii_alphanumeric() || byte == b'_';
        let is_last = position + 1 == bytes.len();
        if !is_word && (is_last || (byte != b',' && byte != b':')) {
            return false;
        }
        position += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_api() {
        for word in ["A", "Ready", "Http404", "a_b", "A:B,C", "A_"] {
            assert!(Reason::parse(word).is_ok(), "{word}");
        }
        for word in ["", "1A", "_A", "A-B", "A B", "A:", "A,", "Ä", "AÄ", &"A".repeat(1025)] {
            assert!(Reason::parse(word).is_err(), "{word}");
        }
    }
}
