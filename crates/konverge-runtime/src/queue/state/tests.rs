use proptest::prelude::*;

use super::*;

fn taken(state: &mut State<u8>, now: Instant) -> Request<u8> {
    match state.take(now) {
        Taken::Request(request, _) => request,
        other => panic!("nothing to take: {other:?}"),
    }
}

#[test]
fn the_urgent_come_first_then_the_early() {
    let (mut state, now) = (State::new(), Instant::now());
    for (key, priority) in
        [(1, Priority::Low), (2, Priority::Normal), (3, Priority::High), (4, Priority::Normal), (5, Priority::High)]
    {
        state.add(key, now, priority, "test");
    }
    state.add(1, now, Priority::Normal, "again");
    let order: Vec<_> = (0..5).map(|_| taken(&mut state, now).key).collect();
    assert_eq!(order, [3, 5, 1, 2, 4]);
}

#[test]
fn a_crowd_is_of_those_that_wait_and_those_at_work_but_for_the_patient() {
    let (mut state, now) = (State::new(), Instant::now());
    assert!(state.is_crowded(now, 0) && !state.is_crowded(now, 1));
    for (key, priority) in [(1, Priority::Normal), (2, Priority::High), (3, Priority::Low)] {
        state.add(key, now, priority, "test");
    }
    state.add(4, now + Duration::from_secs(1), Priority::High, "later");
    assert!(state.is_crowded(now, 2) && !state.is_crowded(now, 3));
    for _ in 0..3 {
        taken(&mut state, now);
    }
    assert!(state.is_crowded(now, 2) && !state.is_crowded(now, 3), "at work");
    for key in [1, 3] {
        state.complete(&key, Completion::Done, now);
    }
    assert!(state.is_crowded(now, 1) && !state.is_crowded(now, 2));
    state.complete(&2, Completion::Done, now);
    assert!(!state.is_crowded(now, 1));
}

#[test]
fn failures_count_until_success() {
    let (mut state, now) = (State::new(), Instant::now());
    state.add(1, now, Priority::Normal, "test");
    for attempt in 1..4 {
        assert_eq!(taken(&mut state, now).attempt, attempt);
        state.complete(&1, Completion::Retry(Duration::ZERO), now);
    }
    taken(&mut state, now);
    state.complete(&1, Completion::DoneUntil(Duration::ZERO), now);
    assert_eq!(taken(&mut state, now), Request { key: 1, reasons: BTreeSet::from([PERIODIC]), attempt: 1 });
    state.complete(&1, Completion::Done, now);
    assert!(state.entries.is_empty());
}

#[test]
fn forgotten_failures_begin_again_at_the_first_attempt() {
    let (mut state, now) = (State::new(), Instant::now());
    state.add(1, now, Priority::Normal, "test");
    taken(&mut state, now);
    state.complete(&1, Completion::Retry(Duration::ZERO), now);
    state.forget_failures(&1);
    assert_eq!(taken(&mut state, now).attempt, 1);
    // A run that began before says nothing about what comes after.
    state.forget_failures(&1);
    state.complete(&1, Completion::Retry(Duration::ZERO), now);
    assert_eq!(taken(&mut state, now).attempt, 1);
    state.complete(&1, Completion::Retry(Duration::ZERO), now);
    assert_eq!(taken(&mut state, now).attempt, 2);
}

#[test]
fn a_look_inside_tells_how_each_key_stands() {
    let (mut state, now) = (State::new(), Instant::now());
    let second = Duration::from_secs(1);
    state.add(1, now, Priority::Normal, "test");
    taken(&mut state, now);
    state.add(2, now + second, Priority::Normal, "late");
    let mut keys = state.snapshot(now + second / 2);
    keys.sort_by_key(|queued| queued.key);
    let running =
        QueuedKey { key: 1, failures: 0, in_flight_for: Some(second / 2), due_in: None, reasons: BTreeSet::new() };
    let waiting = QueuedKey {
        key: 2,
        in_flight_for: None,
        due_in: Some(second / 2),
        reasons: BTreeSet::from(["late"]),
        ..running.clone()
    };
    assert_eq!(keys, [running, waiting]);
}

#[test]
fn a_key_rests_between_two_runs_and_is_forgotten_then() {
    let (mut state, now) = (State::new(), Instant::now());
    let second = Duration::from_secs(1);
    state.rest(10 * second);
    state.add(1, now, Priority::Normal, "test");
    taken(&mut state, now);
    // While it runs, right after, and by its own wish: not before the ten seconds are over.
    state.add(1, now + second, Priority::High, "urgent");
    state.complete(&1, Completion::Retry(Duration::ZERO), now + 2 * second);
    state.add(1, now + 3 * second, Priority::Normal, "changed");
    assert_eq!(state.take(now + 3 * second), Taken::NothingUntil(now + 10 * second));
    assert_eq!(taken(&mut state, now + 10 * second).reasons, BTreeSet::from([RETRY, "changed", "urgent"]));
    // Others need not wait for it, and what comes later waits no longer than it has to.
    state.add(2, now + 10 * second, Priority::Normal, "test");
    assert_eq!(taken(&mut state, now + 10 * second).key, 2);
    state.complete(&1, Completion::Done, now + 11 * second);
    state.complete(&2, Completion::Done, now + 11 * second);
    assert_eq!(state.snapshot(now + 11 * second), []);
    state.add(1, now + 12 * second, Priority::Normal, "changed");
    assert_eq!(state.take(now + 12 * second), Taken::NothingUntil(now + 20 * second));
    taken(&mut state, now + 20 * second);
    assert_eq!(state.entries.len(), 1, "the other is forgotten");
    state.complete(&1, Completion::Done, now + 40 * second);
    assert!(state.entries.is_empty());
}

#[test]
fn a_change_does_not_wait_for_the_backoff() {
    let (mut state, now) = (State::new(), Instant::now());
    state.add(1, now, Priority::Normal, "test");
    taken(&mut state, now);
    state.complete(&1, Completion::Retry(Duration::from_mins(5)), now);
    assert_eq!(state.take(now), Taken::NothingUntil(now + Duration::from_mins(5)));
    state.add(1, now, Priority::High, "changed");
    assert_eq!(taken(&mut state, now), Request { key: 1, reasons: BTreeSet::from([RETRY, "changed"]), attempt: 2 });
}

#[test]
fn completing_what_is_not_in_flight_does_nothing() {
    let (mut state, now) = (State::new(), Instant::now());
    assert_eq!(state.complete(&1, Completion::Retry(Duration::ZERO), now), None);
    state.add(1, now, Priority::Low, "test");
    assert_eq!(state.complete(&1, Completion::Done, now), None);
    assert_eq!(taken(&mut state, now).key, 1);
}

#[derive(Debug, Clone)]
enum Step {
    Add { key: u8, delay: u64, priority: Priority, reason: &'static str },
    Take,
    Complete { key: u8, completion: Completion },
    Pass { seconds: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let priority = proptest::sample::select(Priority::ALL.to_vec());
    let reason = proptest::sample::select(vec!["a", "b", "c"]);
    let completion = prop_oneof![
        Just(Completion::Done),
        (0..5_u64).prop_map(|seconds| Completion::DoneUntil(Duration::from_secs(seconds))),
        (0..5_u64).prop_map(|seconds| Completion::Retry(Duration::from_secs(seconds))),
    ];
    let step = prop_oneof![
        (0..4_u8, 0..5_u64, priority, reason).prop_map(|(key, delay, priority, reason)| Step::Add {
            key,
            delay,
            priority,
            reason
        }),
        Just(Step::Take),
        (0..4_u8, completion).prop_map(|(key, completion)| Step::Complete { key, completion }),
        (0..3_u64).prop_map(|seconds| Step::Pass { seconds }),
    ];
    proptest::collection::vec(step, 0..80)
}

/// The same rules, written for being obviously right: every question is answered by looking at everything.
#[derive(Default, Clone)]
struct Model {
    wishes: BTreeMap<u8, (Instant, Priority, BTreeSet<&'static str>)>,
    in_flight: BTreeSet<u8>,
    failures: BTreeMap<u8, u32>,
}

impl Model {
    fn add(&mut self, key: u8, due: Instant, priority: Priority, reason: &'static str) {
        let wish = self.wishes.entry(key).or_insert((due, priority, BTreeSet::new()));
        *wish = (wish.0.min(due), wish.1.max(priority), wish.2.iter().copied().chain([reason]).collect());
    }

    fn due(&self, now: Instant) -> Vec<(u8, Priority)> {
        let idle = self.wishes.iter().filter(|(key, _)| !self.in_flight.contains(key));
        idle.filter(|(_, wish)| wish.0 <= now).map(|(key, wish)| (*key, wish.1)).collect()
    }
}

proptest! {
    #[test]
    fn row_30_it_behaves_like_the_model(steps in steps()) {
        let (mut state, mut model, mut now) = (State::new(), Model::default(), Instant::now());
        for step in steps {
            match step {
                Step::Add { key, delay, priority, reason } => {
                    let due = now + Duration::from_secs(delay);
                    state.add(key, due, priority, reason);
                    model.add(key, due, priority, reason);
                }
                Step::Take => match state.take(now) {
                    Taken::Request(request, _) => {
                        let highest = model.due(now).iter().map(|(_, priority)| *priority).max();
                        prop_assert!(model.due(now).contains(&(request.key, highest.expect("the model has something due"))));
                        let (_, _, reasons) = model.wishes.remove(&request.key).expect("just seen");
                        prop_assert_eq!(&request.reasons, &reasons);
                        prop_assert_eq!(request.attempt, model.failures.get(&request.key).copied().unwrap_or(0) + 1);
                        prop_assert!(model.in_flight.insert(request.key), "one worker per key");
                    }
                    nothing => {
                        prop_assert_eq!(model.due(now), vec![]);
                        let idle = model.wishes.iter().filter(|(key, _)| !model.in_flight.contains(key));
                        let next = idle.map(|(_, wish)| wish.0).min();
                        prop_assert_eq!(nothing, next.map_or(Taken::Nothing, Taken::NothingUntil));
                    }
                },
                Step::Complete { key, completion } => {
                    let was_in_flight = model.in_flight.remove(&key);
                    prop_assert_eq!(state.complete(&key, completion, now).is_some(), was_in_flight);
                    if was_in_flight {
                        match completion {
                            Completion::Done => { model.failures.remove(&key); }
                            Completion::DoneUntil(delay) => {
                                model.failures.remove(&key);
                                model.add(key, now + delay, Priority::Low, PERIODIC);
                            }
                            Completion::Retry(delay) => {
                                *model.failures.entry(key).or_default() += 1;
                                model.add(key, now + delay, Priority::Normal, RETRY);
                            }
                        }
                    }
                }
                Step::Pass { seconds } => now += Duration::from_secs(seconds),
            }
            let depth: usize = Priority::ALL.iter().map(|priority| state.depth(now, *priority)).sum();
            prop_assert_eq!(depth, model.due(now).len());
            prop_assert_eq!(state.in_flight().count(), model.in_flight.len());
        }
    }
}
