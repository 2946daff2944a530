//! The outcome of the runs, and how they are compared. No IO.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use serde_json::Value;

use super::points::{Fault, Point};
use crate::{api_request::ApiRequest, fault_proxy::JournalEntry};

/// The number of differences that a report names.
const DIFFERENCES: usize = 6;

/// One run of so many may be missed by its fault. The points are those of one run, and the last writes of it may be repetitions that another run
/// does not need.
const MISSED_OF: usize = 4;

/// How a run ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    end_state: Value,
    /// The writes that count, in the order of their arrival.
    arrived: Vec<String>,
    /// Those of them that succeeded.
    committed: Vec<String>,
    created: BTreeMap<String, usize>,
    deleted: BTreeMap<String, usize>,
    /// Whether each fault of the plan befell the run.
    fault_injected: bool,
}

/// One run that ended otherwise than the run without faults.
#[derive(Debug)]
#[non_exhaustive]
pub struct Finding {
    /// The fault that hit it.
    pub point: Point,
    /// The write in the run without faults.
    pub write: String,
    /// The reason.
    pub faults: Vec<String>,
    /// A plan that reproduces it with [`CrashTest::replay`](super::CrashTest::replay).
    pub plan: PathBuf,
}

/// The findings of the runs.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report {
    /// The writes of the run without faults, in their order.
    pub writes: Vec<String>,
    /// How many runs with a fault there were.
    pub runs: usize,
    /// The reason.
    pub findings: Vec<Finding>,
    /// The faults that hit none of three runs, because the runs had fewer writes. Each ended like the run without faults.
    pub missed: Vec<Point>,
}

/// The operator does not survive every crash.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Broken(pub Report);

impl Outcome {
    pub(super) fn new(end_state: Value, writes: &[JournalEntry], fault_injected: bool) -> Self {
        let told = |entries: &mut dyn Iterator<Item = &JournalEntry>| -> Vec<String> {
            // The namespace differs from run to run.
            let asks = entries.map(|entry| ApiRequest { namespace: String::new(), ..entry.request.clone() });
            asks.map(|asks| asks.to_string()).collect()
        };
        let count = |counts: fn(&JournalEntry) -> bool| {
            let mut by_kind = BTreeMap::new();
            for entry in writes.iter().filter(|entry| counts(entry)) {
                *by_kind.entry(entry.request.full_resource()).or_default() += 1;
            }
            by_kind
        };
        Self {
            end_state,
            arrived: told(&mut writes.iter()),
            committed: told(&mut writes.iter().filter(|entry| entry.is_committed())),
            created: count(JournalEntry::created),
            deleted: count(JournalEntry::deleted),
            fault_injected,
        }
    }

    pub(super) fn points(&self) -> Vec<Point> {
        Point::all(self.arrived.len(), self.committed.len())
    }

    /// The write that a point is about.
    pub(super) fn write(&self, point: Point) -> String {
        let writes = if point.fault == Fault::KillBefore { &self.arrived } else { &self.committed };
        let index = usize::try_from(point.nth).unwrap_or_default().checked_sub(1);
        index.and_then(|index| writes.get(index)).cloned().unwrap_or_default()
    }

    /// Whether each fault of the plan befell it.
    pub(super) fn has_faults(&self) -> bool {
        self.fault_injected
    }

    /// The difference between two runs.
    pub(super) fn differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        differences("the end state", &self.end_state, &other.end_state, &mut found);
        found.truncate(DIFFERENCES);
        for (what, expected, actual) in
            [("created", &self.created, &other.created), ("deleted", &self.deleted, &other.deleted)]
        {
            let kinds: std::collections::BTreeSet<&String> = expected.keys().chain(actual.keys()).collect();
            for kind in kinds {
                let count = |counts: &BTreeMap<String, usize>| counts.get(kind).copied().unwrap_or_default();
                let (expected, actual) = (count(expected), count(actual));
                if expected != actual {
                    found.push(format!("{kind} {what} {actual} times instead of {expected}"));
                }
            }
        }
        found
    }
}

impl Report {
    pub(super) fn new(reference: &Outcome) -> Self {
        Self { writes: reference.arrived.clone(), runs: 0, findings: Vec::new(), missed: Vec::new() }
    }

    pub(super) fn survived(&mut self) {
        self.runs += 1;
    }

    pub(super) fn wrong(&mut self, finding: Finding) {
        self.runs += 1;
        self.findings.push(finding);
    }

    pub(super) fn missed(&mut self, point: Point) {
        self.runs += 1;
        self.missed.push(point);
    }

    /// An error if anything is wrong, or if so little was tried that it says nothing.
    pub fn verdict(self) -> Result<Self, Broken> {
        let is_tried = self.missed.len() * MISSED_OF <= self.runs;
        if self.findings.is_empty() && is_tried { Ok(self) } else { Err(Broken(self)) }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (runs, writes) = (self.runs, self.writes.len());
        write!(formatter, "{} of {runs} runs over {writes} writes went wrong", self.findings.len())?;
        for Finding { point, write, faults, plan } in &self.findings {
            write!(formatter, "\n{point} ({write}), plan {}:\n  {}", plan.display(), faults.join("\n  "))?;
        }
        for point in &self.missed {
            write!(formatter, "\n{point}: no run had as many writes")?;
        }
        Ok(())
    }
}

/// Where two values differ.
fn differences(place: &str, expected: &Value, actual: &Value, found: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => {
            for (key, value) in expected {
                differences(&format!("{place}.{key}"), value, actual.get(key).unwrap_or(&Value::Null), found);
            }
            for (key, value) in actual.iter().filter(|(key, _)| !expected.contains_key(*key)) {
                differences(&format!("{place}.{key}"), &Value::Null, value, found);
            }
        }
        (Value::Array(expected), Value::Array(actual)) if expected.len() == actual.len() => {
            for (index, (expected, actual)) in expected.iter().zip(actual).enumerate() {
                differences(&format!("{place}[{index}]"), expected, actual, found);
            }
        }
        (Value::Array(expected), Value::Array(actual)) => {
            // One by one, so that an item that is there twice is new once.
            let only = |one: &[Value], other: &[Value]| -> Vec<String> {
                let mut left = other.to_vec();
                let unmatched = one.iter().filter(|value| match left.iter().position(|other| other == *value) {
                    Some(at) => {
                        left.swap_remove(at);
                        false
                    }
                    None => true,
                });
                unmatched.map(ToString::to_string).collect()
            };
            let (missing, new) = (only(expected, actual), only(actual, expected));
            let (expected, actual) = (expected.len(), actual.len());
            found.push(format!("{place} has {actual} items instead of {expected}; missing {missing:?}, new {new:?}"));
        }
        (expected, actual) if expected == actual => {}
        (expected, actual) => found.push(format!("{place} is {actual} instead of {expected}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fault_proxy::Reached;

    fn write(verb: &str, name: &str, code: u16) -> JournalEntry {
        let uri = format!("/api/v1/namespaces/shop/configmaps/{name}");
        JournalEntry {
            request: ApiRequest::parse(&verb.parse().unwrap(), &uri.parse().unwrap()),
            uri,
            mutation: Some(1),
            reached: Reached::Client,
            code: Some(code),
            client_code: None,
            events: 0,
            faults: Vec::new(),
        }
    }

    #[test]
    fn outcomes() {
        let made = [write("PATCH", "a", 201), write("PATCH", "b", 409), write("DELETE", "a", 200)];
        let state = json!({ "configmaps": [{ "name": "b" }] });
        let reference = Outcome::new(state.clone(), &made, true);
        assert_eq!(reference.points().len(), 3 + 2 + 2);
        assert_eq!(reference.write(Point { fault: Fault::KillBefore, nth: 2 }), "patch configmaps b");
        assert_eq!(reference.write(Point { fault: Fault::KillAfter, nth: 2 }), "delete configmaps a");
        for (other, expected) in [
            (reference.clone(), vec![]),
            (Outcome::new(state.clone(), &made[..1], false), vec!["configmaps deleted 0 times instead of 1"]),
            (
                Outcome::new(json!({ "configmaps": [{ "name": "c" }] }), &[&made[..], &made[..1]].concat(), true),
                vec![
                    r#"the end state.configmaps[0].name is "c" instead of "b""#,
                    "configmaps created 2 times instead of 1",
                ],
            ),
            (
                Outcome::new(json!({ "configmaps": [{ "name": "b" }, { "name": "b" }] }), &made, true),
                vec![r#"the end state.configmaps has 2 items instead of 1; missing [], new ["{\"name\":\"b\"}"]"#],
            ),
            (
                Outcome::new(json!({ "configmaps": [], "secrets": 1 }), &made, true),
                vec![
                    r#"the end state.configmaps has 0 items instead of 1; missing ["{\"name\":\"b\"}"], new []"#,
                    "the end state.secrets is 1 instead of null",
                ],
            ),
        ] {
            assert_eq!(reference.differences(&other), expected);
        }
    }

    #[test]
    fn a_report_names_the_write_and_the_plan() {
        let reference = Outcome::new(json!({}), &[write("PATCH", "a", 201)], true);
        let mut report = Report::new(&reference);
        report.survived();
        assert!(Report::new(&reference).verdict().is_ok());
        let point = Point { fault: Fault::KillAfter, nth: 1 };
        let faults = vec!["it is late".to_owned()];
        report.wrong(Finding { point, write: reference.write(point), faults, plan: "/plans/1.yaml".into() });
        assert_eq!(
            report.verdict().unwrap_err().to_string(),
            "1 of 2 runs over 1 writes went wrong\nkilled after write 1 was committed (patch configmaps a), plan \
             /plans/1.yaml:\n  it is late"
        );
    }
    #[test]
    fn what_befell_too_few_runs_shows_nothing() {
        let reference = Outcome::new(json!({}), &[write("PATCH", "a", 201)], true);
        let point = Point { fault: Fault::KillBefore, nth: 9 };
        for (survived, missed, is_enough) in [(3, 1, true), (2, 1, false), (0, 1, false), (6, 2, true)] {
            let mut report = Report::new(&reference);
            (0..survived).for_each(|_| report.survived());
            (0..missed).for_each(|_| report.missed(point));
            let verdict = report.verdict();
            assert_eq!(verdict.is_ok(), is_enough, "{survived} {missed}");
            if let Err(broken) = verdict {
                assert!(broken.to_string().ends_with("\nkilled before write 9: no run had as many writes"), "{broken}");
            }
        }
    }
}
