//! The dotenv format: what [`format()`] writes, [`parse()`] and the stock client's parser read back byte for byte.
//!
//! ```text
//! # a comment
//! export PLAIN=value            # bare, up to the first blank
//! LITERAL='no $escapes here'
//! ESCAPED="a \"quoted\" word, a \$ and a \n newline"
//! JOINED=${PLAIN}/suffix        # refers to an earlier line, never to the process environment
//! ```
//! Pure: neither function reads or writes anything.

use konverge_core::SecretValue;
use zeroize::Zeroizing;

mod parse;

pub use parse::{Parsed, Problem, parse};

/// One assignment.
pub struct Entry {
    /// Left of the equals sign.
    pub key: String,
    /// Right of it, unquoted.
    pub value: SecretValue,
}

/// A value that the format cannot hold. Names the key only.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The key has characters that no dotenv parser accepts.
    #[error("key {key:?} cannot be written in dotenv format: only letters, digits and \"_\", \".\", \"-\" can")]
    Key {
        /// The key.
        key: String,
    },
    /// The value is not text.
    #[error("the value of {key:?} is not UTF-8 text and cannot be written in dotenv format")]
    NotText {
        /// The key.
        key: String,
    },
}

/// Writes one line per value, in the given order, without a newline at the end. Values that a parser would change are
/// quoted, all others stand as they are.
pub fn format<'a>(values: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Result<Zeroizing<String>, FormatError> {
    let values: Vec<_> = values.into_iter().collect();
    // At most each byte is escaped; a buffer that never grows leaves no copies of values behind.
    let capacity = values.iter().map(|(key, value)| key.len() + 2 * value.len() + 4).sum();
    let mut text = Zeroizing::new(String::with_capacity(capacity));
    for (index, (key, value)) in values.into_iter().enumerate() {
        if !is_key(key) {
            return Err(FormatError::Key { key: key.to_owned() });
        }
        let value = std::str::from_utf8(value).map_err(|_| FormatError::NotText { key: key.to_owned() })?;
        if index > 0 {
            text.push('\n');
        }
        text.push_str(key);
        text.push('=');
        if value.chars().all(is_plain) {
            text.push_str(value);
        } else {
            quote(value, &mut text);
        }
    }
    Ok(text)
}

fn quote(value: &str, text: &mut String) {
    text.push('"');
    for character in value.chars() {
        match character {
            '\\' | '"' | '$' => {
                text.push('\\');
                text.push(character);
            }
            '\n' => text.push_str("\\n"),
            _ => text.push(character),
        }
    }
    text.push('"');
}

/// Characters that need no quotes in any dotenv dialect.
fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_-./:@%+,=~^".contains(character)
}

fn is_key_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_.-".contains(character)
}

fn is_key(key: &str) -> bool {
    !key.is_empty() && key.chars().all(is_key_character)
}

#[cfg(test)]
mod tests;
