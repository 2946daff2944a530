//! The progress of a search: the places that are left, and the time of the next attempt. Pure.

use std::{collections::BTreeMap, time::Duration};

use konverge_core::{backoff::Backoff, error::in_one_line};
use konverge_vault::{Location, Mount};
use tokio::time::Instant;

use crate::orphans::Orphan;

/// The time between the beginnings of two searches.
const SEARCH_INTERVAL: Duration = Duration::from_hours(6);

/// The delays between attempts that do not finish a place. There is one operator that searches, so its delays need no jitter.
const RETRY_DELAYS: Backoff = Backoff { base: Duration::from_secs(10), factor: 2.0, cap: SEARCH_INTERVAL };

/// A place in Vault that a search looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// A folder of an engine. It ends in a slash unless it is the whole engine.
    Folder(Mount, String),
    /// A secret.
    Secret(Location),
}

/// The progress of a search. A search takes as many attempts as it needs, and each attempt continues where the last one ended.
#[derive(Default)]
pub(super) struct Progress {
    /// The beginning of the search. `None` if the next attempt begins one.
    begun: Option<Instant>,
    /// The places of this attempt, the next one at the end.
    left: Vec<Place>,
    /// The places of the next attempt: the request failed, or this process does not know enough of an object yet.
    postponed: Vec<Place>,
    /// The number of attempts since a place was finished.
    attempts: u32,
    /// The content that was found and is not listed yet, keyed by the uid of its object.
    pub(super) found: BTreeMap<String, Orphan>,
    /// The first refusal.
    pub(super) refused: Option<String>,
}

impl Progress {
    /// Begins an attempt. It looks at postponed places last, so that one whose request always fails holds up no other.
    pub(super) fn attempt(&mut self, now: Instant) {
        self.attempts = self.attempts.saturating_add(1);
        if self.is_due(now) {
            self.refused = None;
        }
        self.postponed.append(&mut self.left);
        std::mem::swap(&mut self.left, &mut self.postponed);
    }

    /// Returns `true` if it is time for a new search.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.begun.is_none_or(|begun| now.duration_since(begun) >= SEARCH_INTERVAL)
    }

    /// Begins a search of these places.
    pub(super) fn begin(&mut self, places: impl IntoIterator<Item = Place>, now: Instant) {
        self.begun = Some(now);
        self.left = places.into_iter().collect();
        self.postponed.clear();
        self.attempts = 1;
    }

    /// Has the next attempt begin a new search.
    pub(super) fn restart(&mut self) {
        self.begun = None;
    }

    /// Takes the next place of this attempt.
    pub(super) fn next(&mut self) -> Option<Place> {
        self.left.pop()
    }

    /// Adds the places in a folder.
    pub(super) fn extend(&mut self, places: impl Iterator<Item = Place>) {
        self.left.extend(places);
    }

    /// Records that a place is finished.
    pub(super) fn done(&mut self) {
        self.attempts = 0;
    }

    /// Leaves a place to the next attempt.
    pub(super) fn postpone(&mut self, place: Place) {
        self.postponed.push(place);
    }

    /// Records a refusal.
    pub(super) fn refuse(&mut self, error: &dyn std::error::Error) {
        self.refused.get_or_insert_with(|| in_one_line(error));
    }

    /// Returns `true` if all places were looked at and all that was found is listed.
    pub(super) fn is_complete(&self) -> bool {
        self.begun.is_some() && self.left.is_empty() && self.postponed.is_empty() && self.found.is_empty()
    }

    /// Returns the time until the next attempt.
    pub(super) fn pause(&self, now: Instant) -> Duration {
        if self.is_complete() {
            self.begun.map_or(SEARCH_INTERVAL, |begun| SEARCH_INTERVAL.saturating_sub(now.duration_since(begun)))
        } else {
            RETRY_DELAYS.delay(self.attempts, 1.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use konverge_vault::KvVersion;

    use super::*;

    fn folder(name: &str) -> Place {
        Place::Folder(Mount::new("secret", KvVersion::Two), name.to_owned())
    }

    /// Finishes all places of one attempt but these. Returns the places in the order in which it looked at them.
    fn attempt(progress: &mut Progress, postponed: &[Place], fails: bool) -> Vec<Place> {
        progress.attempt(Instant::now());
        let mut looked = Vec::new();
        while let Some(place) = progress.next() {
            looked.push(place.clone());
            if !postponed.contains(&place) {
                progress.done();
                continue;
            }
            progress.postpone(place);
            if fails {
                break;
            }
        }
        looked
    }

    #[test]
    fn an_attempt_that_failed_is_continued_with_the_other_places_first() {
        let [a, b, c] = ["a/", "b/", "c/"].map(folder);
        let mut progress = Progress::default();
        progress.begin([a.clone(), b.clone(), c.clone()], Instant::now());
        assert_eq!(attempt(&mut progress, std::slice::from_ref(&b), true), [c, b.clone()]);
        assert_eq!(attempt(&mut progress, std::slice::from_ref(&b), true), [a, b.clone()]);
        assert!(!progress.is_complete());
        assert_eq!(attempt(&mut progress, &[], false), [b]);
        assert!(progress.is_complete());
    }

    #[test]
    fn attempts_become_rarer_as_long_as_none_finishes_a_place() {
        let now = Instant::now();
        let [a, b] = ["a/", "b/"].map(folder);
        let mut progress = Progress::default();
        progress.begin([a.clone(), b.clone()], now);
        let mut pause = |postponed: &[Place]| {
            attempt(&mut progress, postponed, false);
            progress.pause(now).as_secs()
        };
        let (one, both) = ([a.clone()], [a, b]);
        assert_eq!([pause(&both), pause(&both), pause(&both)], [20, 40, 80]);
        assert_eq!([pause(&one), pause(&one), pause(&one)], [10, 10, 20]);
        assert_eq!(pause(&[]), SEARCH_INTERVAL.as_secs());
    }

    #[test]
    fn a_search_begins_at_first_after_a_loss_and_after_the_interval() {
        let (now, mut progress) = (Instant::now(), Progress::default());
        assert!(progress.is_due(now));
        progress.begin([folder("a/")], now);
        for (hours, expected) in [(0, false), (5, false), (6, true)] {
            assert_eq!(progress.is_due(now + Duration::from_hours(hours)), expected, "{hours}");
        }
        progress.restart();
        assert!(progress.is_due(now));
    }

    #[test]
    fn a_refusal_is_told_until_the_next_search_begins() {
        let (now, mut progress) = (Instant::now(), Progress::default());
        progress.begin([folder("a/")], now);
        progress.refuse(&std::fmt::Error);
        progress.attempt(now);
        assert!(progress.refused.is_some(), "the same search continues");
        progress.restart();
        progress.attempt(now);
        assert_eq!(progress.refused, None);
        progress.refuse(&std::fmt::Error);
        progress.begin([], now);
        assert!(progress.refused.is_some(), "it is one of this attempt");
    }
}
