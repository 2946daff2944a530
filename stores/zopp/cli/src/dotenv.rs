//! The subset of the dotenv format on which its readers agree.
//!
//! [`parse()`], the published command line, shells (`. ./.env`), `node --env-file` and python-dotenv read the output of [`format()`] alike. There is
//! no common escape: they treat a backslash and a dollar sign in double quotes differently, and a shell runs text between backticks. So nothing is
//! escaped, and a value that needs an escape is refused.
//!
//! ```text
//! # a comment
//! export PLAIN=value            # bare, up to the end of the line or a comment
//! LITERAL='no $escapes here'    # over several lines, too
//! APOSTROPHE="it's"
//! ```
//! Pure: neither function reads or writes anything.

use konverge_core::SecretValue;
use zeroize::Zeroizing;

mod parse;

pub use parse::{Dialect, Parsed, Problem, parse};

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
    /// The key is not a valid name of a shell variable. A shell would run such a line as a command.
    #[error(
        "key {key:?} cannot be written in dotenv format: a shell takes only letters, digits and \"_\", and no digit first"
    )]
    Key {
        /// The key.
        key: String,
    },
    /// All readers read no form of the value alike.
    #[error("the value of {key:?} cannot be written so that all readers of dotenv files read it alike: it has {what}")]
    Ambiguous {
        /// The key.
        key: String,
        /// The characters that prevent it.
        what: &'static str,
    },
    /// The value is not text.
    #[error("the value of {key:?} is not UTF-8 text and cannot be written in dotenv format")]
    NotText {
        /// The key.
        key: String,
    },
}

/// Writes one assignment per value, in the given order, without a newline at the end.
///
/// # Errors
/// [`FormatError`] for the first value that has no form. [`check()`] checks one value.
pub fn format<'a>(values: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Result<Zeroizing<String>, FormatError> {
    let values: Vec<_> = values.into_iter().collect();
    // A buffer that never grows leaves no copies of values behind.
    let capacity = values.iter().map(|(key, value)| key.len() + value.len() + 4).sum();
    let mut text = Zeroizing::new(String::with_capacity(capacity));
    for (index, (key, value)) in values.into_iter().enumerate() {
        let (value, quote) = form(key, value)?;
        if index > 0 {
            text.push('\n');
        }
        text.push_str(key);
        text.push('=');
        text.push_str(quote);
        text.push_str(value);
        text.push_str(quote);
    }
    Ok(text)
}

/// Checks that [`format()`] can write this value.
///
/// # Errors
/// [`FormatError`] if not.
pub fn check(key: &str, value: &[u8]) -> Result<(), FormatError> {
    form(key, value).map(drop)
}

/// Returns the text of a value and the quotes around it.
fn form<'a>(key: &str, value: &'a [u8]) -> Result<(&'a str, &'static str), FormatError> {
    if !is_key(key) {
        return Err(FormatError::Key { key: key.to_owned() });
    }
    let text = std::str::from_utf8(value).map_err(|_| FormatError::NotText { key: key.to_owned() })?;
    quotes(text).map(|quote| (text, quote)).map_err(|what| FormatError::Ambiguous { key: key.to_owned(), what })
}

/// Returns the quotes in which all readers read a text alike.
///
/// | Reader | in single quotes | in double quotes |
/// |---|---|---|
/// | shells | all is literal | `` $ ` \ " `` are not |
/// | python-dotenv | `\\`, `\'` and `${` are not | escapes and `${` are not |
/// | `node --env-file` | all is literal | `\n` is not |
/// | the published command line | all is literal | `\` and `$` are not |
///
/// All but shells change a carriage return, and no shell keeps a NUL. zsh replaces a bare `=NAME`, at the beginning and after a colon.
fn quotes(text: &str) -> Result<&'static str, &'static str> {
    if text.contains(['\r', '\0']) {
        return Err("a carriage return or a NUL character");
    }
    if text.chars().all(is_plain) && !text.split(':').any(|part| part.starts_with('=')) {
        return Ok("");
    }
    if text.contains("${") {
        return Err("\"${\", which some replace by a variable");
    }
    match text.contains('\'') {
        false if text.contains("\\\\") || text.ends_with('\\') => {
            Err("two backslashes, or one at its end, which some read as an escape")
        }
        false => Ok("'"),
        true if text.contains(['$', '`', '\\', '"']) => {
            Err("an apostrophe beside a double quote, a dollar sign, a backslash or a backtick")
        }
        true => Ok("\""),
    }
}

/// Returns `true` if no reader needs quotes around the character. A shell replaces `~`.
fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_-./:@%+,=^".contains(character)
}

fn is_key_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_.-".contains(character)
}

/// Returns `true` if the key is a valid name of a shell variable.
fn is_key(key: &str) -> bool {
    !key.starts_with(|first: char| first.is_ascii_digit())
        && !key.is_empty()
        && key.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
}

#[cfg(test)]
mod tests;
