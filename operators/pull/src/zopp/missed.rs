//! Whether the stream tells what the polls find.
//!
//! A poll and the stream are two ways to the same news, and either may be the faster one. A change counts as missed only when the
//! stream has not told of it some time after a poll found it.

use std::time::Duration;

use tokio::time::Instant;

use crate::hub::Stated;

/// How long the stream may take after a poll: far longer than an event is under way, far shorter than a poll interval.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The changes that the stream owes. It belongs to one stream and goes with it: the first look of the next stream finds the changes that an
/// ended one did not tell.
#[derive(Debug, Default)]
pub(super) struct Missed {
    /// The last version the stream told of.
    streamed: Option<i64>,
    /// The version that a poll found first, and when the stream is to have told of it.
    owed: Option<(i64, Instant)>,
}

impl Missed {
    /// The stream told of a version.
    pub(super) fn streamed(&mut self, version: i64) {
        self.streamed = Some(version);
        // Versions of one environment are told in their order.
        self.owed = self.owed.filter(|(owed, _)| *owed > version);
    }

    /// A poll that began when `before` was known has found `found`. Of several finds in a row the first sets the time, and they
    /// count as one.
    pub(super) fn polled(&mut self, before: &Stated, found: &Stated, now: Instant) {
        let went_on =
            found.revision.identity == before.revision.identity && found.revision.number > before.revision.number;
        let is_told = went_on && self.streamed.is_some_and(|streamed| streamed >= found.revision.number);
        if !found.revision.agrees_with(&before.revision) && !is_told {
            // Versions that were told before prove nothing after this: they may have begun anew.
            self.streamed = None;
            let until = self.owed.map_or(now + PATIENCE, |(_, until)| until);
            self.owed = Some((found.revision.number, until));
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
    use crate::source::{Revision, Succession};

    fn stated(environment_id: &str, version: i64) -> Stated {
        let revision = Revision { identity: environment_id.into(), number: version, fingerprint: None };
        Stated { revision, succession: Succession::Unproven, tag: None, since: Instant::now() }
    }

    /// One event of a stream or a poll. The polls begin at version 4 of environment `a`.
    enum Step {
        Streamed(i64),
        Polled(&'static str, i64),
    }
    use Step::{Polled, Streamed};

    #[test]
    fn what_either_way_tells_first_the_other_need_not() {
        let cases: [(&[Step], bool); 13] = [
            (&[], false),
            (&[Polled("a", 4)], false),
            (&[Streamed(4), Polled("a", 4)], false),
            // The stream was faster, by one or by two.
            (&[Streamed(5), Polled("a", 5)], false),
            (&[Streamed(5), Streamed(6), Polled("a", 5)], false),
            // The poll was faster, and the stream follows.
            (&[Polled("a", 5), Streamed(5)], false),
            (&[Polled("a", 6), Streamed(5)], true),
            (&[Polled("a", 6), Streamed(5), Streamed(6)], false),
            // The stream does not tell.
            (&[Streamed(4), Polled("a", 5)], true),
            (&[Polled("a", 5), Polled("a", 6), Streamed(5)], true),
            // A server that was restored, an environment made anew: larger versions that were told prove nothing.
            (&[Streamed(4), Polled("a", 3)], true),
            (&[Streamed(4), Polled("b", 1)], true),
            (&[Streamed(9), Polled("a", 3), Streamed(3), Polled("a", 5)], true),
        ];
        for (number, (steps, owed)) in cases.into_iter().enumerate() {
            let mut missed = Missed::default();
            for step in steps {
                match step {
                    Streamed(version) => missed.streamed(*version),
                    Polled(id, version) => missed.polled(&stated("a", 4), &stated(id, *version), Instant::now()),
                }
            }
            assert_eq!(missed.due().is_some(), owed, "case {number}: {missed:?}");
        }
    }

    #[test]
    fn the_first_find_sets_the_time_and_nothing_is_admitted_twice() {
        let (mut missed, start) = (Missed::default(), Instant::now());
        missed.polled(&stated("a", 4), &stated("a", 5), start);
        missed.polled(&stated("a", 5), &stated("a", 6), start + PATIENCE / 2);
        assert_eq!(missed.due(), Some(start + PATIENCE));
        missed.admit();
        assert_eq!(missed.due(), None);
    }
}
