//! Which expectation a request meets, and what was expected instead. No IO.

use std::{
    fmt,
    ops::{RangeFrom, RangeInclusive},
};

use super::{
    answer::Answer,
    matcher::{RecordedRequest, RequestMatcher},
};

/// How often an expectation has to be met: `3`, `1..=3` or `1..`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    least: usize,
    most: usize,
}

impl From<usize> for Times {
    fn from(exactly: usize) -> Self {
        Self { least: exactly, most: exactly }
    }
}

impl From<RangeInclusive<usize>> for Times {
    fn from(range: RangeInclusive<usize>) -> Self {
        Self { least: *range.start(), most: *range.end() }
    }
}

impl From<RangeFrom<usize>> for Times {
    fn from(range: RangeFrom<usize>) -> Self {
        Self { least: range.start, most: usize::MAX }
    }
}

/// A request that is expected, and its answer. Once, in its turn, unless it is said otherwise.
#[derive(Debug, Clone)]
pub struct Expectation {
    matcher: RequestMatcher,
    answer: Answer,
    times: Times,
    any_time: bool,
    met: usize,
}

impl RequestMatcher {
    /// Expects such a request, and answers it so.
    pub fn answer(self, answer: Answer) -> Expectation {
        Expectation { matcher: self, answer, times: Times::from(1), any_time: false, met: 0 }
    }
}

impl Expectation {
    /// How often; once if it is not said.
    #[must_use]
    pub fn times(mut self, times: impl Into<Times>) -> Self {
        self.times = times.into();
        self
    }

    /// It may come whenever it likes, also before those that were stated earlier.
    #[must_use]
    pub fn any_time(mut self) -> Self {
        self.any_time = true;
        self
    }

    fn is_met(&self) -> bool {
        self.met >= self.times.least
    }

    fn takes(&self, request: &RecordedRequest) -> bool {
        self.met < self.times.most && self.matcher.mismatch(request).is_none()
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Times { least, most } = self.times;
        write!(formatter, "{} (came {} of ", self.matcher, self.met)?;
        match most {
            usize::MAX => write!(formatter, "at least {least}"),
            most if most == least => write!(formatter, "{least}"),
            most => write!(formatter, "{least} to {most}"),
        }?;
        formatter.write_str(" times)")
    }
}

/// The expectations of one double, and how far they are met.
#[derive(Debug, Default)]
pub(super) struct Script {
    expectations: Vec<Expectation>,
}

impl Script {
    pub(super) fn expect(&mut self, expectation: Expectation) {
        self.expectations.push(expectation);
    }

    /// The answer to a request, or why it was not expected.
    ///
    /// In its turn is the first one that is not met, and all before it that take more than they need.
    pub(super) fn answer(&mut self, request: &RecordedRequest) -> Result<Answer, String> {
        let mut in_turn = true;
        for expectation in &mut self.expectations {
            if (in_turn || expectation.any_time) && expectation.takes(request) {
                expectation.met += 1;
                return Ok(expectation.answer.clone());
            }
            in_turn &= expectation.any_time || expectation.is_met();
        }
        Err(self.unexpected_request(request))
    }

    /// The expectations that were never met, or not often enough.
    pub(super) fn unmet(&self) -> Vec<String> {
        self.expectations.iter().filter(|expectation| !expectation.is_met()).map(ToString::to_string).collect()
    }

    fn unexpected_request(&self, request: &RecordedRequest) -> String {
        let next = self.expectations.iter().find(|expectation| !expectation.any_time && !expectation.is_met());
        let next = match next {
            None => "nothing more in order".to_owned(),
            Some(next) => match next.matcher.mismatch(request) {
                Some(why) => format!("{next}, but {why}"),
                // It would have been taken, had it not come too often already.
                None => next.to_string(),
            },
        };
        let any: Vec<String> = self
            .expectations
            .iter()
            .filter(|other| other.any_time)
            .map(|other| format!("; any time {other}"))
            .collect();
        format!("unexpected request {request}; expected: {next}{}", any.concat())
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn asked(path: &str) -> RecordedRequest {
        RecordedRequest::new(&Method::GET, &format!("/api/v1/nodes/{path}").parse().unwrap(), b"")
    }

    fn expected(path: &str) -> Expectation {
        RequestMatcher::get(format!("/api/v1/nodes/{path}")).answer(Answer::hang())
    }

    /// Asks for the nodes one after the other; tells which were expected and which expectations are unmet.
    fn play(expectations: Vec<Expectation>, requests: &str) -> (String, usize) {
        let mut script = Script { expectations };
        let answers = requests.chars().map(|name| script.answer(&asked(&name.to_string())).is_ok());
        (answers.map(|expected| if expected { '+' } else { '-' }).collect(), script.unmet().len())
    }

    #[test]
    fn order_and_times() {
        for (expectations, requests, outcome, unmet) in [
            (vec![expected("a"), expected("b")], "ab", "++", 0),
            (vec![expected("a"), expected("b")], "ba", "-+", 1),
            (vec![expected("a"), expected("b")], "aa", "+-", 1),
            (vec![expected("a"), expected("b")], "", "", 2),
            (vec![expected("a").times(2), expected("b")], "aab", "+++", 0),
            (vec![expected("a").times(2), expected("b")], "ab", "+-", 2),
            (vec![expected("a").times(1..=2), expected("b")], "aab", "+++", 0),
            (vec![expected("a").times(1..=2), expected("b")], "ab", "++", 0),
            (vec![expected("a").times(1..), expected("b")], "aaaba", "+++++", 0),
            (vec![expected("a").times(0..), expected("b")], "b", "+", 0),
            (vec![expected("a").any_time(), expected("b")], "ba", "++", 0),
            (vec![expected("b"), expected("a").any_time()], "ab", "++", 0),
            (vec![expected("b"), expected("a").any_time()], "aab", "+-+", 0),
            (vec![expected("a"), expected("a")], "aa", "++", 0),
            (vec![expected("*").times(2)], "ab", "++", 0),
        ] {
            let stated = format!("{expectations:?}");
            assert_eq!(play(expectations, requests), (outcome.to_owned(), unmet), "{requests} on {stated}");
        }
    }

    #[test]
    fn a_surprise_tells_what_was_expected() {
        let mut script = Script::default();
        script.expect(expected("a").times(2));
        script.expect(expected("c").times(1..).any_time());
        let said = script.answer(&asked("b")).unwrap_err();
        assert_eq!(
            said,
            "unexpected request get /api/v1/nodes/b; expected: get /api/v1/nodes/a (came 0 of 2 times), but the path is \
             /api/v1/nodes/b, not /api/v1/nodes/a; any time get /api/v1/nodes/c (came 0 of at least 1 times)"
        );
        assert!(Script::default().answer(&asked("b")).unwrap_err().ends_with("expected: nothing more in order"));
    }
}
