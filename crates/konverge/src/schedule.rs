//! Runs at the times of a schedule in cron syntax.
//!
//! The wall clock is read at least every half minute, so a clock that is set or a machine that was suspended is noticed. A time that was
//! missed while the program ran is made up for once; times before its start are not.

use std::{str::FromStr, time::Duration};

use croner::Cron;
use k8s_openapi::jiff::{Timestamp, tz::TimeZone};
use konverge_runtime::{
    Priority, Queue,
    cache::Store,
    object::{Object, ObjectKey},
};

use crate::only::Only;

/// The reason of runs that a schedule requested.
pub(crate) const SCHEDULE: &str = "schedule";

/// The interval at which the wall clock is read, in case somebody sets it.
const LOOK_AT_THE_CLOCK: Duration = Duration::from_secs(30);

/// A schedule that cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error("the schedule {schedule:?} is not in cron syntax: {cause}; five fields are expected, such as \"30 3 * * *\"")]
pub struct ScheduleError {
    schedule: String,
    cause: String,
}

/// The times at which a controller looks at all its objects, in UTC.
#[derive(Debug, Clone)]
pub(crate) struct Schedule(Cron);

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(schedule: &str) -> Result<Self, ScheduleError> {
        let failed = |cause: String| ScheduleError { schedule: schedule.to_owned(), cause };
        let cron = Cron::from_str(schedule).map_err(|error| failed(error.to_string()))?;
        let parsed = Self(cron);
        // A schedule may have no time at all, such as the 30th of February.
        parsed.next_after(Timestamp::UNIX_EPOCH).ok_or_else(|| failed("it names no time".to_owned()))?;
        Ok(parsed)
    }
}

impl Schedule {
    /// The first time of the schedule after this one.
    fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        let next = self.0.find_next_occurrence(&time.to_zoned(TimeZone::UTC), false).ok()?;
        Some(next.timestamp())
    }

    /// Requests a run of each object that the controller is about, at each time of the schedule. `now` tells the time. Never ends.
    pub(crate) async fn request_runs<K: Object>(
        self,
        store: Store<K>,
        only: Option<Only<K>>,
        queue: Queue<ObjectKey>,
        now: impl Fn() -> Timestamp,
    ) {
        let mut past = now();
        loop {
            let Some(due) = self.next_after(past) else { return std::future::pending().await };
            let left = Duration::try_from(due.duration_since(now())).unwrap_or_default();
            tokio::time::sleep(left.min(LOOK_AT_THE_CLOCK)).await;
            let moment = now();
            if moment < due {
                // A clock that was set back waits for its times again.
                past = past.min(moment);
                continue;
            }
            past = moment;
            let is_ours = |object: &K| only.as_ref().is_none_or(|only| only(object));
            for object in store.list().into_iter().filter(|object| is_ours(object)) {
                if let Some(key) = ObjectKey::of(&*object) {
                    queue.add(key, Priority::Low, SCHEDULE);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{api::core::v1::ConfigMap, jiff::ToSpan};
    use konverge_runtime::Metrics;
    use tokio::time::Instant;

    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_schedule_names_times_in_utc() {
        for (schedule, after, expected) in [
            ("30 3 * * *", "2026-11-22T03:29:59Z", "2026-11-22T03:30:00Z"),
            ("30 3 * * *", "2026-11-22T03:30:00Z", "2026-11-23T03:30:00Z"),
            ("*/15 * * * *", "2026-11-22T10:07:00Z", "2026-11-22T10:15:00Z"),
            ("0 0 1 * *", "2026-12-31T12:00:00Z", "2027-01-01T00:00:00Z"),
            ("0 9 * * MON-FRI", "2026-11-20T09:00:00Z", "2026-11-23T09:00:00Z"),
            ("@hourly", "2026-11-22T10:07:00Z", "2026-11-22T11:00:00Z"),
        ] {
            let next = schedule.parse::<Schedule>().unwrap().next_after(time(after));
            assert_eq!(next, Some(time(expected)), "{schedule} after {after}");
        }
        for wrong in ["", "daily", "61 * * * *", "* * *", "0 0 30 2 *"] {
            let error = wrong.parse::<Schedule>().unwrap_err().to_string();
            assert!(error.contains(&format!("{wrong:?}")) && error.contains("30 3 * * *"), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_time_of_the_schedule_requests_a_run_of_each_object() {
        let (begun, start) = (Instant::now(), time("2026-11-22T10:07:00Z"));
        let now = move || start + begun.elapsed();
        let store = Store::<ConfigMap>::new("test");
        let mut object = ConfigMap::default();
        (object.metadata.name, object.metadata.namespace) = (Some("a".to_owned()), Some("shop".to_owned()));
        store.writing(ObjectKey::of(&object).unwrap(), None).wrote(object);
        let queue = Queue::new("test", Metrics::new("test", "0").queues());
        let schedule: Schedule = "*/15 * * * *".parse().unwrap();
        tokio::spawn(schedule.request_runs(store, None, queue.clone(), now));
        for minutes in [8, 23, 38] {
            let request = queue.next().await.unwrap();
            assert_eq!(request.reasons, [SCHEDULE].into());
            let expected = start + minutes.minutes();
            let late = now().duration_since(expected);
            assert!(!late.is_negative() && late.as_secs() < 1, "{late:?} after {expected}");
            queue.complete(&request.key, konverge_runtime::queue::Completion::Done);
        }
    }
}
