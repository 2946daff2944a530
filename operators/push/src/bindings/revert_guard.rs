//! A record that another actor removes or sets back, as a tool does that replaces whole objects. The operator restores it at once as long as
//! that is seldom, and with exponential backoff against an actor that goes on. Meanwhile the record stays in force, so changes still reach Vault.

use std::time::Duration;

use konverge_core::contest::Contest;
use tokio::time::Instant;

use super::ParsedSpec;

/// An object without an interval, or with a longer one, has its record written again each so long.
const LONGEST: Duration = Duration::from_mins(5);

/// That it was taken away or set back.
#[derive(Debug, Clone)]
pub(super) struct RevertGuard {
    contest: Contest,
    /// When it was last.
    last: Instant,
    /// Whether somebody was told.
    is_told: bool,
}

impl RevertGuard {
    /// Now, of an object that asks for this, after what was before.
    pub(super) fn again(before: Option<Self>, spec: &ParsedSpec) -> Self {
        let interval = if let ParsedSpec::Push(push) = spec { push.spec.every } else { None };
        let longest = interval.map_or(LONGEST, |interval| interval.min(LONGEST));
        let row = before.as_ref().map(|before| (before.contest, before.last.elapsed()));
        let contest = Contest::again(row, longest);
        let is_told = contest.is_fought() && before.is_some_and(|before| before.is_told);
        Self { contest, last: Instant::now(), is_told }
    }

    /// Whether it is no accident any more.
    pub(super) fn is_fought(&self) -> bool {
        self.contest.is_fought() && self.contest.goes_on(self.last.elapsed())
    }

    /// Until when who did it has it his way.
    pub(super) fn until(&self) -> Option<Instant> {
        self.last.checked_add(self.contest.pause()).filter(|_| self.is_fought())
    }

    /// Whether it is to be told, which it is once.
    pub(super) fn tell(&mut self) -> bool {
        self.is_fought() && !std::mem::replace(&mut self.is_told, true)
    }
}
