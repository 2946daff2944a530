use super::*;
use crate::{path::SecretPath, watch::StateKey};

const MINUTE: Duration = Duration::from_mins(1);

fn at(path: &str) -> Location {
    Mount::new("kv", KvVersion::Two).location(&SecretPath::parse(&format!("kv/data/{path}")).unwrap()).unwrap()
}

fn state(version: u64) -> Seen {
    Seen::State(StateKey {
        entry_created: Some("e".to_owned()),
        version,
        version_created: version.to_string(),
        deleted: false,
        destroyed: false,
    })
}

fn failure() -> VaultError {
    VaultError::NoMount { what: "read".to_owned() }
}

impl Schedule {
    /// Answers with the middle of all chances.
    fn answer(&mut self, location: &Location, outcome: Result<Seen, VaultError>, now: Instant) {
        self.done(location, PollMethod::Metadata, outcome, None, now, 0.5);
    }

    fn take_one(&mut self, location: &Location, now: Instant) {
        assert_eq!(self.take(now), Some(Job::One(location.clone(), PollMethod::Metadata)));
    }
}

#[tokio::test(start_paused = true)]
async fn many_interests_are_one_question_at_the_shortest_interval() {
    let (mut schedule, now, location) = (Schedule::default(), Instant::now(), at("a"));
    let mut receivers: Vec<_> =
        (0..1000).map(|id| schedule.add(&location, id, MINUTE + Duration::from_secs(id), now)).collect();
    schedule.take_one(&location, now);
    assert_eq!(schedule.take(now), None, "while it is asked, it is not asked again");
    schedule.answer(&location, Ok(state(1)), now);
    assert_eq!(schedule.next_due(), Some(now + MINUTE));
    for receiver in &mut receivers {
        assert!(receiver.has_changed().unwrap() && receiver.borrow_and_update().seen == Some(state(1)));
    }
    schedule.take_one(&location, now + MINUTE);
    schedule.answer(&location, Ok(state(1)), now + MINUTE);
    assert!(!receivers[7].has_changed().unwrap(), "the same again is no change");
    assert_eq!(receivers[7].borrow().verified, Some(now + MINUTE));

    let late = schedule.add(&location, 1000, Duration::from_secs(1), now + MINUTE);
    assert!(late.has_changed().unwrap(), "who comes later hears what is known");
    assert_eq!(schedule.next_due(), Some(now + MINUTE + Duration::from_secs(1)));
    for id in 0..=1000 {
        schedule.remove(&location, id);
    }
    assert_eq!(schedule.next_due(), None);
}

#[tokio::test(start_paused = true)]
async fn errors_keep_what_was_seen_and_absence_needs_two_questions() {
    let (mut schedule, now, location) = (Schedule::default(), Instant::now(), at("a"));
    let mut known = schedule.add(&location, 0, MINUTE, now);
    schedule.take_one(&location, now);
    schedule.answer(&location, Ok(state(2)), now);
    known.borrow_and_update();
    for (outcome, told, expected) in [
        (Err(failure()), true, state(2)),
        (Err(failure()), false, state(2)),
        (Ok(Seen::Absent), false, state(2)),
        (Err(failure()), false, state(2)),
        (Ok(Seen::Absent), false, state(2)),
        (Ok(state(2)), true, state(2)),
        (Ok(state(1)), false, state(2)),
        (Ok(Seen::Absent), false, state(2)),
        (Ok(Seen::Absent), true, Seen::Absent),
        (Ok(Seen::Absent), false, Seen::Absent),
        (Ok(state(1)), true, state(1)),
    ] {
        let shown = format!("{outcome:?}");
        let due = schedule.next_due().unwrap();
        schedule.take_one(&location, due);
        schedule.answer(&location, outcome, due);
        assert_eq!(known.has_changed().unwrap(), told, "{shown}");
        assert_eq!(known.borrow_and_update().seen, Some(expected), "{shown}");
    }
}

/// A subscriber that was told of an outage must learn that Vault responds again and denies the request.
#[tokio::test(start_paused = true)]
async fn another_cause_is_told_and_a_pause_or_another_number_is_none() {
    let (mut schedule, now, location) = (Schedule::default(), Instant::now(), at("a"));
    let mut known = schedule.add(&location, 0, MINUTE, now);
    let unreachable = |cause: &str| VaultError::Unreachable {
        what: "read".to_owned(),
        address: "http://vault".into(),
        cause: cause.to_owned(),
    };
    let paused = || VaultError::Paused {
        what: "read".to_owned(),
        address: "http://vault".into(),
        cause: "refused".into(),
        after: MINUTE,
    };
    for (error, told, kept) in [
        (unreachable("refused (111)"), true, "refused"),
        (unreachable("refused (112)"), false, "refused"),
        (paused(), false, "refused"),
        (unreachable("expired 5 s ago"), true, "expired"),
        (paused(), false, "expired"),
        (unreachable("expired 65 s ago"), false, "expired"),
        (failure(), true, "nothing is mounted"),
        (unreachable("expired 70 s ago"), true, "expired"),
    ] {
        let shown = error.to_string();
        let due = schedule.next_due().unwrap();
        schedule.take_one(&location, due);
        schedule.answer(&location, Err(error), due);
        assert_eq!(known.has_changed().unwrap(), told, "{shown}");
        let failure = known.borrow_and_update().failure.clone().unwrap().to_string();
        assert!(failure.contains(kept), "{shown}: {failure}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_location_that_fails_is_asked_for_less_and_less() {
    let (mut schedule, start, location) = (Schedule::default(), Instant::now(), at("a"));
    let _known = schedule.add(&location, 0, Duration::from_secs(1), start);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let due = schedule.next_due().unwrap();
        schedule.take_one(&location, due);
        schedule.done(&location, PollMethod::Metadata, Err(failure()), None, due, 1.0);
        pauses.push((schedule.next_due().unwrap() - due).as_secs());
    }
    assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
    let due = schedule.next_due().unwrap();
    schedule.take_one(&location, due);
    schedule.done(&location, PollMethod::Metadata, Err(failure()), Some(Duration::from_hours(1)), due, 1.0);
    assert_eq!(schedule.next_due(), Some(due + Duration::from_hours(1)), "as long as it was told to wait");
}

/// Vault is away, or answers 404 to everything, for ten minutes.
#[tokio::test(start_paused = true)]
async fn a_location_that_fails_because_everything_does_is_asked_for_within_five_seconds_of_the_end() {
    let (what, address) = (|| "read".to_owned(), || "http://vault".into());
    let denied = VaultError::LoginRefused { status: 404, cause: String::new() };
    let login = VaultError::Login { how: "a role".into(), source: Arc::new(denied) };
    let login = || match &login {
        VaultError::Login { how, source } => VaultError::Login { how: Arc::clone(how), source: Arc::clone(source) },
        _ => failure(),
    };
    let sealed = || VaultError::Sealed { what: what(), address: address() };
    let garbage = || VaultError::Garbage { what: what(), address: address(), cause: "404".to_owned() };
    let (mut schedule, start, location) = (Schedule::default(), Instant::now(), at("a"));
    let _known = schedule.add(&location, 0, Duration::from_secs(5), start);
    let (mut now, mut asked) = (start, 0_u32);
    while now < start + Duration::from_mins(10) {
        schedule.take_one(&location, now);
        let error = [sealed(), login(), garbage()].into_iter().nth(asked as usize % 3).unwrap();
        schedule.done(&location, PollMethod::Metadata, Err(error), None, now, 1.0);
        let next = schedule.next_due().unwrap();
        assert!(next <= now + Duration::from_secs(4), "{:?} after {asked} questions", next - now);
        (now, asked) = (next, asked + 1);
    }
    assert!(asked <= 155, "{asked} questions in ten minutes");
    // The breaker opens in two seconds, and this location is asked for within a second of that.
    schedule.take_one(&location, now);
    let after = Duration::from_secs(2);
    let paused = VaultError::Paused { what: what(), address: address(), cause: "sealed".into(), after };
    schedule.done(&location, PollMethod::Metadata, Err(paused), Some(after), now, 1.0);
    assert_eq!(schedule.next_due(), Some(now + Duration::from_secs(3)));
}

#[tokio::test(start_paused = true)]
async fn a_folder_with_enough_in_it_is_one_question_until_the_engine_cannot() {
    let (mut schedule, now) = (Schedule::default(), Instant::now());
    let inside: Vec<_> = ["team/a", "team/b", "team/c", "team/d"].map(at).into();
    let others = ["team", "team/deeper/e", "teams/f", "other/g"].map(at);
    let receivers: Vec<_> =
        (0..).zip(inside.iter().chain(&others)).map(|(id, location)| schedule.add(location, id, MINUTE, now)).collect();
    let mut jobs = Vec::new();
    while let Some(job) = schedule.take(now) {
        jobs.push(job);
    }
    assert_eq!(jobs.len(), 5, "{jobs:?}");
    assert!(jobs.contains(&Job::Folder(inside.clone())), "{jobs:?}");
    schedule.no_folders(&inside, now);
    for _ in &inside {
        assert!(matches!(schedule.take(now), Some(Job::One(..))));
    }
    assert_eq!(schedule.take(now), None);
    drop(receivers);
}
