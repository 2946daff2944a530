//! Printing. A reader that goes away, such as `head`, is no trouble.

use std::io::Write;

use serde::Serialize;

use crate::{Failure, arguments::Form};

/// Prints data for programs, or the text, in the requested form.
pub(crate) fn print(form: Form, data: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
    let mut printed = match form {
        Form::Text | Form::Wide | Form::Name => text(),
        Form::Json => serde_json::to_string_pretty(data).map_err(|error| Failure::Failed(error.to_string()))?,
        Form::Yaml => serde_saphyr::to_string(data).map_err(|error| Failure::Failed(error.to_string()))?,
    };
    if !printed.is_empty() && !printed.ends_with('\n') {
        printed.push('\n');
    }
    // A closed pipe is no error: the reader needs no more output.
    let _ = std::io::stdout().lock().write_all(printed.as_bytes());
    Ok(())
}
