mod hanging;
mod records;

use konverge_workload::WorkloadKind;
use proptest::prelude::*;

use super::*;

fn key(name: usize) -> WorkloadRef {
    WorkloadRef { namespace: "shop".to_owned(), kind: WorkloadKind::Deployment, name: name.to_string() }
}

fn at(second: i64) -> Time {
    Time::at(second)
}

fn budget(per_minute: Option<usize>, concurrent: Option<usize>) -> Budget {
    Budget::new(Limits { per_minute, concurrent, per_namespace: None, timeout: SignedDuration::from_mins(10) })
}

#[test]
fn without_limits_everybody_goes_and_nothing_is_kept() {
    let mut budget = budget(None, None);
    assert!((0..1000).all(|name| budget.take(&key(name), "s", at(0)).is_ok()));
    assert!(budget.rate.len() == 0 && budget.slots.is_empty());
}

#[test]
fn who_waits_goes_in_order_when_one_is_done() {
    let mut budget = budget(None, Some(2));
    assert!(budget.take(&key(1), "s", at(0)).is_ok() && budget.take(&key(2), "s", at(1)).is_ok());
    let spent = Spent { by: Limit::Concurrent, until: at(302) };
    assert_eq!(budget.take(&key(3), "s", at(2)), Err(spent));
    assert_eq!(budget.take(&key(4), "s", at(2)), Err(spent));
    assert!(budget.take(&key(1), "s", at(3)).is_ok(), "its own place is its own");
    assert_eq!(budget.done(&key(9), at(4)), None, "nobody's place");
    assert_eq!(budget.done(&key(2), at(4)), Some(key(3)));
    assert!(budget.take(&key(3), "s", at(4)).is_ok());
    assert_eq!(budget.done(&key(3), at(4)), Some(key(4)));
    assert_eq!(budget.done(&key(1), at(4)), None);
}

#[test]
fn whose_turn_it_is_and_who_leaves_passes_it_on() {
    let mut budget = budget(None, Some(1));
    assert!(budget.take(&key(1), "s", at(0)).is_ok());
    assert!(budget.take(&key(2), "s", at(1)).is_err() && budget.take(&key(3), "s", at(1)).is_err());
    assert_eq!(budget.done(&key(1), at(4)), Some(key(2)));
    // It opts out before it has taken its slot.
    assert_eq!(budget.done(&key(2), at(4)), Some(key(3)));
}

#[test]
fn asking_twice_is_no_second_place() {
    let mut budget = budget(None, Some(2));
    assert!(budget.take(&key(1), "s", at(0)).is_ok() && budget.take(&key(2), "s", at(0)).is_ok());
    assert!(budget.take(&key(3), "s", at(1)).is_err() && budget.take(&key(3), "s", at(2)).is_err());
    assert_eq!(budget.done(&key(1), at(4)), Some(key(3)));
    assert_eq!(budget.done(&key(2), at(4)), None);
}

#[test]
fn one_that_never_ends_makes_room() {
    let mut budget = budget(None, Some(1));
    assert_eq!(budget.seen(&key(1), "s", (Some(at(0)), at(0)), false), None);
    assert!(budget.take(&key(2), "s", at(599)).is_err());
    assert!(budget.take(&key(2), "s", at(600)).is_ok());
}

#[test]
fn a_rollout_is_over_when_the_watch_shows_it_with_what_it_got() {
    let mut budget = budget(None, Some(1));
    assert_eq!(budget.seen(&key(1), "s", (Some(at(0)), at(0)), true), None, "over before we began");
    assert!(budget.take(&key(1), "t", at(0)).is_ok());
    assert!(budget.take(&key(2), "s", at(1)).is_err());
    assert_eq!(budget.seen(&key(1), "s", (Some(at(0)), at(0)), true), None, "from before");
    assert_eq!(budget.seen(&key(1), "t", (Some(at(0)), at(0)), false), None, "under way");
    assert_eq!(budget.seen(&key(1), "t", (Some(at(0)), at(0)), true), Some(key(2)));
}

#[test]
fn what_began_before_a_restart_is_of_this_minute_too() {
    let mut budget = budget(Some(2), None);
    assert!(budget.take(&key(1), "s", at(100)).is_ok());
    assert_eq!(budget.seen(&key(1), "s", (Some(at(100)), at(101)), false), None, "counted already");
    assert_eq!(budget.seen(&key(2), "s", (Some(at(20)), at(101)), true), None, "a while ago");
    assert_eq!(budget.rate.len(), 1);
    assert_eq!(budget.seen(&key(3), "s", (Some(at(90)), at(101)), true), None);
    let spent = Spent { by: Limit::Rate, until: at(150) };
    assert_eq!(budget.take(&key(4), "s", at(102)), Err(spent));
    assert!(budget.take(&key(4), "s", at(150)).is_ok());
}

#[test]
fn what_another_gives_back_is_its_own() {
    let mut budget = budget(Some(2), None);
    assert!(budget.take(&key(1), "s", at(0)).is_ok() && budget.take(&key(2), "s", at(30)).is_ok());
    assert_eq!(budget.give_back(&key(1), at(35)), None);
    assert!(budget.take(&key(3), "s", at(40)).is_ok());
    assert_eq!(budget.take(&key(4), "s", at(80)), Err(Spent { by: Limit::Rate, until: at(90) }));
}

#[test]
fn room_that_is_not_used_goes_to_the_next() {
    let mut budget = budget(None, Some(1));
    assert!(budget.take(&key(1), "t", at(0)).is_ok());
    assert!(budget.take(&key(2), "s", at(1)).is_err() && budget.take(&key(3), "s", at(1)).is_err());
    assert_eq!(budget.release_slot(&key(1), Some("t"), at(4)), None, "it is under way");
    assert_eq!(
        budget.release_slot(&key(1), Some("s"), at(4)),
        Some(key(2)),
        "the write was lost, and is not needed any more"
    );
    assert_eq!(budget.release_slot(&key(2), None, at(4)), Some(key(3)));
    assert_eq!(budget.release_slot(&key(3), None, at(4)), None);
}

#[test]
fn a_write_that_is_tried_again_takes_nothing_more() {
    let mut budget = budget(Some(2), Some(1));
    for second in [0, 200, 400, 599] {
        assert!(budget.take(&key(1), "s", at(second)).is_ok());
        assert_eq!(budget.rate.len(), 1, "{second}");
    }
    assert_eq!(budget.take(&key(2), "s", at(599)), Err(Spent { by: Limit::Concurrent, until: at(600) }));
    assert!(budget.take(&key(2), "s", at(600)).is_ok(), "its time is over however often it was tried");
}

#[test]
fn a_rollout_that_supersedes_its_own_needs_no_other_place_and_gets_no_more_time() {
    let mut budget = budget(None, Some(1));
    for (second, stamp) in [(0, "s"), (200, "t"), (400, "u")] {
        assert!(budget.take(&key(1), stamp, at(second)).is_ok(), "{second}");
    }
    assert_eq!(budget.seen(&key(1), "t", (Some(at(200)), at(401)), true), None, "from before");
    assert_eq!(budget.take(&key(2), "s", at(599)), Err(Spent { by: Limit::Concurrent, until: at(600) }));
    assert!(budget.take(&key(2), "s", at(600)).is_ok());
    assert!(budget.take(&key(1), "v", at(601)).is_err(), "its time is over, so it waits as all others do");
}

fn of(namespace: &str, name: usize) -> WorkloadRef {
    WorkloadRef { namespace: namespace.to_owned(), ..key(name) }
}

fn shared(concurrent: usize, per_namespace: usize) -> Budget {
    let per_namespace = Some(per_namespace);
    let timeout = SignedDuration::from_mins(10);
    Budget::new(Limits { per_minute: Some(100), concurrent: Some(concurrent), per_namespace, timeout })
}

#[test]
fn a_namespace_has_no_more_than_its_share() {
    let mut budget = shared(5, 3);
    for name in 0..3 {
        assert!(budget.take(&of("a", name), "s", at(0)).is_ok());
    }
    let spent = Spent { by: Limit::ConcurrentOfNamespace(3), until: at(201) };
    assert_eq!(budget.take(&of("a", 3), "s", at(1)), Err(spent), "also while there is room");
    assert!(budget.take(&of("b", 0), "s", at(1)).is_ok());
    assert_eq!(budget.done(&of("b", 0), at(4)), None, "that is no place for it");
    assert_eq!(budget.done(&of("a", 1), at(4)), Some(of("a", 3)));
    assert!(budget.take(&of("a", 3), "s", at(2)).is_ok());
}

#[test]
fn a_free_slot_goes_to_the_namespace_with_the_fewest_in_turn() {
    let mut budget = shared(4, 4);
    for name in 0..4 {
        assert!(budget.take(&of("a", name), "s", at(0)).is_ok());
    }
    for waiter in [of("a", 4), of("a", 5), of("b", 0), of("b", 1), of("c", 0)] {
        assert!(budget.take(&waiter, "s", at(1)).is_err());
    }
    let mut order = Vec::new();
    for name in 0..4 {
        let next = budget.done(&of("a", name), at(4)).unwrap();
        assert!(budget.take(&of("a", 9), "s", at(2)).is_err(), "one that comes later does not go first");
        assert!(budget.take(&next, "s", at(2)).is_ok());
        order.push(next);
    }
    assert_eq!(order, [of("b", 0), of("c", 0), of("a", 4), of("a", 5)], "where they have as many, who came first");
}

/// One namespace whose rollouts never end, and another one that comes later.
#[test]
fn rollouts_that_hang_hold_up_other_namespaces_the_shorter_the_more_there_are() {
    for (stuck, until) in [(1, 600), (2, 300), (10, 60)] {
        let mut budget = shared(stuck, stuck);
        for name in 0..stuck {
            assert!(budget.take(&of("a", name), "s", at(0)).is_ok());
        }
        let spent = Spent { by: Limit::Concurrent, until: at(until) };
        assert_eq!(budget.take(&of("b", 0), "s", at(1)), Err(spent), "{stuck}");
        assert!(budget.take(&of("b", 0), "s", at(until)).is_ok(), "{stuck}");
        let own = budget.take(&of("a", 99), "s", at(until)).err().map(|spent| spent.by);
        assert!(until == 600 || own == Some(Limit::ConcurrentOfNamespace(stuck)), "its own wait for all of it");
    }
}

#[test]
fn a_namespace_has_the_same_share_of_the_rate() {
    let mut budget = Budget::new(Limits { per_minute: Some(10), ..shared(5, 2).limits });
    let mut begun = 0;
    while budget.take(&of("a", begun), "s", at(0)).is_ok() {
        let _ = budget.done(&of("a", begun), at(0));
        begun += 1;
    }
    assert_eq!(begun, 4);
    let spent = Spent { by: Limit::RateOfNamespace(4), until: at(60) };
    assert_eq!(budget.take(&of("a", 9), "s", at(1)), Err(spent));
    assert!(budget.take(&of("b", 0), "s", at(1)).is_ok());
}

#[test]
fn what_was_given_back_does_not_count() {
    let mut budget = budget(Some(1), Some(1));
    assert!(budget.take(&key(1), "s", at(0)).is_ok());
    assert_eq!(budget.give_back(&key(1), at(35)), None);
    assert!(budget.take(&key(2), "s", at(0)).is_ok());
}

proptest! {
    /// Some namespaces never become ready. A workload that asks again when called begins within a timeout of its turn, and no namespace exceeds
    /// its share.
    #[test]
    fn no_namespace_starves(asks in proptest::collection::vec((0..4_usize, 0..20_i64), 1..60)) {
        let mut budget = shared(6, 3);
        let mut now = 0;
        for (name, (namespace, pause)) in asks.into_iter().enumerate() {
            now += pause;
            // The last namespace is well: its rollouts end at once.
            let own = of(&namespace.to_string(), name);
            let taken = budget.take(&own, "s", at(now));
            if namespace == 3 {
                let mut later = now;
                let mut taken = taken;
                while let Err(spent) = taken {
                    prop_assert!(spent.until > at(later), "it is told another time");
                    later = spent.until.wall().as_second();
                    taken = budget.take(&own, "s", at(later));
                }
                // A namespace with three slots loses each after a third of the timeout.
                prop_assert!(later - now <= 300, "it waited {} s", later - now);
                now = later;
                let _ = budget.done(&own, at(now));
            }
            for other in 0..4 {
                prop_assert!(budget.slots.count_in(&other.to_string()) <= 3);
            }
        }
    }

    /// No minute has more rollouts than allowed, and a workload that comes back when it is told to gets its slot.
    #[test]
    fn the_rate_is_kept_in_every_minute(most in 1..4_usize, pauses in proptest::collection::vec(0..40_i64, 1..60)) {
        let mut budget = budget(Some(most), None);
        let mut now = 0;
        let mut begun = Vec::new();
        for (name, pause) in pauses.into_iter().enumerate() {
            now += pause;
            if let Err(spent) = budget.take(&key(name), "s", at(now)) {
                prop_assert_eq!(spent.by, Limit::Rate);
                prop_assert!(spent.until > at(now) && spent.until <= at(now + 60));
                now = spent.until.wall().as_second();
                prop_assert!(budget.take(&key(name), "s", at(now)).is_ok());
            }
            begun.push(now);
            prop_assert!(begun.iter().filter(|time| now - **time < 60).count() <= most);
        }
    }
}
