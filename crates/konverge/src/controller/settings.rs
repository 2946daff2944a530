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
    /// Sets how many objects are worked on at once. The default is eight.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.how.workers = workers;
        self
    }

    /// Sets how long one run may take. The default is five minutes.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.how.time_limit = limit;
        self
    }

    /// Sets the pauses after failures. The default is 1 second to 5 minutes.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.how.backoff = backoff;
        self
    }

    /// Limits how many runs may begin, of all objects together. The default is no limit.
    #[must_use]
    pub fn rate(mut self, rate: Rate) -> Self {
        self.how.rate = Some(rate);
        self
    }

    /// Sets the least time between the beginnings of two runs of one object, for every reason of the second: changes, failures, people.
    /// The default is zero.
    #[must_use]
    pub fn min_interval(mut self, interval: Duration) -> Self {
        self.how.rest = interval;
        self
    }

    /// Sets how long to wait after a change, so that several become one run. The default is not to wait.
    #[must_use]
    pub fn debounce(mut self, debounce: Duration) -> Self {
        self.how.debounce = debounce;
        self
    }

    /// Sets how often an object is looked at although nothing happened, each at its own moment of the period. The default is ten
    /// hours.
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
