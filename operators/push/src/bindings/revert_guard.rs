//! A record that another actor removes or sets back, as a tool does that replaces whole objects. The operator restores it at once as long as
//! that is seldom, and with exponential backoff against an actor that goes on. Meanwhile the record stays in force, so changes still reach Vault.

use std::time::Duration;

use konverge_core::contest::Contest;
use tokio::time::Instant;

/// The longest pause before the record is written again. An object with a shorter interval has that interval instead.
const LONGEST: Duration = Duration::from_mins(5);

/// The contest with an actor that removes the record or sets it back.
#[derive(Debug, Clone)]
pub(super) struct RevertGuard {
    contest: Contest,
    /// When the actor did so last.
    last: Instant,
    /// Whether the contest was reported.
    is_told: bool,
}

impl RevertGuard {
    /// The record was removed or set back now, after the reverts `before`. `interval` is how often the object is compared with Vault.
    pub(super) fn again(before: Option<Self>, interval: Option<Duration>) -> Self {
        let longest = interval.map_or(LONGEST, |interval| interval.min(LONGEST));
        let row = before.as_ref().map(|before| (before.contest, before.last.elapsed()));
        let contest = Contest::again(row, longest);
        let is_told = contest.is_fought() && before.is_some_and(|before| before.is_told);
        Self { contest, last: Instant::now(), is_told }
    }

    /// Returns whether the actor goes on, so that it is no accident.
    pub(super) fn is_fought(&self) -> bool {
        self.contest.is_fought() && self.contest.goes_on(self.last.elapsed())
    }

    /// Returns until when the record stays as the actor left it.
    pub(super) fn until(&self) -> Option<Instant> {
        self.last.checked_add(self.contest.pause()).filter(|_| self.is_fought())
    }

    /// Returns whether the contest is to be reported now. That is so once.
    pub(super) fn tell(&mut self) -> bool {
        self.is_fought() && !std::mem::replace(&mut self.is_told, true)
    }
}
