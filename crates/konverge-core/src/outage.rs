//! A circuit breaker for the callers that wait for an endpoint: who may try it next, and when.
//!
//! While the endpoint is down, one waiting caller at a time finds out whether it answers again, at least every [`LONGEST_PAUSE`]. Once it
//! answers, the others are let through one after the other, a thousand in a second, and fewer while they fail. Pure: the time and chance are handed in.

use std::time::{Duration, Instant};

use crate::backoff::Backoff;

/// The longest pause between two probes. One probe per process is cheap, so an outage that is over is noticed soon.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// The pauses between probes.
pub const PROBES: Backoff = Backoff { base: Duration::from_millis(500), factor: 2.0, cap: LONGEST_PAUSE };

/// The pause between two callers that are let through after the outage.
const SPACING: Duration = Duration::from_millis(1);

/// The same while they fail: it doubles with each failure up to this.
const LONGEST_SPACING: Duration = Duration::from_millis(16);

/// How much of a delay is made up for when callers are let through.
const CATCH_UP: Duration = Duration::from_millis(10);

/// How many probes may be unanswered at once. The second begins when the first hangs for [`LONGEST_PAUSE`].
const UNANSWERED: u8 = 2;

/// The state of an endpoint that did not answer.
#[derive(Debug, Clone)]
pub struct Outage {
    stage: Stage,
    /// Probes that have not reported yet.
    unanswered: u8,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    Down {
        /// When the next probe may begin.
        next: Instant,
        /// When this pause began. A try that began before says nothing new.
        since: Instant,
        pauses: u32,
    },
    Recovering {
        /// When the next caller is let through.
        next: Instant,
        spacing: Duration,
        /// When the endpoint answered last.
        answered: Instant,
    },
}

impl Outage {
    /// The endpoint has just failed. `jitter` is from 0 to 1.
    pub fn new(now: Instant, jitter: f64) -> Self {
        Self { stage: down(now, 1, jitter), unanswered: 0 }
    }

    /// Returns when the next waiting caller may try. `None` until one of those that try now has reported.
    pub fn next(&self) -> Option<Instant> {
        match self.stage {
            Stage::Down { .. } if self.unanswered >= UNANSWERED => None,
            Stage::Down { next, .. } | Stage::Recovering { next, .. } => Some(next),
        }
    }

    /// A waiting caller tries now.
    pub fn admit(&mut self, now: Instant) {
        match &mut self.stage {
            Stage::Down { next, .. } => {
                self.unanswered = self.unanswered.saturating_add(1);
                *next = now + LONGEST_PAUSE;
            }
            Stage::Recovering { next, spacing, .. } => {
                *next = now.checked_sub(CATCH_UP).map_or(*next, |earliest| earliest.max(*next)) + *spacing;
            }
        }
    }

    /// A caller that was let through has had an answer.
    pub fn answered(&mut self, now: Instant) {
        let next = match self.stage {
            Stage::Recovering { next, .. } => next,
            Stage::Down { .. } => now,
        };
        self.stage = Stage::Recovering { next, spacing: SPACING, answered: now };
        self.unanswered = 0;
    }

    /// A call that began at `begun` has failed. During the recovery this concerns only what was asked, and the others are let through more
    /// slowly: requests may fail as if the endpoint were away.
    pub fn failed(&mut self, was_admitted: bool, begun: Instant, now: Instant, jitter: f64) {
        if was_admitted {
            self.unanswered = self.unanswered.saturating_sub(1);
        }
        match &mut self.stage {
            Stage::Recovering { answered, spacing, .. } if *answered <= begun => {
                *spacing = (*spacing * 2).min(LONGEST_SPACING);
            }
            Stage::Down { since, pauses, .. } if was_admitted && begun >= *since => {
                self.stage = down(now, pauses.saturating_add(1), jitter);
            }
            Stage::Recovering { .. } | Stage::Down { .. } => {}
        }
    }

    /// Whether the endpoint answers again.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Recovering { .. })
    }
}

fn down(now: Instant, pauses: u32, jitter: f64) -> Stage {
    Stage::Down { next: now + PROBES.delay(pauses, jitter), since: now, pauses }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn one_caller_at_a_time_finds_out_and_the_pauses_grow_to_four_seconds() {
        let mut now = Instant::now();
        let mut outage = Outage::new(now, 1.0);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            let next = outage.next().expect("a time");
            pauses.push((next - now).as_secs_f64());
            now = next;
            outage.admit(now);
            assert!(outage.next() >= Some(now + LONGEST_PAUSE), "one at a time");
            outage.failed(true, now, now, 1.0);
        }
        assert_eq!(pauses, [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]);
    }

    #[test]
    fn a_probe_that_hangs_is_joined_by_a_second_and_no_third() {
        let now = Instant::now();
        let mut outage = Outage::new(now, 1.0);
        outage.admit(now);
        assert_eq!(outage.next(), Some(now + LONGEST_PAUSE));
        outage.admit(now + LONGEST_PAUSE);
        assert_eq!(outage.next(), None);
        let later = now + seconds(30.0);
        outage.failed(true, now, later, 1.0);
        assert!(outage.next().is_some_and(|next| next <= later + LONGEST_PAUSE));
    }

    #[test]
    fn failures_of_others_neither_delay_the_probe_nor_make_its_pause_longer() {
        let now = Instant::now();
        let mut outage = Outage::new(now, 1.0);
        let next = outage.next();
        for tenth in 0..30 {
            let at = now + seconds(f64::from(tenth) / 10.0);
            outage.failed(false, at, at, 1.0);
        }
        assert_eq!(outage.next(), next);
    }

    #[test]
    fn after_an_answer_a_thousand_are_let_through_in_a_second() {
        let now = Instant::now();
        let mut outage = Outage::new(now, 1.0);
        outage.admit(now);
        outage.answered(now);
        let (mut at, mut times) = (now, 0);
        while at < now + seconds(1.0) {
            at = outage.next().expect("a time").max(at);
            outage.admit(at);
            times += 1;
        }
        assert!((1000..=1011).contains(&times), "{times}");
        // Nobody looked for a while: that is not made up for by a burst.
        let late = at + seconds(10.0);
        let mut burst = 0;
        while outage.next().is_some_and(|next| next <= late) {
            outage.admit(late);
            burst += 1;
        }
        assert!((9..=11).contains(&burst), "{burst}");
    }

    #[test]
    fn failures_slow_the_recovery_down_unless_others_are_answered_meanwhile() {
        let now = Instant::now();
        let mut outage = Outage::new(now, 1.0);
        outage.admit(now);
        outage.answered(now + seconds(1.0));
        let spacing = |outage: &mut Outage| {
            let before = outage.next().expect("a time");
            outage.admit(before);
            outage.next().expect("a time") - before
        };
        outage.failed(true, now + seconds(0.5), now + seconds(2.0), 1.0);
        assert_eq!(spacing(&mut outage), SPACING, "another was answered meanwhile");
        for expected in [2, 4, 8, 16, 16] {
            outage.failed(true, now + seconds(1.5), now + seconds(2.0), 1.0);
            assert_eq!(spacing(&mut outage), Duration::from_millis(expected));
        }
        outage.answered(now + seconds(3.0));
        assert_eq!(spacing(&mut outage), SPACING);
        assert!(outage.is_over());
    }

    proptest! {
        /// However probes end, the next one begins within five seconds, unless two hang.
        #[test]
        fn the_next_probe_is_never_far(steps in proptest::collection::vec((0.0..8.0_f64, 0..3_u8, 0.0..1.0_f64), 0..60)) {
            let mut now = Instant::now();
            let mut outage = Outage::new(now, 1.0);
            let mut begun = Vec::new();
            for (passed, what, jitter) in steps {
                now += seconds(passed);
                match what {
                    0 => if outage.next().is_some_and(|next| next <= now) {
                        outage.admit(now);
                        begun.push(now);
                    },
                    1 => if let Some(begun) = begun.pop() {
                        outage.failed(true, begun, now, jitter);
                    },
                    _ => { outage.failed(false, now, now, jitter); }
                }
                match outage.next() {
                    Some(next) => prop_assert!(next <= now + seconds(5.0)),
                    None => prop_assert!(begun.len() >= 2),
                }
            }
        }
    }
}
