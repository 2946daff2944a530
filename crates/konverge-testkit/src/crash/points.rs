//! Where a fault can befall a run. No IO.

use std::fmt;

use super::OPERATOR;
use crate::fault_proxy::{Action, Phase, Plan, PlanError, Rule, Trigger};

/// The fault of a write. A test that injects faults itself is to deal with each, so a further variant breaks it on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The operator is killed before the write is forwarded.
    KillBefore,
    /// The operator is killed after the write is committed.
    KillAfter,
    /// The write is committed, and the operator hears only that its connection broke.
    ReplyLost,
}

/// A fault and the write that it befalls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Point {
    /// The fault.
    pub fault: Fault,
    /// Which write, from 1. Before commit all that arrive count, after commit those that succeed.
    pub nth: u64,
}

impl Point {
    /// All points of a run in which so many writes arrived and so many of them were committed.
    pub(super) fn all(arrived: usize, committed: usize) -> Vec<Self> {
        let point = |fault| move |nth: usize| Self { fault, nth: nth as u64 };
        let before = (1..=arrived).map(point(Fault::KillBefore));
        let after = (1..=committed).map(point(Fault::KillAfter));
        before.chain(after).chain((1..=committed).map(point(Fault::ReplyLost))).collect()
    }

    /// The plan in which only this happens.
    pub(super) fn plan(self, writes: &Trigger) -> Result<Plan, PlanError> {
        let (phase, action) = match self.fault {
            Fault::KillBefore => (Phase::Before, Action::Kill(OPERATOR.to_owned())),
            Fault::KillAfter => (Phase::After, Action::Kill(OPERATOR.to_owned())),
            Fault::ReplyLost => (Phase::After, Action::Drop),
        };
        let nth = std::num::NonZeroU64::new(self.nth);
        let when = Trigger { phase, nth, every: None, probability: None, ..writes.clone() };
        Ok(Plan { seed: 0, rules: vec![Rule::new(when, action)?] })
    }

    pub(super) fn file_name(self) -> String {
        let fault = match self.fault {
            Fault::KillBefore => "kill-before",
            Fault::KillAfter => "kill-after",
            Fault::ReplyLost => "reply-lost",
        };
        format!("{fault}-{}", self.nth)
    }
}

impl fmt::Display for Point {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault {
            Fault::KillBefore => write!(formatter, "killed before write {}", self.nth),
            Fault::KillAfter => write!(formatter, "killed after write {} was committed", self.nth),
            Fault::ReplyLost => write!(formatter, "reply to write {} lost after commit", self.nth),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_write_has_its_points() {
        let said: Vec<String> = Point::all(2, 1).iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "killed before write 1",
                "killed before write 2",
                "killed after write 1 was committed",
                "reply to write 1 lost after commit"
            ]
        );
    }

    #[test]
    fn a_point_is_a_plan_that_can_be_read_again() {
        let writes = Trigger { mutating: Some(true), except: vec!["events".into()], ..Trigger::default() };
        for (fault, text) in [
            (Fault::KillBefore, "- { when: { mutating: true, except: [events], nth: 3 }, then: { kill: operator } }"),
            (
                Fault::KillAfter,
                "- { when: { phase: after, mutating: true, except: [events], nth: 3 }, then: { kill: operator } }",
            ),
            (Fault::ReplyLost, "- { when: { phase: after, mutating: true, except: [events], nth: 3 }, then: drop }"),
        ] {
            let plan = Point { fault, nth: 3 }.plan(&writes).unwrap();
            assert_eq!(plan, Plan::parse(&format!("rules:\n{text}")).unwrap());
        }
    }
}
