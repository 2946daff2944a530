//! Records that anybody who may write a workload has written.

use super::*;

/// The limits by default.
fn by_default() -> Budget {
    shared(25, 20)
}

#[test]
fn a_record_that_is_written_again_and_again_counts_once() {
    for limits in [by_default().limits, Limits { per_namespace: None, ..by_default().limits }] {
        let mut budget = Budget::new(limits);
        // A record each half second, of the time at which it is written.
        for half in 0..240 {
            let since = at(0).later(SignedDuration::from_millis(500) * half);
            assert_eq!(budget.seen(&of("a", 0), "s", (Some(since), since), true), None);
        }
        assert_eq!(budget.rate.len(), 1);
        for name in 1..80 {
            assert!(budget.take(&of("a", name), "s", at(120)).is_ok(), "{name}");
            assert_eq!(budget.done(&of("a", name), at(120)), None);
        }
    }
}

#[test]
fn records_of_a_namespace_count_within_its_share() {
    let mut budget = by_default();
    for name in 0..200 {
        let _ = budget.seen(&of("a", name), "s", (Some(at(10)), at(10)), false);
    }
    assert_eq!((budget.rate.len(), budget.slots.count_in("a")), (80, 20));
    for name in 0..5 {
        assert!(budget.take(&of("b", name), "s", at(11)).is_ok(), "{name}");
    }
    let spent = budget.take(&of("a", 999), "s", at(11)).map_err(|spent| spent.by);
    assert_eq!(spent, Err(Limit::ConcurrentOfNamespace(20)));
}

#[test]
fn a_record_of_a_rollout_that_has_hung_for_the_timeout_takes_no_slot() {
    let mut budget = budget(None, Some(1));
    assert_eq!(budget.seen(&key(1), "s", (Some(at(0)), at(600)), false), None);
    assert!(budget.slots.is_empty());
}

#[test]
fn a_record_takes_back_no_rollout_of_this_process() {
    let mut budget = budget(Some(2), None);
    assert!(budget.take(&key(1), "s", at(0)).is_ok());
    assert_eq!(budget.seen(&key(1), "s", (Some(at(5)), at(6)), true), None);
    assert_eq!(budget.seen(&key(1), "s", (Some(at(4)), at(6)), true), None);
    assert_eq!(budget.rate.len(), 2, "its own, and what the record says");
    assert_eq!(budget.give_back(&key(1), at(7)), None);
    assert_eq!(budget.rate.len(), 1);
}

proptest! {
    /// Whatever the records of one namespace say, another one has the rest of the slots and of the rate.
    #[test]
    fn records_of_one_namespace_leave_others_the_rest(
        records in proptest::collection::vec((0..30_usize, 0..3_usize, -700..100_i64, any::<bool>(), 0..3_i64), 1..200),
    ) {
        let mut budget = Budget::new(Limits { per_minute: Some(10), ..shared(5, 4).limits });
        let mut now = 1000;
        for (name, stamp, since, is_over, pause) in records {
            now += pause;
            let (key, stamp) = (of("a", name), ["s", "t", "u"][stamp]);
            let since = Some(at(now + since)).filter(|since| *since <= at(now));
            let _ = budget.seen(&key, stamp, (since, at(now)), is_over);
            if name % 7 == 0 {
                let _ = budget.take(&key, stamp, at(now));
            }
            prop_assert!(budget.slots.count_in("a") <= 4);
        }
        for name in 0..2 {
            prop_assert!(budget.take(&of("b", name), "s", at(now)).is_ok(), "{name}");
            let _ = budget.done(&of("b", name), at(now));
        }
    }
}
