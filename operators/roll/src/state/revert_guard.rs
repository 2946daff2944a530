//! Records that somebody takes away or sets back, as a repository does that replaces whole objects. Judged by the reverted record, content that the pods have would be rolled once more, or be taken for new, at each round of such a tool. The earlier record stays in force and is restored: at once while that is rare, and with exponential backoff if it goes on.

use std::time::Duration;

use jiff::SignedDuration;
use konverge_core::contest::Contest;

use crate::{record::Record, time::Time};

/// No pause is longer than this. A longer time without a revert ends the row.
const LONGEST: Duration = Duration::from_mins(10);

/// A record that somebody has removed from a workload or set back.
#[derive(Debug, Clone)]
pub struct RevertGuard {
    /// The record as it stood.
    record: String,
    /// The row of reverts.
    contest: Contest,
    /// When it was last.
    last: Time,
}

impl RevertGuard {
    /// Returns the guard of the record that `stood` there, if the one that is `shown` says less. `before` is the guard of an earlier revert.
    pub(crate) fn of(stood: Option<&str>, shown: Option<&str>, before: Option<&Self>, now: Time) -> Option<Self> {
        let stood = stood.filter(|stood| is_behind(shown, stood))?;
        Some(Self::now(stood.to_owned(), before, now))
    }

    /// Returns the record as it stood.
    pub(crate) fn record(&self) -> &str {
        &self.record
    }

    /// This record was taken now, after what was taken before.
    fn now(record: String, before: Option<&Self>, now: Time) -> Self {
        let row = before.map(|before| (before.contest, before.quiet(now)));
        Self { record, contest: Contest::again(row, LONGEST), last: now }
    }

    /// Until when the one who did it is left to himself.
    pub(crate) fn until(&self) -> Time {
        self.last.later(SignedDuration::try_from(self.contest.pause()).unwrap_or(SignedDuration::MAX))
    }

    /// Whether it is no accident any more.
    pub(crate) fn is_contested(&self, now: Time) -> bool {
        self.contest.is_fought() && self.contest.goes_on(self.quiet(now))
    }

    /// How long nothing was reverted.
    fn quiet(&self, now: Time) -> Duration {
        Duration::try_from(now.since(self.last)).unwrap_or_default()
    }
}

/// Whether what is shown tells less than what stood there, which somebody has taken away or set back by that.
fn is_behind(shown: Option<&str>, stood: &str) -> bool {
    let Some(stood) = Record::of_any(stood) else { return false };
    let shown = shown.and_then(|shown| Record::read(shown, &stood.tag));
    shown.is_none_or(|shown| shown.rolled < stood.rolled)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn at(second: i64) -> Time {
        Time::at(second)
    }

    #[test]
    fn a_fight_ends_in_a_write_each_ten_minutes_and_is_forgotten_when_it_is_over() {
        let mut taken: Option<RevertGuard> = None;
        let mut now = 1000;
        let mut pauses = Vec::new();
        for _ in 0..16 {
            taken = Some(RevertGuard::now("r".to_owned(), taken.as_ref(), at(now)));
            let until = taken.as_ref().unwrap().until().wall().as_second();
            pauses.push(until - now);
            // It is written when the pause is over, and taken at once.
            now = until;
        }
        assert!(taken.as_ref().unwrap().is_contested(at(now)));
        assert_eq!(pauses, [0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600]);
        for (what, after, expected) in [("it goes on", 600, true), ("it was over", 601, false)] {
            let again = RevertGuard::now("r".to_owned(), taken.as_ref(), at(now + after));
            assert_eq!(again.is_contested(at(now + after)), expected, "{what}");
        }
    }

    #[test]
    fn for_ever_is_no_overflow() {
        let taken = RevertGuard { last: Time::MAX, ..RevertGuard::now(String::new(), None, at(0)) };
        assert_eq!(taken.until(), Time::MAX);
        assert_eq!(RevertGuard::now(String::new(), Some(&taken), Time::MAX).until(), Time::MAX);
    }

    #[test]
    fn what_tells_less_is_behind() {
        let record = |tag: &str, rolled: Option<i64>| {
            Record {
                tag: tag.to_owned(),
                content: BTreeMap::new(),
                rolled: rolled.map(|second| at(second).wall()),
                because: None,
                also: Vec::new(),
            }
            .text()
        };
        let stood = record("t", Some(100));
        for (what, shown, expected) in [
            ("taken away", None, true),
            ("no record", Some("x".to_owned()), true),
            ("another's", Some(record("u", Some(200))), true),
            ("from before its last rollout", Some(record("t", Some(99))), true),
            ("from before it was ever rolled", Some(record("t", None)), true),
            ("a note of the same", Some(record("t", Some(100))), false),
            ("another rollout", Some(record("t", Some(101))), false),
        ] {
            assert_eq!(is_behind(shown.as_deref(), &stood), expected, "{what}");
        }
        assert!(!is_behind(None, "x"), "there was none");
    }
}
