//! How a controller works: how many runs at once, how long, how often.

use std::time::Duration;

use konverge_core::backoff::Backoff;
use konverge_runtime::{controller::Rate, object::Object};

use super::Controller;

/// How a controller works.
#[derive(Debug, Clone)]
pub(crate) struct How {
    pub(crate) workers: usize,
    pub(crate) time_limit: Duration,
    pub(crate) backoff: Backoff,
    pub(crate) rate: Option<Rate>,
    pub(crate) rest: Duration,
    pub(crate) debounce: Duration,
    pub(crate) resync: Duration,
    pub(crate) schedules: Vec<String>,
    pub(crate) has_own_lease: bool,
}

impl Default for How {
    fn default() -> Self {
        Self {
            workers: 8,
            time_limit: Duration::from_secs(300),
            backoff: Backoff::default(),
            rate: None,
            rest: Duration::ZERO,
            debounce: Duration::ZERO,
            resync: Duration::from_secs(36_000),
            schedules: Vec::new(),
            has_own_lease: false,
        }
    }
}

impl<K: Object, R> Controller<K, R> {
    /// How many objects are worked on at once; eight unless said.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.how.workers = workers;
        self
    }

    /// How long one run may take; five minutes unless said.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.how.time_limit = limit;
        self
    }

    /// The pauses after failures; 1 second to 5 minutes unless said.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.how.backoff = backoff;
        self
    }

    /// How many runs may begin, of all objects together; any number unless said.
    #[must_use]
    pub fn rate(mut self, rate: Rate) -> Self {
        self.how.rate = Some(rate);
        self
    }

    /// How much time is between the beginnings of two runs of one object, whatever asks for the second: changes, failures, people; none
    /// unless said.
    #[must_use]
    pub fn min_interval(mut self, interval: Duration) -> Self {
        self.how.rest = interval;
        self
    }

    /// How long to wait after a change, so that several become one run; not at all unless said.
    #[must_use]
    pub fn debounce(mut self, debounce: Duration) -> Self {
        self.how.debounce = debounce;
        self
    }

    /// How often an object is looked at although nothing happened, each at its own moment of the period; every ten hours unless said.
    #[must_use]
    pub fn resync(mut self, resync: Duration) -> Self {
        self.how.resync = resync;
        self
    }

    /// Runs for each object at these times too: a schedule in cron syntax, in UTC, such as `30 3 * * *` for half past three each night. May
    /// be called for several schedules. A schedule that is not in cron syntax keeps the program from starting.
    ///
    /// The runs have low priority and the reason `schedule`. A time that passes while the program does not run is not made up for.
    #[must_use]
    pub fn schedule(mut self, schedule: impl Into<String>) -> Self {
        self.how.schedules.push(schedule.into());
        self
    }

    /// Elects a leader for this controller alone, so replicas can share the controllers of a program among them. The lease is named after
    /// the lease of the program and the controller, such as `shop-operator-leader-orders`. Without `--leader-election` it has no effect.
    ///
    /// The controller's own client and applier, in [`Context`](crate::Context), write only while it leads. Losing any lease ends the program.
    #[must_use]
    pub fn own_lease(mut self) -> Self {
        self.how.has_own_lease = true;
        self
    }
}
