//! The writer of dotenv files, in the subset of the format on which its readers agree.
//!
//! Shells (`. ./.env`), `node --env-file`, python-dotenv, and the published and our own `zopp secret import` read the output of [`format()`] alike. There is
//! no common escape: they treat a backslash and a dollar sign in double quotes differently, and a shell runs text between backticks. So nothing is
//! escaped, and a value that needs an escape is refused.
//!
//! ```text
//! PLAIN=value
//! LITERAL='no $escapes here'    # over several lines, too
//! APOSTROPHE="it's"
//! ```

use zeroize::Zeroizing;

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

/// Returns `true` if the key is a valid name of a shell variable.
fn is_key(key: &str) -> bool {
    !key.starts_with(|first: char| first.is_ascii_digit())
        && !key.is_empty()
        && key.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_written_in_the_form_that_all_readers_read_alike() {
        for (value, expected) in [
            ("postgres://u:p@db:5432/x", "K=postgres://u:p@db:5432/x"),
            ("", "K="),
            ("~/x", "K='~/x'"),
            ("a b\n$c `d` \\n \"e\"", "K='a b\n$c `d` \\n \"e\"'"),
            ("it's", "K=\"it's\""),
            ("it's\nhere", "K=\"it's\nhere\""),
            // zsh replaces these by the path of a program.
            ("=ls", "K='=ls'"),
            ("a:=ls", "K='a:=ls'"),
            ("=", "K='='"),
            ("a=b==", "K=a=b=="),
        ] {
            assert_eq!(*format([("K", value.as_bytes())]).unwrap(), expected);
        }
        for value in ["a\rb", "a\0b", "${a}", "a\\\\b", "a\\", "it's \"x\"", "it's $5", "it's `x`", "it's a\\b"] {
            let error = check("K", value.as_bytes()).unwrap_err();
            assert!(matches!(&error, FormatError::Ambiguous { key, .. } if key == "K"), "{value:?}: {error}");
            assert!(format([("K", value.as_bytes())]).is_err());
        }
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        for key in ["a b", "", "1A", "tls.crt", "a-b"] {
            assert_eq!(format([(key, b"".as_slice())]).err(), Some(FormatError::Key { key: key.to_owned() }));
        }
        assert_eq!(format([("K", [0xff].as_slice())]).err(), Some(FormatError::NotText { key: "K".to_owned() }));
    }
}
