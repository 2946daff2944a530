//! A source that changes too often is not followed until it is quiet. A broken controller does that, or two controllers that write against each other. A state machine;
//! the time is handed in.

use std::{collections::VecDeque, iter::repeat_n};

use jiff::SignedDuration;

use crate::time::Time;

/// The limits of the breaker.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// After so many changes; never if it is zero.
    pub changes: usize,
    /// Within this time.
    pub within: SignedDuration,
    /// Until it has not changed for so long.
    pub quiet: SignedDuration,
}

/// The recent changes of one source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Breaker {
    changes: VecDeque<Time>,
    open_until: Option<Time>,
}

impl Breaker {
    /// The content changed so many times since it was last looked at. Returns whether that is what opens it.
    #[must_use]
    pub fn changed(&mut self, times: usize, now: Time, settings: &Settings) -> bool {
        if settings.changes == 0 {
            return false;
        }
        if self.open_until.is_some_and(|until| until <= now) {
            // It begins anew.
            *self = Self::default();
        }
        let was_open = self.open_until.is_some();
        self.changes.retain(|time| now.since(*time) < settings.within);
        self.changes.extend(repeat_n(now, times.min(settings.changes)));
        // More than these say nothing new.
        while self.changes.len() > settings.changes {
            self.changes.pop_front();
        }
        if was_open || self.changes.len() == settings.changes {
            self.open_until = Some(now.later(settings.quiet));
        }
        self.open_until.is_some() && !was_open
    }

    /// Until when it is open if nothing changes; nothing if it is closed.
    pub fn open_until(&self, now: Time) -> Option<Time> {
        self.open_until.filter(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SETTINGS: Settings =
        Settings { changes: 3, within: SignedDuration::from_secs(10), quiet: SignedDuration::from_secs(20) };

    fn at(second: i64) -> Time {
        Time::at(second)
    }

    #[test]
    fn it_opens_once_stays_open_while_changes_come_and_closes_when_it_is_quiet() {
        let mut breaker = Breaker::default();
        assert_eq!([0, 5, 11].map(|second| breaker.changed(1, at(second), &SETTINGS)), [false; 3], "the first is past");
        assert_eq!(breaker.open_until(at(11)), None);
        assert!(breaker.changed(1, at(12), &SETTINGS));
        assert!(!breaker.changed(1, at(31), &SETTINGS), "said already");
        assert_eq!(breaker.open_until(at(50)), Some(at(51)));
        assert_eq!(breaker.open_until(at(51)), None);
        assert!(!breaker.changed(1, at(51), &SETTINGS), "it begins anew");
        assert_eq!(breaker.open_until(at(51)), None);
    }

    #[test]
    fn what_is_looked_at_seldom_may_have_changed_often() {
        let mut breaker = Breaker::default();
        assert!(!breaker.changed(2, at(0), &SETTINGS));
        assert!(breaker.changed(1, at(9), &SETTINGS));
        let mut breaker = Breaker::default();
        assert!(breaker.changed(1000, at(0), &SETTINGS));
        assert_eq!(breaker.changes.len(), SETTINGS.changes, "more are not remembered");
    }

    #[test]
    fn it_can_be_switched_off() {
        let mut breaker = Breaker::default();
        let never = Settings { changes: 0, ..SETTINGS };
        assert!((0..100).all(|_| !breaker.changed(1, at(0), &never)));
        assert_eq!(breaker, Breaker::default());
    }

    proptest! {
        /// Open exactly after so many changes within the time, until so long after the last one.
        #[test]
        fn as_counted_by_hand(pauses in proptest::collection::vec(0..30_i64, 1..60)) {
            let mut breaker = Breaker::default();
            let (mut now, mut open_until) = (0, None::<i64>);
            let mut counted: Vec<i64> = Vec::new();
            for pause in pauses {
                now += pause;
                if open_until.is_some_and(|until| until <= now) {
                    open_until = None;
                    counted.clear();
                }
                counted.push(now);
                let recent = counted.iter().filter(|time| now - **time < 10).count();
                let opens = open_until.is_none() && recent >= 3;
                if opens || open_until.is_some() {
                    open_until = Some(now + 20);
                }
                prop_assert_eq!(breaker.changed(1, at(now), &SETTINGS), opens);
                prop_assert_eq!(breaker.open_until(at(now)), open_until.map(at));
                prop_assert!(breaker.changes.len() <= 3);
            }
        }
    }
}
