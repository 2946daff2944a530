//! Where a value comes from: the command line, standard input, or a prompt that does not echo.

use std::io::{IsTerminal, Read};

use konverge_core::SecretValue;
use zeroize::Zeroizing;

use crate::{failure::Failure, prompt};

/// On the command line, stands for standard input.
const STANDARD_INPUT: &str = "-";

/// Takes `argument` unless it is missing or `-`; else reads standard input to its end, byte for byte, or asks if that is
/// a terminal.
pub fn obtain(argument: Option<String>, key: &str) -> Result<SecretValue, Failure> {
    match argument {
        Some(value) if value != STANDARD_INPUT => return Ok(SecretValue::from(value)),
        None if std::io::stdin().is_terminal() => return prompt(key),
        _ => {}
    }
    let value = read(std::io::stdin().lock()).map_err(|source| {
        Failure::new(format!("the value of '{key}' cannot be read from standard input")).because(source)
    })?;
    if value.expose().is_empty() {
        eprintln!("Note: the value is empty, as read.");
    }
    if is_line(value.expose()) {
        eprintln!("Note: the value ends with a newline, as read; printf '%s' or \"echo -n\" send none.");
    }
    Ok(value)
}

fn prompt(key: &str) -> Result<SecretValue, Failure> {
    prompt::ask(&format!("Value of {key}: ")).map_err(|source| {
        Failure::new(format!("the value of '{key}' cannot be asked for"))
            .because(source)
            .next(format!("A file can hold it: zopp secret set {key} --stdin < FILE"))
    })
}

/// A single line is most likely a password with the newline of an `echo`; several are a file.
fn is_line(value: &[u8]) -> bool {
    value.iter().position(|byte| *byte == b'\n') == value.len().checked_sub(1) && !value.is_empty()
}

/// Reads to the end without leaving outgrown buffers behind.
pub fn read(mut source: impl Read) -> std::io::Result<SecretValue> {
    let mut value = Zeroizing::new(vec![0; 4096]);
    let mut length = 0;
    loop {
        if length == value.len() {
            let mut grown = Zeroizing::new(vec![0; 2 * length]);
            grown[..length].copy_from_slice(&value);
            value = grown;
        }
        match source.read(&mut value[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    value.truncate(length);
    Ok(SecretValue::new(std::mem::take(&mut *value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_is_exact() {
        for length in [0, 1, 4095, 4096, 4097, 100_000] {
            let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(length).collect();
            assert_eq!(read(bytes.as_slice()).unwrap().expose(), bytes.as_slice());
        }
    }

    #[test]
    fn one_line_is_told_from_a_file() {
        assert!(is_line(b"password\n"));
        assert!(!is_line(b"password"));
        assert!(!is_line(b"first\nsecond\n"));
        assert!(!is_line(b""));
    }

    #[test]
    fn an_argument_is_taken_as_it_is() {
        assert_eq!(obtain(Some("--x".to_owned()), "K").unwrap().expose(), b"--x");
        assert_eq!(obtain(Some(String::new()), "K").unwrap().expose(), b"");
    }
}
