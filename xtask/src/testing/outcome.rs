//! The outcome of one test program, and the verdict on a whole run.

/// More failures than this are not looked at again. One in five hundred tests.
const FEW: usize = 5;

/// How a test program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// So many tests passed, and none failed.
    Passed(usize),
    /// The tests of these names failed.
    Failed(Vec<String>),
    /// It ended without the names of the tests that failed; why.
    Died(String),
}

/// The verdict on a whole run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    /// A few tests failed; a second run of these tells more.
    Unsure,
    Failed,
}

impl Outcome {
    /// Says why the program did not pass; `None` if it did.
    pub(crate) fn fault(&self) -> Option<String> {
        match self {
            Self::Passed(_) => None,
            Self::Failed(tests) => Some(format!("{} failed", tests.join(", "))),
            Self::Died(why) => Some(why.clone()),
        }
    }
}

/// Reads the output of a program: libtest lists the failed tests before each `test result: FAILED`. Rustdoc reports several times.
pub(crate) fn outcome(success: bool, status: &str, output: &str) -> Outcome {
    let (mut passed, mut failed) = (0, Vec::new());
    let mut listed: Option<Vec<String>> = None;
    for line in output.lines() {
        if line == "failures:" {
            listed = Some(Vec::new());
        } else if let Some(result) = line.strip_prefix("test result:") {
            failed.extend(listed.take().unwrap_or_default());
            passed += passed_tests(result);
        } else if let (Some(listed), Some(name)) = (&mut listed, line.strip_prefix("    ")) {
            listed.push(name.to_owned());
        }
    }
    match (success, failed.is_empty()) {
        (true, _) => Outcome::Passed(passed),
        (false, false) => Outcome::Failed(failed),
        (false, true) => Outcome::Died(format!("it ended ({status}) and named no failed test")),
    }
}

/// The number before `passed` in a result, such as ` ok. 3 passed; 0 failed`.
fn passed_tests(result: &str) -> usize {
    let before = result.split(" passed").next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// Judges a whole run.
pub(crate) fn verdict<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Verdict {
    let mut failures = 0;
    for outcome in outcomes {
        match outcome {
            Outcome::Passed(_) => {}
            Outcome::Failed(tests) => failures += tests.len(),
            Outcome::Died(_) => return Verdict::Failed,
        }
    }
    match failures {
        0 => Verdict::Passed,
        1..=FEW => Verdict::Unsure,
        _ => Verdict::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(tests: &[&str]) -> Outcome {
        Outcome::Failed(tests.iter().map(|test| (*test).to_owned()).collect())
    }

    #[test]
    fn names_are_taken_from_the_list_before_the_result() {
        let output = "running 3 tests\ntest a::one ... ok\ntest a::two ... FAILED\n\nfailures:\n\n---- a::two stdout ----\n    assertion \
                      failed: indented\nfailures: 3 of them\n\nfailures:\n    a::two\n    b::three\n\ntest result: FAILED. 1 passed; 2 \
                      failed\n\nrunning 1 test\ntest c::four ... ok\n\ntest result: ok. 1 passed; 0 failed";
        assert_eq!(outcome(false, "exit status: 101", output), failed(&["a::two", "b::three"]));
    }

    #[test]
    fn outcomes() {
        let died = |status: &str| Outcome::Died(format!("it ended ({status}) and named no failed test"));
        for (success, status, output, expected) in [
            (true, "exit status: 0", "test result: ok. 10 passed; 0 failed; 1 ignored", Outcome::Passed(10)),
            (
                true,
                "exit status: 0",
                "test result: ok. 2 passed; 0 failed\ntest result: ok. 3 passed",
                Outcome::Passed(5),
            ),
            (true, "exit status: 0", "test result: ok. 0 passed; 0 failed; 0 ignored", Outcome::Passed(0)),
            (false, "signal: 11", "running 1 test\ntest a::one ... ok", died("signal: 11")),
            (false, "exit status: 101", "test result: ok. 1 passed; 0 failed", died("exit status: 101")),
        ] {
            assert_eq!(outcome(success, status, output), expected, "{output}");
        }
    }

    #[test]
    fn a_few_failures_are_looked_at_again_and_a_lost_program_is_not() {
        for (outcomes, expected) in [
            (vec![Outcome::Passed(1), Outcome::Passed(0)], Verdict::Passed),
            (vec![], Verdict::Passed),
            (vec![Outcome::Passed(1), failed(&["a"])], Verdict::Unsure),
            (vec![failed(&["a", "b"]), failed(&["c"])], Verdict::Unsure),
            (vec![failed(&["a", "b", "c"]), failed(&["d", "e", "f"])], Verdict::Failed),
            (vec![failed(&["a"]), Outcome::Died("signal: 9".to_owned())], Verdict::Failed),
        ] {
            assert_eq!(verdict(outcomes.iter()), expected, "{outcomes:?}");
        }
    }
}
