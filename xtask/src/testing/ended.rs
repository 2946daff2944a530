//! A test program that has ended.

use std::{
    fs::{self, File},
    io::{self, Read, Seek},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::{
    outcome::{Outcome, outcome},
    program::Program,
};
use crate::paths;

/// The outcome of a program, with its output and its duration.
pub(crate) struct Ended {
    pub(crate) program: Program,
    pub(crate) took: Duration,
    pub(crate) output: Vec<u8>,
    pub(crate) outcome: Outcome,
}

impl Ended {
    /// Runs the command of a program to its end. A program that cannot be started has died.
    pub(crate) fn of(program: &Program, command: Command) -> Self {
        let began = Instant::now();
        let (output, outcome) = match run(program, command) {
            Ok((success, status, output)) => {
                let outcome = outcome(success, &status, &String::from_utf8_lossy(&output));
                (output, outcome)
            }
            Err(error) => (Vec::new(), Outcome::Died(format!("{error:#}"))),
        };
        Self { program: program.clone(), took: began.elapsed(), output, outcome }
    }
}

/// Whether it succeeded, how it ended, and what it printed. A file takes the output, which anybody can read while a test hangs. Unlike a pipe, it does
/// not have us wait for servers that a killed program leaves.
fn run(program: &Program, mut command: Command) -> Result<(bool, String, Vec<u8>)> {
    let path = log(program);
    let mut file = new_file(&path).with_context(|| format!("cannot write {}", path.display()))?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file.try_clone()?);
    let status = command.status().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let mut output = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut output).with_context(|| format!("cannot read {}", path.display()))?;
    Ok((status.success(), status.to_string(), output))
}

/// A file of its own: another run in the same folder keeps writing into the one that it has made.
fn new_file(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    if path.exists() {
        fs::remove_file(path)?;
    }
    File::options().read(true).append(true).create_new(true).open(path)
}

/// Where the output of a program goes.
fn log(program: &Program) -> PathBuf {
    let words: Vec<_> =
        program.name.split(' ').filter(|word| *word != "-p").map(|word| word.trim_start_matches('-')).collect();
    paths::target().join("tests").join(format!("{}.log", words.join("-")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    #[test]
    fn output_and_errors_are_kept_in_their_order_and_each_end_has_a_reason() {
        let died = |status: &str| Outcome::Died(format!("it ended ({status}) and named no failed test"));
        for (script, output, outcome) in [
            (
                "echo one; echo two >&2; echo 'test result: ok. 3 passed; 0 failed'",
                "one\ntwo\ntest result: ok. 3 passed; 0 failed\n",
                Outcome::Passed(3),
            ),
            ("echo begun; kill -9 $$", "begun\n", died("signal: 9 (SIGKILL)")),
            // A server that is left has the output open, and is not waited for.
            ("sleep 1000 & echo $!; exit 2", "", died("exit status: 2")),
        ] {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            let ended = Ended::of(&Program::named("-p xtask --test ended"), command);
            let said = String::from_utf8(ended.output).unwrap();
            assert!(said.starts_with(output), "{script}: {said}");
            assert_eq!(ended.outcome, outcome, "{script}");
            if script.starts_with("sleep") {
                Command::new("kill").arg(said.trim()).status().unwrap();
            }
        }
    }

    #[test]
    fn a_program_that_does_not_start_has_died() {
        let ended = Ended::of(&Program::named("-p xtask --test missing"), Command::new("/nowhere/it-1"));
        let Outcome::Died(why) = ended.outcome else { panic!("{:?}", ended.outcome) };
        assert!(why.starts_with("cannot start /nowhere/it-1: "), "{why}");
    }
}
