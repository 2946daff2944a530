//! Records that somebody takes away or sets back, as a repository does that replaces whole objects. Judged by what is left, content that the pods
//! have would be rolled again or be taken for new, and a tool that does it at each of its rounds would have it so each time. What was known
//! before goes on to hold, and is written down again: at once as long as that is seldom, and later and later against one who goes on.

use jiff::{SignedDuration, Timestamp};

use super::Known;
use crate::{digest::Digester, record::Record};

/// So often it is written down again at once: somebody may have replaced the object by hand.
const AT_ONCE: u32 = 3;

/// The first pause. Each is twice as long as the one before.
const FIRST: SignedDuration = SignedDuration::from_secs(1);

/// No pause is longer than this. Who has let a record be for so long after one has ended it.
const LONGEST: SignedDuration = SignedDuration::from_mins(10);

/// What was taken.
#[derive(Debug)]
pub(super) struct Taken {
    /// The record as it stood.
    record: String,
    /// How often in a row.
    times: u32,
    /// When it was last.
    last: Timestamp,
}

impl Taken {
    /// This record was taken now, after what was taken before.
    fn now(record: String, before: Option<&Self>, now: Timestamp) -> Self {
        let goes_on = before.filter(|before| before.goes_on(now));
        Self { record, times: goes_on.map_or(1, |before| before.times.saturating_add(1)), last: now }
    }

    fn pause(&self) -> SignedDuration {
        let doublings = self.times.saturating_sub(AT_ONCE);
        if doublings == 0 {
            return SignedDuration::ZERO;
        }
        let longer = 1_i32.checked_shl(doublings - 1).filter(|times| *times > 0);
        longer.and_then(|times| FIRST.checked_mul(times)).map_or(LONGEST, |pause| pause.min(LONGEST))
    }

    /// Until when the one who did it is left to himself.
    fn until(&self) -> Timestamp {
        self.last.checked_add(self.pause()).unwrap_or(Timestamp::MAX)
    }

    /// Whether it is no accident any more.
    fn is_fought(&self, now: Timestamp) -> bool {
        self.times > AT_ONCE && self.goes_on(now)
    }

    fn goes_on(&self, now: Timestamp) -> bool {
        now.duration_since(self.last) <= self.pause() + LONGEST
    }
}

impl Known {
    /// What was known before of its record goes on to hold, if the one that is shown is behind it and is not what we write ourselves.
    pub(super) fn keep_record(&mut self, before: &mut Self, now: Timestamp) {
        self.taken = before.taken.take();
        if self.record == before.record || (self.record.is_some() && self.record == before.ours.record) {
            return;
        }
        if let Some(stood) = before.record.as_ref().filter(|stood| is_behind(self.record.as_deref(), stood)) {
            self.taken = Some(Box::new(Taken::now(stood.clone(), self.taken.as_deref(), now)));
        }
    }

    /// Its record, if it is its own, or the one that was there before and tells more.
    pub(super) fn record(&self, digester: &Digester) -> Option<Record> {
        self.own_record(digester).0
    }

    /// The same, and whether it is the one that stands on it.
    pub(super) fn own_record(&self, digester: &Digester) -> (Option<Record>, bool) {
        let read = |text: &str| Record::read(text, &digester.tag(&self.uid));
        let shown = self.record.as_deref().and_then(read);
        let taken = self.taken.as_ref().and_then(|taken| read(&taken.record));
        match (shown, taken) {
            (Some(shown), Some(taken)) if shown.rolled < taken.rolled => (Some(taken), false),
            (None, Some(taken)) => (Some(taken), false),
            (shown, _) => (shown, true),
        }
    }

    /// Until when its record is not written down again, if somebody takes it again and again.
    pub(super) fn fought(&self, now: Timestamp) -> Option<Timestamp> {
        self.taken.as_ref().filter(|taken| taken.is_fought(now)).map(|taken| taken.until())
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

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_fight_ends_in_a_write_each_ten_minutes_and_is_forgotten_when_it_is_over() {
        let mut taken: Option<Taken> = None;
        let mut now = 1000;
        let mut pauses = Vec::new();
        for _ in 0..16 {
            taken = Some(Taken::now("r".to_owned(), taken.as_ref(), at(now)));
            let until = taken.as_ref().unwrap().until().as_second();
            pauses.push(until - now);
            // It is written when the pause is over, and taken at once.
            now = until;
        }
        assert!(taken.as_ref().unwrap().is_fought(at(now)));
        assert_eq!(pauses, [0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600]);
        for (what, after, expected) in [("it goes on", 600, 17), ("it was over", 601, 1)] {
            assert_eq!(Taken::now("r".to_owned(), taken.as_ref(), at(now + after)).times, expected, "{what}");
        }
    }

    #[test]
    fn for_ever_is_no_overflow() {
        let taken = Taken { record: String::new(), times: u32::MAX, last: Timestamp::MAX };
        assert_eq!((taken.pause(), taken.until()), (LONGEST, Timestamp::MAX));
        assert_eq!(Taken::now(String::new(), Some(&taken), Timestamp::MAX).times, u32::MAX);
    }

    #[test]
    fn what_tells_less_is_behind() {
        let record = |tag: &str, rolled: Option<i64>| {
            Record {
                tag: tag.to_owned(),
                content: BTreeMap::new(),
                rolled: rolled.map(at),
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
