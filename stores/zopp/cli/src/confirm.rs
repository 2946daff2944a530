//! Questions at a terminal that a person answers with yes or no.

use std::io::{IsTerminal, stderr, stdin};

use crate::{escape::visible, failure::Failure};

/// Returns `true` if a person at a terminal can read a question and answer it.
pub fn is_possible() -> bool {
    stdin().is_terminal() && stderr().is_terminal()
}

/// Asks the question. Every answer except `y` and `yes` is a no.
///
/// # Errors
/// If the answer cannot be read.
pub fn ask(question: &str) -> Result<bool, Failure> {
    // Names from the server must not control the terminal.
    eprint!("{} [y/N] ", visible(question));
    let mut answer = String::new();
    stdin()
        .read_line(&mut answer)
        .map_err(|source| Failure::new("the answer cannot be read from the terminal").because(source))?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}
