//! How command lines become jobs. Pure, but for variables that a job reads.

use std::{ffi::OsString, fmt::Write};

use crate::job::{Job, Ready};

/// A requested job, by its name.
pub(crate) type Chosen = (&'static str, Ready);

/// Why there is nothing to run.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Misuse {
    #[error(
        "a --job names no job; it begins with the name of one, and the flags are behind that. There are {there_are}"
    )]
    Nameless { there_are: String },
    #[error("there is no job {name:?}; there are {there_are}")]
    Unknown { name: String, there_are: String },
    #[error("job {name} is asked for twice; put all its flags into one --job")]
    Twice { name: &'static str },
    #[error(
        "job {name}: a quotation mark in its line has no end, or a backslash nothing behind it; write --job '{name} --flag \"a b\"'"
    )]
    Unquoted { name: &'static str },
    /// In the words of its own program, which end with a line break.
    #[error("job {name}: {said}")]
    Flags { name: &'static str, said: String },
    /// No misuse: the line requests the help or the version, which is printed in place of a run.
    #[error("{said}")]
    HelpOrVersion { said: String },
}

/// The jobs of these command lines.
pub(crate) fn read(jobs: &[Job], lines: &[String]) -> Result<Vec<Chosen>, Misuse> {
    let mut chosen: Vec<Chosen> = Vec::new();
    for line in lines {
        // An argument without a flag's name may hold anything, so errors do not repeat it.
        let first = line.split_whitespace().next().filter(|word| word.chars().all(|c| c.is_ascii_alphanumeric()));
        let Some(name) = first else { return Err(Misuse::Nameless { there_are: names(jobs) }) };
        let Some(job) = jobs.iter().find(|job| job.name == name) else {
            return Err(Misuse::Unknown { name: name.to_owned(), there_are: names(jobs) });
        };
        let name = job.name;
        let words = shlex::split(line).ok_or(Misuse::Unquoted { name })?;
        if chosen.iter().any(|(other, _)| *other == name) {
            return Err(Misuse::Twice { name });
        }
        let ready = job.ready(words.into_iter().map(OsString::from).collect()).map_err(|error| told(name, &error))?;
        chosen.push((name, ready));
    }
    Ok(chosen)
}

/// Clap's message, with the job's name and the command that prints help.
fn told(name: &'static str, error: &clap::Error) -> Misuse {
    let said = error.to_string();
    if !error.use_stderr() {
        return Misuse::HelpOrVersion { said };
    }
    let said = said.strip_prefix("error: ").unwrap_or(&said);
    let help = format!("try 'konverge run --job \"{name} --help\"'");
    Misuse::Flags { name, said: said.replace("try '--help'", &help) }
}

fn names(jobs: &[Job]) -> String {
    let mut names = String::new();
    for (at, job) in jobs.iter().enumerate() {
        let before = match at {
            0 => "",
            _ if at + 1 == jobs.len() => " and ",
            _ => ", ",
        };
        // Writing to a string cannot fail.
        let _ = write!(names, "{before}{}", job.name);
    }
    names
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches, Parser};
    use konverge_runtime::{Manager, Metrics, http_server::Listen};

    use super::*;

    #[derive(Debug, Parser)]
    #[command(version = "1.2.3")]
    struct Config {
        #[arg(long, default_value = "default")]
        value: String,
    }

    /// A job that tells its value as its settings.
    fn echo(name: &'static str) -> Job {
        let ready = |line: Vec<OsString>| {
            let config = Config::from_arg_matches(&Config::command().name("x").try_get_matches_from(line)?)?;
            let manager = async { Ok(Manager::listen(Listen::Nowhere, Metrics::new("echo", "0")).await?) };
            Ok(Ready { settings: config.value, manager: Box::pin(manager) })
        };
        Job { name, about: "says its value", ready: Box::new(ready) }
    }

    fn parsed(lines: &[&str]) -> Result<Vec<(&'static str, String)>, String> {
        let jobs = ["pull", "push", "roll"].map(echo);
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let chosen = read(&jobs, &lines).map_err(|misuse| misuse.to_string())?;
        Ok(chosen.into_iter().map(|(name, ready)| (name, ready.settings)).collect())
    }

    #[test]
    fn lines_are_split_as_a_shell_does_it() {
        let lines = ["roll", "pull --value 'a  b'", r#"  push  --value="$HOME c" "#];
        let expected = [("roll", "default"), ("pull", "a  b"), ("push", "$HOME c")];
        assert_eq!(parsed(&lines).unwrap(), expected.map(|(name, value)| (name, value.to_owned())));
    }

    #[test]
    fn what_cannot_be_run_is_told_by_the_name_of_the_job_with_the_next_step() {
        for (lines, parts) in [
            (&["roll", ""][..], &["names no job", "There are pull, push and roll"][..]),
            (&["--value=hunter2 pull"], &["names no job"]),
            (&["pul --value=hunter2"], &["there is no job \"pul\"; there are pull, push and roll"]),
            (&["push", "roll", "push --value x"], &["job push is asked for twice", "one --job"]),
            (&["pull --value='hunter2"], &["job pull", "no end"]),
            (
                &["roll --valu hunter2"],
                &["job roll: unexpected argument '--valu'", "konverge run --job \"roll --help\""],
            ),
            (&["roll --value"], &["job roll: a value is required for '--value <VALUE>'"]),
        ] {
            let told = parsed(lines).unwrap_err();
            assert!(parts.iter().all(|part| told.contains(part)), "{lines:?}: {told}");
            assert!(!told.contains("hunter2"), "{told}");
        }
    }

    #[test]
    fn help_and_version_are_asked_for_and_no_misuse() {
        let jobs = [echo("pull")];
        for (line, part) in [("pull --help", "--value <VALUE>"), ("pull --version", "1.2.3")] {
            match read(&jobs, &[line.to_owned()]).map(drop) {
                Err(Misuse::HelpOrVersion { said }) => assert!(said.contains(part), "{said}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
