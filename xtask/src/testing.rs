//! Runs the test programs that cargo builds, several at a time.
//!
//! Most tests wait for servers most of the time, and at the end of each program one long test runs alone. `cargo test` runs the programs one after the
//! other, so that it leaves the processors idle. Here the longest programs start first, and the output of a program is printed when it ends.
//!
//! Tests that failed among all others are run once more by themselves. The tests start etcd, API servers and Vaults by the dozen; on a busy machine one
//! of them may be late where nothing is wrong. A real failure fails again. A test that passes alone is named at the end, because it has a fault of its
//! own. If more than a few tests fail, it is no chance, and nothing is run again.

mod ended;
mod order;
mod outcome;
mod program;
mod side_by_side;

use std::{
    env,
    io::{self, Write},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

use self::{
    ended::Ended,
    outcome::{Outcome, Verdict},
    program::Program,
};

/// Test programs at the same time, unless the caller chooses another number.
pub(crate) const PROGRAMS_AT_ONCE: usize = 2;

/// Tests of one program at the same time, unless `RUST_TEST_THREADS` says otherwise. Most of them wait for servers part of the time, so that as many as
/// there are processors leave a small machine idle. With four, two programs kept two processors busy all the time, and tests that take seconds alone took
/// minutes.
const TESTS_AT_ONCE: usize = 3;

/// `GOGC` of the servers that tests start, unless the environment has another: etcd, the API server, Vault. Each has a small heap, and by default spends
/// about an eighth of its time on collecting garbage.
const GARBAGE: (&str, &str) = ("GOGC", "400");

/// The programs that took at least this long are listed at the end.
const LONG: Duration = Duration::from_secs(10);

/// Which tests a recipe runs.
pub(crate) struct Tests<'a> {
    /// The arguments by which `cargo test` chooses the programs.
    pub(crate) chosen: &'a [&'a str],
    /// Whether the examples in the docs of the workspace run, too.
    pub(crate) with_docs: bool,
    /// Only tests whose name contains this.
    pub(crate) filter: Option<&'a str>,
    /// Test programs at the same time.
    pub(crate) at_once: usize,
}

impl Tests<'_> {
    /// Runs the tests, and those that failed once more. Fails unless each passed one of the two times. `tell` completes the command of each program.
    pub(crate) fn run(&self, tell: impl Fn(&mut Command) + Sync) -> Result<()> {
        let mut programs = program::built(self.chosen)?;
        if self.with_docs {
            programs.push(Program::docs());
        }
        order::longest_first(&mut programs);
        let run = |program: &Program, arguments: &[&str]| {
            let mut command = program.command();
            for (name, value) in [("RUST_TEST_THREADS", &*tests_at_once().to_string()), GARBAGE] {
                if env::var_os(name).is_none() {
                    command.env(name, value);
                }
            }
            command.args(arguments);
            tell(&mut command);
            Ended::of(program, command)
        };
        let filter: Vec<&str> = self.filter.into_iter().collect();
        let began = Instant::now();
        let ended = side_by_side::run(programs, self.at_once, |program| {
            eprintln!("-- {} begins", program.name);
            let ended = run(program, &filter);
            show(&ended);
            ended
        });
        list_long(&ended, began.elapsed());
        once_more(&ended, |program, tests| {
            eprintln!("\n== again, by themselves: {} of {}", tests.join(", "), program.name);
            let mut arguments = vec!["--exact", "--test-threads=1"];
            arguments.extend(tests);
            let ended = run(program, &arguments);
            show(&ended);
            ended.outcome
        })
    }
}

fn tests_at_once() -> usize {
    thread::available_parallelism().map_or(1, usize::from).max(TESTS_AT_ONCE)
}

/// Prints all that a program said, with its name and its duration.
fn show(ended: &Ended) {
    let mut out = io::stdout().lock();
    // Nobody may be left to read; the tests count all the same.
    let _ = writeln!(out, "\n== {}: {:.0} s", ended.program.name, ended.took.as_secs_f32())
        .and_then(|()| out.write_all(&ended.output))
        .and_then(|()| out.flush());
}

/// Lists the programs that took long, as `order.rs` lists them.
fn list_long(ended: &[Ended], took: Duration) {
    let mut long: Vec<_> = ended.iter().filter(|ended| ended.took >= LONG).collect();
    long.sort_by_key(|ended| std::cmp::Reverse(ended.took));
    eprintln!("\n{} test programs: {:.0} s", ended.len(), took.as_secs_f32());
    for ended in long {
        eprintln!("  {:5.0} s  {}", ended.took.as_secs_f32(), ended.program.name);
    }
}

/// Looks at what failed, and lets `again` run it.
fn once_more(ended: &[Ended], again: impl Fn(&Program, &[&str]) -> Outcome) -> Result<()> {
    let failed = match outcome::verdict(ended.iter().map(|ended| &ended.outcome)) {
        Verdict::Passed => return Ok(()),
        Verdict::Failed => bail!("{}", reasons(ended).join("; ")),
        Verdict::Unsure => ended.iter().filter_map(|ended| match &ended.outcome {
            Outcome::Failed(tests) => Some((&ended.program, tests.iter().map(String::as_str).collect::<Vec<_>>())),
            _ => None,
        }),
    };
    let mut unsteady = Vec::new();
    for (program, tests) in failed {
        match again(program, &tests) {
            Outcome::Passed(count) if count >= tests.len() => {
                unsteady.extend(tests.iter().map(|test| (*test, program)));
            }
            _ => bail!("{} of {} failed twice", tests.join(", "), program.name),
        }
    }
    for (test, program) in unsteady {
        eprintln!(
            "UNSTEADY: {test} of {} failed among the others and passed by itself. Find out why; do not get used to it.",
            program.name
        );
    }
    Ok(())
}

/// Says of each program that did not pass why.
fn reasons(ended: &[Ended]) -> Vec<String> {
    ended.iter().filter_map(|ended| Some(format!("{}: {}", ended.program.name, ended.outcome.fault()?))).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn ended(name: &str, outcome: Outcome) -> Ended {
        Ended { program: Program::named(name), took: Duration::ZERO, output: Vec::new(), outcome }
    }

    fn failed(tests: &[&str]) -> Outcome {
        Outcome::Failed(tests.iter().map(|test| (*test).to_owned()).collect())
    }

    #[test]
    fn each_program_runs_its_own_failed_tests_again_and_a_second_failure_counts() {
        let died = || Outcome::Died("it ended (signal: 9) and named no failed test".to_owned());
        let (push, roll) = ("-p push --test it", "-p roll --test it");
        for (first, second, ran_again, error) in [
            (vec![ended(push, Outcome::Passed(7))], failed(&[]), vec![], None),
            (
                vec![ended(push, failed(&["a", "b"])), ended(roll, Outcome::Passed(7))],
                Outcome::Passed(2),
                vec!["-p push --test it: a b"],
                None,
            ),
            (
                vec![ended(push, failed(&["a"])), ended(roll, failed(&["c"]))],
                Outcome::Passed(1),
                vec!["-p push --test it: a", "-p roll --test it: c"],
                None,
            ),
            (
                vec![ended(push, failed(&["a"]))],
                failed(&["a"]),
                vec!["-p push --test it: a"],
                Some("a of -p push --test it failed twice"),
            ),
            // A test that does not run has not passed.
            (
                vec![ended(push, failed(&["a", "b"]))],
                Outcome::Passed(1),
                vec!["-p push --test it: a b"],
                Some("a, b of -p push --test it failed twice"),
            ),
            (
                vec![ended(push, failed(&["a", "b", "c"])), ended(roll, failed(&["d", "e", "f"]))],
                Outcome::Passed(2),
                vec![],
                Some("-p push --test it: a, b, c failed; -p roll --test it: d, e, f failed"),
            ),
            (
                vec![ended(push, died()), ended(roll, failed(&["c"]))],
                Outcome::Passed(1),
                vec![],
                Some("-p push --test it: it ended (signal: 9) and named no failed test; -p roll --test it: c failed"),
            ),
        ] {
            let again = RefCell::new(Vec::new());
            let result = once_more(&first, |program, tests| {
                again.borrow_mut().push(format!("{}: {}", program.name, tests.join(" ")));
                second.clone()
            });
            assert_eq!(result.err().map(|error| error.to_string()).as_deref(), error);
            assert_eq!(again.into_inner(), ran_again);
        }
    }
}
