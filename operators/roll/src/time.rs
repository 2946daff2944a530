//! Time, on both clocks of the machine.
//!
//! A wall clock is set: by a person, by NTP, after a machine was asleep. The monotonic clock is not. So everything that begins and ends within this process is
//! measured on the monotonic clock. The wall clock is for people, and for records, which outlive the process.

use std::{sync::LazyLock, time::Instant};

use jiff::{SignedDuration, Timestamp};

/// A moment, read from both clocks at once. Two moments are compared by the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// On the monotonic clock, in nanoseconds since this process has first asked. Negative for what was before.
    monotonic: i64,
    /// On the wall clock, in nanoseconds since the Unix epoch.
    wall: i64,
}

/// The origin of the monotonic clock.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Time {
    /// The last moment.
    pub const MAX: Self = Self { monotonic: i64::MAX, wall: i64::MAX };

    /// Reads both clocks.
    pub fn now() -> Self {
        // The origin comes first, so that the first moment is not before it.
        let origin = *ORIGIN;
        let monotonic = i64::try_from(origin.elapsed().as_nanos()).unwrap_or(i64::MAX);
        Self { monotonic, wall: nanoseconds(Timestamp::now()) }
    }

    /// Returns the moment of a wall-clock time that was recorded, perhaps by another process. Returns `None` if that lies in the future, which means that a clock
    /// was wrong.
    pub fn recorded(self, wall: Timestamp) -> Option<Self> {
        let wall = nanoseconds(wall);
        let ago = self.wall.saturating_sub(wall);
        (ago >= 0).then(|| Self { monotonic: self.monotonic.saturating_sub(ago), wall })
    }

    /// The same, and this moment instead of one in the future: what is measured from it ends no later than if it had just begun.
    #[must_use]
    pub fn recorded_or_now(self, wall: Timestamp) -> Self {
        self.recorded(wall).unwrap_or(self)
    }

    /// Returns the wall-clock time, for people and for records.
    pub fn wall(self) -> Timestamp {
        Timestamp::from_nanosecond(i128::from(self.wall)).unwrap_or(Timestamp::MAX)
    }

    /// Returns the moment so much later.
    #[must_use]
    pub fn later(self, span: SignedDuration) -> Self {
        let span = i64::try_from(span.as_nanos()).unwrap_or(if span.is_negative() { i64::MIN } else { i64::MAX });
        Self { monotonic: self.monotonic.saturating_add(span), wall: self.wall.saturating_add(span) }
    }

    /// Returns how long ago `earlier` was. Negative if it is later.
    pub fn since(self, earlier: Self) -> SignedDuration {
        SignedDuration::from_nanos(self.monotonic.saturating_sub(earlier.monotonic))
    }

    /// Returns a moment of a test: so many seconds after the origin of both clocks.
    #[cfg(test)]
    pub(crate) const fn at(second: i64) -> Self {
        Self { monotonic: second * 1_000_000_000, wall: second * 1_000_000_000 }
    }
}

/// The shortest span in a spec. Vault is asked no more often, and no tool syncs a Secret faster: a workload would be rolled twice for each change.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// Reads a span of time that a user has written, such as `90s`.
///
/// # Errors
///
/// Returns the next step for the user if the text is not a span, or if the span is negative.
pub fn span(text: &str) -> Result<SignedDuration, &'static str> {
    let span = text.trim().parse::<SignedDuration>().ok().filter(|span| !span.is_negative());
    span.ok_or("write a span of time, such as 90s, 5m or 1h30m")
}

/// Reads a span of a second or more in a field of a spec. The error names the field, and `example` as one of two spans.
pub(crate) fn span_of_field(field: &str, text: &str, example: &str) -> Result<SignedDuration, String> {
    let span = text.trim().parse::<SignedDuration>().ok().filter(|span| *span >= SECOND);
    span.ok_or_else(|| format!("{field}: {text:?} is no span of time of a second or more, such as {example} or 5m"))
}

fn nanoseconds(wall: Timestamp) -> i64 {
    let nanoseconds = wall.as_nanosecond();
    i64::try_from(nanoseconds).unwrap_or(if nanoseconds < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: SignedDuration = SignedDuration::from_mins(1);

    #[test]
    fn a_wall_clock_that_is_set_changes_no_measurement() {
        let before = Time::at(1000);
        // A minute later, while somebody has set the wall clock back by an hour.
        let after = Time { wall: Time::at(1000 - 3600).wall, ..before.later(MINUTE) };
        assert!(after > before);
        assert_eq!(after.since(before), MINUTE);
        assert_eq!(
            before.later(MINUTE).wall(),
            Timestamp::from_second(1060).unwrap(),
            "people see the time that was told"
        );
    }

    #[test]
    fn what_is_recorded_is_as_long_ago_as_the_wall_clock_says_and_never_in_the_future() {
        let now = Time { monotonic: 5_000_000_000, ..Time::at(1000) };
        let wall = |second| Timestamp::from_second(second).unwrap();
        let recorded = now.recorded(wall(940)).unwrap();
        assert_eq!((now.since(recorded), recorded.wall()), (MINUTE, wall(940)));
        assert_eq!(now.recorded(wall(1000)), Some(now));
        assert_eq!((now.recorded(wall(1001)), now.recorded_or_now(wall(1001))), (None, now));
        assert_eq!(now.recorded(Timestamp::MAX), None);
        assert!(now.recorded(Timestamp::MIN).is_some_and(|long_ago| long_ago < recorded));
    }

    #[test]
    fn for_ever_is_no_overflow() {
        assert_eq!(Time::MAX.later(SignedDuration::MAX), Time::MAX);
        assert_eq!(Time::at(0).later(SignedDuration::MAX), Time::MAX);
        assert!(Time::MAX.since(Time::at(-1)).is_positive() && Time::MAX.wall() > Time::at(0).wall());
    }

    #[test]
    fn the_clocks_go_on() {
        let first = Time::now();
        let second = Time::now();
        assert!(second >= first && second.since(first) < MINUTE);
    }
}
