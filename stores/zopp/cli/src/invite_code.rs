//! Where an invite comes from: a file, standard input, a prompt that does not echo, or the command line, where every process of the
//! machine can read it.

use std::{fs::File, io::IsTerminal, path::Path};

use zeroize::Zeroizing;

use crate::{failure::Failure, value};

/// On the command line, stands for standard input.
const STANDARD_INPUT: &str = "-";

/// Takes the invite from `file` if there is one, else `argument` unless it is missing or `-`; else reads standard input, or asks if
/// that is a terminal.
pub fn obtain(argument: Option<String>, file: Option<&Path>) -> Result<Zeroizing<String>, Failure> {
    if let Some(path) = file {
        let what = || format!("the invite cannot be read from {}", path.display());
        let open = File::open(path).map_err(|source| Failure::new(what()).because(source))?;
        return text(value::read(open).map_err(|source| Failure::new(what()).because(source))?.expose());
    }
    match argument {
        Some(code) if code != STANDARD_INPUT => Ok(Zeroizing::new(code)),
        None if std::io::stdin().is_terminal() => {
            let code = rpassword::prompt_password("Invite: ").map(Zeroizing::new);
            text(code.map_err(|source| Failure::new("the invite cannot be asked for").because(source))?.as_bytes())
        }
        _ => {
            let what = "the invite cannot be read from standard input";
            text(value::read(std::io::stdin().lock()).map_err(|source| Failure::new(what).because(source))?.expose())
        }
    }
}

fn text(bytes: &[u8]) -> Result<Zeroizing<String>, Failure> {
    let text = std::str::from_utf8(bytes).unwrap_or_default().trim();
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err(Failure::usage("there is no invite in what was given")
            .next("An invite is one word: 64 hexadecimal digits, or inv_ and 64 of them."));
    }
    Ok(Zeroizing::new(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_is_an_invite() {
        assert_eq!(text(b" inv_ab\n").unwrap().as_str(), "inv_ab");
        for bad in [b"".as_slice(), b" \n", b"two words", b"\xff"] {
            assert!(text(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_file_is_preferred_and_named_if_it_is_missing() {
        let failure = obtain(None, Some(Path::new("/nowhere/invite"))).unwrap_err();
        assert!(failure.text().contains("/nowhere/invite"), "{}", failure.text());
        assert_eq!(obtain(Some("inv_ab".to_owned()), None).unwrap().as_str(), "inv_ab");
    }
}
