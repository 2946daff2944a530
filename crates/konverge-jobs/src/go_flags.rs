//! Command lines as Go's `flag` takes them, turned into those that clap takes. Pure. For the operators that take the place of one in Go.
//!
//! One dash or two; `-flag=value` or `-flag value`, where the value is whatever comes next; switches alone or with `=true`. clap then
//! gets `--flag=value` throughout.

use std::ffi::OsString;

use clap::Command;

/// The same command line in the spelling of clap. The program's name comes first.
pub fn normalised(command: &Command, arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments = arguments.into_iter();
    let mut normalised: Vec<OsString> = arguments.next().into_iter().collect();
    while let Some(argument) = arguments.next() {
        // An argument that is not UTF-8 can only be a value, which is taken below.
        let Some(flag) = argument.to_str().and_then(flag) else {
            let ends = argument == "--";
            normalised.push(argument);
            if ends {
                normalised.extend(arguments);
                break;
            }
            continue;
        };
        let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
        let of_program = match name {
            "h" | "help" => Some("--help"),
            // clap's own.
            "V" => Some("--version"),
            _ => None,
        };
        if let Some(spelled) = of_program {
            normalised.push(spelled.into());
            continue;
        }
        let mut spelled = OsString::from(format!("--{name}"));
        match (value, takes(command, name)) {
            (Some(value), _) => spelled.push(format!("={value}")),
            (None, Takes::Value) => {
                if let Some(next) = arguments.next() {
                    spelled.push("=");
                    spelled.push(next);
                }
            }
            (None, Takes::Nothing) => {}
        }
        normalised.push(spelled);
    }
    normalised
}

/// The flag without its dashes; `-` and `--` are none.
fn flag(argument: &str) -> Option<&str> {
    let flag = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'))?;
    (!flag.is_empty()).then_some(flag)
}

enum Takes {
    Value,
    Nothing,
}

/// Whether the next argument belongs to the flag. Not to a switch, and not to one that is unknown, of which clap tells.
fn takes(command: &Command, name: &str) -> Takes {
    let argument = command.get_arguments().find(|argument| argument.get_long() == Some(name));
    match argument {
        Some(argument) if argument.get_action().takes_values() && !argument.is_require_equals_set() => Takes::Value,
        _ => Takes::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use clap::{Arg, ArgAction};

    use super::*;

    /// A flag with a value, a switch that takes one after `=` only, and one that takes none.
    fn command() -> Command {
        let switch = Arg::new("leader-elect").long("leader-elect").num_args(0..=1).require_equals(true);
        let bare = Arg::new("zap-devel").long("zap-devel").action(ArgAction::SetTrue);
        Command::new("name").args([Arg::new("vault-addr").long("vault-addr"), switch, bare])
    }

    #[test]
    fn spellings() {
        for (given, expected) in [
            (&["-vault-addr=x"][..], &["--vault-addr=x"][..]),
            (&["--vault-addr=x=y"], &["--vault-addr=x=y"]),
            (&["-vault-addr", "x"], &["--vault-addr=x"]),
            (&["--vault-addr", "-x"], &["--vault-addr=-x"]),
            (&["-vault-addr"], &["--vault-addr"]),
            (&["-vault-addr="], &["--vault-addr="]),
            (&["-leader-elect", "drain"], &["--leader-elect", "drain"]),
            (&["-leader-elect=f"], &["--leader-elect=f"]),
            (&["-zap-devel", "drain"], &["--zap-devel", "drain"]),
            (&["drain", "-vault-addr", "x"], &["drain", "--vault-addr=x"]),
            (&["-h"], &["--help"]),
            (&["-help"], &["--help"]),
            (&["-V"], &["--version"]),
            (&["-unknown", "x"], &["--unknown", "x"]),
            (&["--", "-vault-addr", "x"], &["--", "-vault-addr", "x"]),
            (&["-"], &["-"]),
            (&[], &[]),
        ] {
            let given = ["name"].into_iter().chain(given.iter().copied()).map(OsString::from);
            let normalised = normalised(&command(), given);
            assert_eq!(normalised[1..], *expected.iter().map(OsString::from).collect::<Vec<_>>());
        }
    }
}
