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

mod parse;

pub use konverge_text::dotenv::{FormatError, check, format};
pub use parse::{Dialect, Parsed, Problem, parse};

/// One assignment.
pub struct Entry {
    /// Left of the equals sign.
    pub key: String,
    /// Right of it, unquoted.
    pub value: SecretValue,
}

fn is_key_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_.-".contains(character)
}

#[cfg(test)]
mod tests;
