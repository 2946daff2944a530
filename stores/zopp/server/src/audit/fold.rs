//! Which audit rows say the same again, so that the first one counts them: a pure state machine without clock or database.
//!
//! Folded are equal successful reads of one service (an operator lists an environment every minute), and equal refusals of
//! anyone. Reads of people are never folded. The row that counts tells in its details how often it was `repeated` and when
//! the `last` time was.

use std::{collections::HashMap, time::Duration};

use crate::{
    audit::row::NOBODY,
    store::{Action, AuditRow, AuditWrite, Outcome, new_id},
};

/// Equal refusals share a row for so long at most.
const REFUSALS: Duration = Duration::from_mins(1);
/// Rows that count at the same time. Beyond, each row is written for itself.
const CAPACITY: usize = 4096;

/// The key by which two rows are equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    principal_id: String,
    action: Action,
    resource_id: String,
    place: [Option<String>; 3],
    outcome: Outcome,
    details: Option<String>,
    client_ip: Option<String>,
}

/// A row that counts those after it.
#[derive(Debug)]
struct Counter {
    id: String,
    /// Unix milliseconds.
    until: i64,
    repeated: u64,
    /// Unix milliseconds.
    last: i64,
    /// Counted something that is not written yet.
    changed: bool,
}

/// The rows that count.
#[derive(Debug)]
pub(super) struct Fold {
    period: Duration,
    counters: HashMap<Key, Counter>,
}

impl Fold {
    /// Folds reads of services for `period`, and refusals for a minute of it.
    pub(super) fn new(period: Duration) -> Self {
        Self { period, counters: HashMap::new() }
    }

    /// Takes a row of a moment (Unix milliseconds). Returns it if it is to be written, after what was counted before.
    pub(super) fn admit(&mut self, row: AuditRow, at: i64) -> Vec<AuditWrite> {
        let mut writes = Vec::new();
        let id = new_id();
        if let Some((key, period)) = self.key(&row) {
            match self.counters.get_mut(&key) {
                Some(counter) if at < counter.until => {
                    counter.repeated += 1;
                    counter.last = at;
                    counter.changed = true;
                    return writes;
                }
                Some(counter) => {
                    writes.extend(counter.take());
                    self.counters.remove(&key);
                }
                None => {}
            }
            if self.counters.len() >= CAPACITY {
                writes.extend(self.make_room(at));
            }
            if self.counters.len() < CAPACITY {
                let until = at.saturating_add(i64::try_from(period.as_millis()).unwrap_or(i64::MAX));
                let counter = Counter { id: id.clone(), until, repeated: 0, last: at, changed: false };
                self.counters.insert(key, counter);
            }
        }
        writes.push(AuditWrite::Row { id, at, row: Box::new(row) });
        writes
    }

    /// Counts that are not written yet.
    pub(super) fn take_counts(&mut self) -> Vec<AuditWrite> {
        self.counters.values_mut().filter_map(Counter::take).collect()
    }

    /// Counts nothing on any row written before.
    pub(super) fn forget(&mut self) {
        self.counters.clear();
    }

    /// Drops the counters whose time is over. Returns what they counted.
    fn make_room(&mut self, at: i64) -> Vec<AuditWrite> {
        self.counters.extract_if(|_, counter| counter.until <= at).filter_map(|(_, mut over)| over.take()).collect()
    }

    /// The key of a row that is folded, and for how long.
    fn key(&self, row: &AuditRow) -> Option<(Key, Duration)> {
        let is_anonymous = row.principal_id == NOBODY;
        let period = match row.outcome {
            Outcome::Success if row.user_id.is_none() && !is_anonymous => self.period,
            Outcome::Success => return None,
            _ => self.period.min(REFUSALS),
        };
        // A signature that was used must stay on record: a restarted server reads it there.
        if period.is_zero() || row.signature.is_some() {
            return None;
        }
        let key = Key {
            principal_id: row.principal_id.clone(),
            action: row.action,
            // A client without an identity can vary the names at will.
            resource_id: if is_anonymous { String::new() } else { row.resource_id.clone() },
            place: [row.workspace_id.clone(), row.project_id.clone(), row.environment_id.clone()],
            outcome: row.outcome,
            details: row.details.clone(),
            client_ip: row.client_ip.clone(),
        };
        Some((key, period))
    }
}

impl Counter {
    fn take(&mut self) -> Option<AuditWrite> {
        std::mem::take(&mut self.changed).then(|| AuditWrite::Count {
            id: self.id.clone(),
            repeated: self.repeated,
            last: self.last,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::audit::row::blank_row;

    const MINUTE: i64 = 60_000;
    const HOUR: Duration = Duration::from_hours(1);

    fn read(principal: &str) -> AuditRow {
        AuditRow { principal_id: principal.into(), ..blank_row(Action::SecretList, "environment") }
    }

    fn rows(writes: &[AuditWrite]) -> usize {
        writes.iter().filter(|write| matches!(write, AuditWrite::Row { .. })).count()
    }

    #[test]
    fn polls_of_a_service_share_a_row_for_a_period() {
        let mut fold = Fold::new(HOUR);
        assert_eq!(rows(&fold.admit(read("service"), 0)), 1);
        for minute in 1..60 {
            assert_eq!(fold.admit(read("service"), minute * MINUTE), []);
        }
        let counts = fold.take_counts();
        let [AuditWrite::Count { repeated: 59, last, .. }] = counts.as_slice() else { panic!("{counts:?}") };
        assert_eq!(*last, 59 * MINUTE);
        assert_eq!(fold.take_counts(), [], "written once");
        assert_eq!(rows(&fold.admit(read("service"), 60 * MINUTE)), 1, "the next period has a row of its own");
    }

    #[test]
    fn what_differs_is_not_folded() {
        let other = |row: AuditRow| {
            let mut fold = Fold::new(HOUR);
            fold.admit(read("service"), 0);
            rows(&fold.admit(row, 1))
        };
        assert_eq!(other(read("service")), 0);
        assert_eq!(other(read("another")), 1);
        assert_eq!(other(AuditRow { action: Action::SecretRead, ..read("service") }), 1);
        assert_eq!(other(AuditRow { environment_id: Some("e".into()), ..read("service") }), 1);
        assert_eq!(other(AuditRow { details: Some("{\"count\":2}".into()), ..read("service") }), 1);
        assert_eq!(other(AuditRow { client_ip: Some("192.0.2.1".into()), ..read("service") }), 1);
        assert_eq!(other(AuditRow { outcome: Outcome::NotFound, ..read("service") }), 1);
    }

    #[test]
    fn every_read_of_a_person_has_its_row() {
        let mut fold = Fold::new(HOUR);
        let person = AuditRow { user_id: Some("u".into()), ..read("laptop") };
        for at in 0..3 {
            assert_eq!(rows(&fold.admit(person.clone(), at)), 1);
        }
    }

    #[test]
    fn refusals_share_a_row_for_a_minute_and_names_make_no_difference_to_the_anonymous() {
        let mut fold = Fold::new(HOUR);
        let refused = |name: &str, resource: &str| AuditRow {
            outcome: Outcome::PermissionDenied,
            resource_id: resource.into(),
            ..read(name)
        };
        assert_eq!(rows(&fold.admit(refused(NOBODY, "a"), 0)), 1);
        assert_eq!(rows(&fold.admit(refused(NOBODY, "b"), 1)), 0);
        assert_eq!(rows(&fold.admit(refused(NOBODY, "b"), MINUTE)), 1);
        assert_eq!(rows(&fold.admit(refused("service", "a"), 0)), 1);
        assert_eq!(rows(&fold.admit(refused("service", "b"), 0)), 1);
    }

    #[test]
    fn a_used_signature_always_has_its_row() {
        let mut fold = Fold::new(HOUR);
        let refused = AuditRow { outcome: Outcome::Error, signature: Some([1; 32]), ..read("service") };
        assert_eq!(rows(&fold.admit(refused.clone(), 0)) + rows(&fold.admit(refused, 0)), 2);
    }

    #[test]
    fn a_period_of_zero_folds_nothing() {
        let mut fold = Fold::new(Duration::ZERO);
        assert_eq!(rows(&fold.admit(read("service"), 0)) + rows(&fold.admit(read("service"), 0)), 2);
    }

    #[test]
    fn memory_is_bounded() {
        let mut fold = Fold::new(HOUR);
        for number in 0..2 * CAPACITY {
            assert_eq!(rows(&fold.admit(read(&number.to_string()), 0)), 1);
        }
        assert_eq!(fold.counters.len(), CAPACITY);
        fold.admit(read("late"), 60 * MINUTE);
        assert_eq!(fold.counters.len(), 1, "the others' time is over");
    }

    proptest! {
        /// Rows and counts together are as many as what was handed in.
        #[test]
        fn nothing_is_lost(handed in prop::collection::vec((0..3_u8, 0..100_i64, any::<bool>()), 0..200)) {
            let mut fold = Fold::new(Duration::from_millis(20));
            let mut counted = HashMap::new();
            let mut written = 0;
            let mut now = 0;
            for (who, later, flush) in &handed {
                now += later;
                let mut writes = fold.admit(read(&who.to_string()), now);
                if *flush {
                    writes.extend(fold.take_counts());
                }
                for write in writes {
                    match write {
                        AuditWrite::Row { .. } => written += 1,
                        AuditWrite::Count { id, repeated, .. } => { counted.insert(id, repeated); }
                    }
                }
            }
            for write in fold.take_counts() {
                if let AuditWrite::Count { id, repeated, .. } = write { counted.insert(id, repeated); }
            }
            prop_assert_eq!(written + counted.values().sum::<u64>(), handed.len() as u64);
        }
    }
}
