//! Whether the stream tells what the polls find.
//!
//! A poll and the stream are two ways to the same news, and either may be the faster one. A change counts as missed only when the
//! stream has not told of it some time after a poll found it.

use std::time::Duration;

use tokio::time::Instant;

use super::Stated;

/// How long the stream may take after a poll: far longer than an event is under way, far shorter than a poll interval.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The changes that the stream owes. It belongs to one stream and goes with it: the first look of the next stream finds the changes that an
/// ended one did not tell.
#[derive(Debug, Default)]
pub(super) struct Missed {
    /// The last version the stream told of.
    told: Option<i64>,
    /// The version that a poll found first, and when the stream is to have told of it.
    owed: Option<(i64, Instant)>,
}

impl Missed {
    /// The stream told of a version.
    pub(super) fn told(&mut self, version: i64) {
        self.told = Some(version);
        // Versions of one environment are told in their order.
        self.owed = self.owed.filter(|(owed, _)| *owed > version);
    }

    /// A poll that began when `before` was known has found `found`. Of several finds in a row the first sets the time, and they
    /// count as one.
    pub(super) fn found(&mut self, before: &Stated, found: &Stated, now: Instant) {
        let went_on = found.environment_id == before.environment_id && found.version > before.version;
        let is_told = went_on && self.told.is_some_and(|told| told >= found.version);
        if !found.agrees_with(before) && !is_told {
            // Versions that were told before prove nothing after this: they may have begun anew.
            self.told = None;
            let until = self.owed.map_or(now + PATIENCE, |(_, until)| until);
            self.owed = Some((found.version, until));
        }
    }

    /// When [`Missed::admit`] is due; `None` while nothing is owed.
    pub(super) fn due(&self) -> Option<Instant> {
        self.owed.map(|(_, until)| until)
    }

    /// The time is over: what is owed is missed, and no longer waited for.
    pub(super) fn admit(&mut self) {
        self.owed = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stated(environment_id: &str, version: i64) -> Stated {
        Stated { environment_id: environment_id.into(), version, content: None, tag: None, since: Instant::now() }
    }

    /// One event of a stream or a poll. The polls begin at version 4 of environment `a`.
    enum Step {
        Told(i64),
        Found(&'static str, i64),
    }
    use Step::{Found, Told};

    #[test]
    fn what_either_way_tells_first_the_other_need_not() {
        let cases: [(&[Step], bool); 13] = [
            (&[], false),
            (&[Found("a", 4)], false),
            (&[Told(4), Found("a", 4)], false),
            // The stream was faster, by one or by two.
            (&[Told(5), Found("a", 5)], false),
            (&[Told(5), Told(6), Found("a", 5)], false),
            // The poll was faster, and the stream follows.
            (&[Found("a", 5), Told(5)], false),
            (&[Found("a", 6), Told(5)], true),
            (&[Found("a", 6), Told(5), Told(6)], false),
            // The stream does not tell.
            (&[Told(4), Found("a", 5)], true),
            (&[Found("a", 5), Found("a", 6), Told(5)], true),
            // A server that was restored, an environment made anew: larger versions that were told prove nothing.
            (&[Told(4), Found("a", 3)], true),
            (&[Told(4), Found("b", 1)], true),
            (&[Told(9), Found("a", 3), Told(3), Found("a", 5)], true),
        ];
        for (number, (steps, owed)) in cases.into_iter().enumerate() {
            let mut missed = Missed::default();
            for step in steps {
                match step {
                    Told(version) => missed.told(*version),
                    Found(id, version) => missed.found(&stated("a", 4), &stated(id, *version), Instant::now()),
                }
            }
            assert_eq!(missed.due().is_some(), owed, "case {number}: {missed:?}");
        }
    }

    #[test]
    fn the_first_find_sets_the_time_and_nothing_is_admitted_twice() {
        let (mut missed, start) = (Missed::default(), Instant::now());
        missed.found(&stated("a", 4), &stated("a", 5), start);
        missed.found(&stated("a", 5), &stated("a", 6), start + PATIENCE / 2);
        assert_eq!(missed.due(), Some(start + PATIENCE));
        missed.admit();
        assert_eq!(missed.due(), None);
    }
}
