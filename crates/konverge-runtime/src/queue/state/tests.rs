use proptest::prelude::*;
use rand::{RngExt, SeedableRng, rngs::SmallRng};

use super::*;

fn taken<K: Clone + Eq + Hash + std::fmt::Debug>(state: &mut State<K>, now: Instant) -> Request<K> {
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
    assert!(state.is_depth_at_least(now, 0) && !state.is_depth_at_least(now, 1));
    for (key, priority) in [(1, Priority::Normal), (2, Priority::High), (3, Priority::Low)] {
        state.add(key, now, priority, "test");
    }
    state.add(4, now + Duration::from_secs(1), Priority::High, "later");
    assert!(state.is_depth_at_least(now, 2) && !state.is_depth_at_least(now, 3));
    for _ in 0..3 {
        taken(&mut state, now);
    }
    assert!(state.is_depth_at_least(now, 2) && !state.is_depth_at_least(now, 3), "at work");
    for key in [1, 3] {
        state.complete(&key, Completion::Done, now);
    }
    assert!(state.is_depth_at_least(now, 1) && !state.is_depth_at_least(now, 2));
    state.complete(&2, Completion::Done, now);
    assert!(!state.is_depth_at_least(now, 1));
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
    let running = QueuedKey {
        key: 1,
        failures: 0,
        in_flight_for: Some(second / 2),
        due_in: None,
        priority: None,
        reasons: BTreeSet::new(),
    };
    let waiting = QueuedKey {
        key: 2,
        in_flight_for: None,
        due_in: Some(second / 2),
        priority: Some(Priority::Normal),
        reasons: BTreeSet::from(["late"]),
        ..running.clone()
    };
    assert_eq!(keys, [running, waiting]);
}

#[test]
fn a_key_rests_between_two_runs_and_is_forgotten_then() {
    let (mut state, now) = (State::new(), Instant::now());
    let second = Duration::from_secs(1);
    state.set_min_interval(10 * second);
    state.add(1, now, Priority::Normal, "test");
    taken(&mut state, now);
    // While it runs, right after, and by its own request: not before the ten seconds are over.
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
    state.complete(&1, Completion::Retry(Duration::from_secs(300)), now);
    assert_eq!(state.take(now), Taken::NothingUntil(now + Duration::from_secs(300)));
    state.add(1, now, Priority::High, "changed");
    assert_eq!(taken(&mut state, now), Request { key: 1, reasons: BTreeSet::from([RETRY, "changed"]), attempt: 2 });
}

#[test]
fn the_backoff_rises_once_for_each_time_that_it_has_elapsed() {
    let (mut state, now) = (State::new(), Instant::now());
    let second = Duration::from_secs(1);
    let mut fail = |at: u32, pause: u32| {
        state.add(1, now + at * second, Priority::Normal, "changed");
        taken(&mut state, now + at * second);
        let level = state.level_after_failure(&1);
        state.complete(&1, Completion::Retry(pause * second), now + at * second);
        level
    };
    assert_eq!(fail(0, 4), 1);
    assert_eq!([fail(1, 4), fail(2, 4), fail(3, 4)], [1, 1, 1], "events before the pause is over");
    assert_eq!(fail(4, 8), 2);
    assert_eq!([fail(5, 8), fail(11, 8)], [2, 2]);
    assert_eq!(fail(12, 16), 3);
    assert_eq!(taken(&mut state, now + 30 * second).attempt, 9, "attempts are counted all the same");
    state.complete(&1, Completion::Done, now + 30 * second);
    assert!(state.entries.is_empty());
}

#[test]
fn a_key_that_waits_for_an_endpoint_runs_for_a_new_request_and_for_no_other_event() {
    let (mut state, now) = (State::new(), Instant::now());
    state.chance = || 1.0;
    let second = Duration::from_secs(1);
    for key in [1, 2] {
        state.add(key, now, Priority::Normal, "test");
        taken(&mut state, now);
        state.complete(&key, Completion::Unavailable("store"), now);
    }
    state.add(1, now, Priority::High, "changed");
    assert_eq!(state.take(now), Taken::NothingUntil(now + second / 2), "only the probe");
    state.forget_failures(&1);
    state.add(1, now, Priority::High, "changed");
    // The other one is the probe; it rests as well.
    let mut order = [taken(&mut state, now + second), taken(&mut state, now + second)];
    order.sort_by_key(|request| request.key);
    assert_eq!(order.iter().map(|request| (request.key, request.attempt)).collect::<Vec<_>>(), [(1, 1), (2, 2)]);
    assert_eq!(order[0].reasons, BTreeSet::from([RETRY, "changed"]));
    state.complete(&1, Completion::Done, now + second);
    state.complete(&2, Completion::Done, now + second);
    assert_eq!(state.take(now + second), Taken::Nothing);
    assert!(state.endpoints.is_empty() && state.entries.is_empty(), "the outage is over");
}

#[test]
fn completing_what_is_not_in_flight_does_nothing() {
    let (mut state, now) = (State::new(), Instant::now());
    assert_eq!(state.complete(&1, Completion::Retry(Duration::ZERO), now), None);
    state.add(1, now, Priority::Low, "test");
    assert_eq!(state.complete(&1, Completion::Done, now), None);
    assert_eq!(taken(&mut state, now).key, 1);
}

#[test]
fn the_key_of_an_object_that_is_gone_leaves_the_queue_unless_it_is_added_again() {
    let (mut state, now) = (State::new(), Instant::now());
    let second = Duration::from_secs(1);
    // Ready, delayed after a failure, and in flight.
    for key in [1, 2, 3] {
        state.add(key, now, Priority::Normal, "created");
    }
    taken(&mut state, now);
    state.complete(&1, Completion::Retry(second), now);
    assert_eq!(taken(&mut state, now).key, 2);
    for key in [1, 2, 3, 4] {
        state.remove(&key, now);
    }
    assert_eq!(state.take(now), Taken::Nothing);
    assert_eq!(state.entries.len(), 1, "the run in flight is all that is left");
    state.complete(&2, Completion::Retry(second), now);
    assert!(state.entries.is_empty() && state.delayed.is_empty());

    // A new object of that name, before the run of the old one has ended: the failures of the old one are not its own.
    state.add(1, now, Priority::Normal, "created");
    taken(&mut state, now);
    state.remove(&1, now);
    state.add(1, now, Priority::High, "created");
    state.complete(&1, Completion::Retry(second), now);
    assert_eq!(taken(&mut state, now), Request { key: 1, reasons: BTreeSet::from([RETRY, "created"]), attempt: 1 });
    state.complete(&1, Completion::Done, now);
    assert!(state.entries.is_empty());
}

#[test]
fn of_the_keys_that_wait_those_without_an_object_leave() {
    let (mut state, now) = (State::new(), Instant::now());
    for key in 1..6 {
        state.add(key, now, Priority::Normal, "created");
    }
    assert_eq!(taken(&mut state, now).key, 1);
    state.retain(|key| [2, 4].contains(key), now);
    let left: BTreeSet<_> = state.snapshot(now).into_iter().map(|queued| queued.key).collect();
    assert_eq!(left, BTreeSet::from([1, 2, 4]), "a run in flight goes on");
}

#[test]
fn a_key_that_is_gone_still_rests_and_is_remembered_once() {
    let (mut state, now) = (State::new(), Instant::now());
    let second = Duration::from_secs(1);
    state.set_min_interval(10 * second);
    state.add(1, now, Priority::Normal, "created");
    taken(&mut state, now);
    state.complete(&1, Completion::Done, now + second);
    for _ in 0..100 {
        state.add(1, now + second, Priority::Normal, "created");
        state.remove(&1, now + second);
    }
    assert_eq!((state.entries.len(), state.resting.len()), (1, 1));
    state.add(1, now + second, Priority::Normal, "created");
    assert_eq!(state.take(now + second), Taken::NothingUntil(now + 10 * second));
    state.remove(&1, now + second);
    assert_eq!(state.take(now + 10 * second), Taken::Nothing);
    assert!(state.entries.is_empty() && state.resting.is_empty());
}

#[test]
fn a_queue_without_workers_is_no_longer_than_the_list_of_its_objects() {
    let (mut state, now) = (State::new(), Instant::now());
    for key in 0..50_000_u32 {
        state.add(key, now, Priority::Normal, "created");
        state.remove(&key.saturating_sub(10), now);
        assert!(state.entries.len() <= 11 && state.delayed.len() <= 11, "{}", state.entries.len());
    }
    assert!(state.entries.capacity() < 100);
}

#[test]
fn a_stream_of_urgent_keys_does_not_stop_the_others() {
    let (mut state, now) = (State::new(), Instant::now());
    state.add(1, now, Priority::Low, "listed");
    state.add(2, now, Priority::Normal, "changed");
    let mut order = Vec::new();
    for key in 10..40 {
        state.add(key, now, Priority::High, "flood");
        order.push(taken(&mut state, now).key);
    }
    let place = |key| order.iter().position(|taken| *taken == key);
    assert_eq!((place(2), place(1)), (Some(8), Some(9)));
}

/// A namespace that floods the queue at every priority, and some that have few keys.
fn flood(seed: u64) {
    const NAMESPACES: usize = 4;
    const TAKES: usize = 4000;
    let mut random = SmallRng::seed_from_u64(seed);
    let (mut state, now) = (State::<(u8, u32)>::new(), Instant::now());
    state.namespaces(|(namespace, _)| ["flood", "a", "b", "c"][usize::from(*namespace)]);
    // When each ready key of the small namespaces has to be taken at the latest, in takes.
    let mut latest = HashMap::new();
    let (mut fresh, mut in_flight) = (0, Vec::new());
    for take in 0..TAKES {
        for _ in 0..3 {
            fresh += 1;
            state.add((0, fresh), now, Priority::ALL[random.random_range(0..3)], "flood");
        }
        if random.random_range(0..5) == 0 {
            let key = (random.random_range(1..4), random.random_range(0..3));
            if !latest.contains_key(&key) && !in_flight.contains(&key) {
                state.add(key, now, Priority::ALL[random.random_range(0..3)], "few");
                // Up to three keys of its namespace, each in its turn among all namespaces, each turn at every tenth take.
                latest.insert(key, take + 3 * NAMESPACES * 10);
            }
        }
        let key = taken(&mut state, now).key;
        latest.remove(&key);
        assert!(latest.values().all(|latest| *latest > take), "seed {seed}, take {take}: {latest:?}");
        in_flight.push(key);
        if in_flight.len() > 2 {
            let done = in_flight.swap_remove(random.random_range(0..in_flight.len()));
            state.complete(&done, Completion::Done, now);
        }
    }
}

#[test]
fn no_key_waits_longer_than_its_share_whatever_another_namespace_does() {
    (0..50).for_each(flood);
}

#[derive(Debug, Clone)]
enum Step {
    Add { key: u8, delay: u64, priority: Priority, reason: &'static str },
    Remove { key: u8 },
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
        (0..5_u64).prop_map(|seconds| Completion::Again(Duration::from_secs(seconds))),
        (0..5_u64).prop_map(|seconds| Completion::Retry(Duration::from_secs(seconds))),
    ];
    let step = prop_oneof![
        (0..4_u8, 0..5_u64, priority, reason).prop_map(|(key, delay, priority, reason)| Step::Add {
            key,
            delay,
            priority,
            reason
        }),
        (0..4_u8).prop_map(|key| Step::Remove { key }),
        Just(Step::Take),
        (0..4_u8, completion).prop_map(|(key, completion)| Step::Complete { key, completion }),
        (0..3_u64).prop_map(|seconds| Step::Pass { seconds }),
    ];
    proptest::collection::vec(step, 0..80)
}

/// The same rules, written for being obviously right: every question is answered by looking at everything.
#[derive(Default, Clone)]
struct Model {
    requests: BTreeMap<u8, (Instant, Priority, BTreeSet<&'static str>)>,
    /// Keys that workers have, with the priority of their runs.
    in_flight: BTreeMap<u8, Priority>,
    /// Keys in flight whose object is gone.
    gone: BTreeSet<u8>,
    /// Keys in flight whose run says nothing about the attempts to come.
    outdated: BTreeSet<u8>,
    /// How many runs each priority let pass since it had one or had nothing ready.
    passed_over: BTreeMap<Priority, u32>,
    failures: BTreeMap<u8, u32>,
}

impl Model {
    fn add(&mut self, key: u8, due: Instant, priority: Priority, reason: &'static str) {
        self.gone.remove(&key);
        let entry = self.requests.entry(key).or_insert((due, priority, BTreeSet::new()));
        *entry = (entry.0.min(due), entry.1.max(priority), entry.2.iter().copied().chain([reason]).collect());
    }

    fn due(&self, now: Instant) -> Vec<(u8, Priority)> {
        let idle = self.requests.iter().filter(|(key, _)| !self.in_flight.contains_key(key));
        idle.filter(|(_, request)| request.0 <= now).map(|(key, request)| (*key, request.1)).collect()
    }

    /// Which priority has the next run: one that let too many pass, else the highest.
    fn served(&mut self, now: Instant) -> Option<Priority> {
        let ready: BTreeSet<_> = self.due(now).iter().map(|(_, priority)| *priority).collect();
        let passed: BTreeMap<_, u32> =
            ready.iter().map(|priority| (*priority, self.passed_over.get(priority).copied().unwrap_or(0))).collect();
        let longest = ready.iter().copied().max_by_key(|priority| (passed[priority], *priority))?;
        let next = if passed[&longest] >= PASSED_OVER_AT_MOST { longest } else { *ready.last()? };
        self.passed_over = passed.into_iter().map(|(priority, passed)| (priority, passed + 1)).collect();
        self.passed_over.remove(&next);
        Some(next)
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
                        let served = model.served(now).expect("the model has something due");
                        prop_assert!(model.due(now).contains(&(request.key, served)));
                        let (_, priority, reasons) = model.requests.remove(&request.key).expect("just seen");
                        prop_assert_eq!(&request.reasons, &reasons);
                        prop_assert_eq!(request.attempt, model.failures.get(&request.key).copied().unwrap_or(0) + 1);
                        prop_assert!(model.in_flight.insert(request.key, priority).is_none(), "one worker per key");
                    }
                    nothing => {
                        prop_assert_eq!(model.due(now), vec![]);
                        prop_assert_eq!(model.served(now), None);
                        let idle = model.requests.iter().filter(|(key, _)| !model.in_flight.contains_key(key));
                        let next = idle.map(|(_, request)| request.0).min();
                        prop_assert_eq!(nothing, next.map_or(Taken::Nothing, Taken::NothingUntil));
                    }
                },
                Step::Remove { key } => {
                    state.remove(&key, now);
                    model.requests.remove(&key);
                    model.failures.remove(&key);
                    if model.in_flight.contains_key(&key) {
                        model.gone.insert(key);
                        model.outdated.insert(key);
                    }
                }
                Step::Complete { key, completion } => {
                    let priority = model.in_flight.remove(&key);
                    prop_assert_eq!(state.complete(&key, completion, now).is_some(), priority.is_some());
                    if let Some(priority) = priority {
                        let completion = if model.gone.remove(&key) { Completion::Done } else { completion };
                        let fails = matches!(completion, Completion::Retry(_));
                        if model.outdated.remove(&key) || !fails {
                            model.failures.remove(&key);
                        } else {
                            *model.failures.entry(key).or_default() += 1;
                        }
                        match completion {
                            Completion::Done => {}
                            Completion::DoneUntil(delay) => model.add(key, now + delay, Priority::Low, PERIODIC),
                            Completion::Again(delay) => model.add(key, now + delay, priority, PERIODIC),
                            Completion::Retry(delay) => model.add(key, now + delay, Priority::Normal, RETRY),
                            Completion::Abandoned(_) | Completion::Unavailable(_) => unreachable!("not among the steps"),
                        }
                    }
                }
                Step::Pass { seconds } => now += Duration::from_secs(seconds),
            }
            let depth: usize = Priority::ALL.iter().map(|priority| state.depth(now, *priority)).sum();
            prop_assert_eq!(depth, model.due(now).len());
            prop_assert_eq!(state.in_flight().count(), model.in_flight.len());
            // Nothing is remembered of a key that nobody wants and no worker has.
            let known = model.requests.keys().chain(model.in_flight.keys()).collect::<BTreeSet<_>>().len();
            prop_assert_eq!((state.snapshot(now).len(), state.entries.len()), (known, known));
        }
    }
}

proptest! {
    /// For all outcomes of runs and endpoints, no request is lost, and each key has one place.
    #[test]
    fn no_request_is_lost_in_an_outage(steps in proptest::collection::vec((0..6_u8, 0..5_u8, 0..3000_u64), 0..120)) {
        let (mut state, mut now) = (State::new(), Instant::now());
        let (mut requested, mut in_flight) = (BTreeSet::new(), BTreeSet::new());
        for (step, key, pass) in steps {
            let completion = match step {
                0 | 1 => {
                    state.add(key, now, Priority::Normal, "test");
                    requested.insert(key);
                    continue;
                }
                2 => {
                    if let Taken::Request(request, _) = state.take(now) {
                        prop_assert!(requested.remove(&request.key), "handed out without a request");
                        prop_assert!(in_flight.insert(request.key), "one worker per key");
                    }
                    now += Duration::from_millis(pass);
                    continue;
                }
                3 => {
                    state.forget_failures(&key);
                    continue;
                }
                4 => [Completion::Unavailable("one"), Completion::Unavailable("other")][usize::from(pass % 3 == 0)],
                _ if pass % 2 == 0 => Completion::Abandoned(Duration::from_millis(pass)),
                _ => Completion::Done,
            };
            if in_flight.remove(&key) {
                state.complete(&key, completion, now);
                if completion != Completion::Done {
                    requested.insert(key);
                }
            }
        }
        for key in in_flight {
            state.complete(&key, Completion::Done, now);
        }
        let end = now + Duration::from_secs(15);
        loop {
            match state.take(now) {
                Taken::Request(request, _) => {
                    prop_assert!(requested.remove(&request.key));
                    state.complete(&request.key, Completion::Done, now);
                }
                Taken::NothingUntil(due) => {
                    prop_assert!(now < due && due <= end, "{requested:?}");
                    now = due;
                }
                Taken::Nothing => break,
            }
        }
        prop_assert!(requested.is_empty(), "{requested:?}");
        state.take(now + Duration::from_secs(2));
        prop_assert!(state.entries.is_empty() && state.endpoints.values().all(|known| known.waiting.is_empty()));
    }
}
