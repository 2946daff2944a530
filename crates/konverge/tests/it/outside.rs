//! A source outside the cluster wakes the objects that it concerns.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use konverge::{
    external::{Change, Options, Polled, Source, SourceError},
    prelude::*,
};
use konverge_testkit::eventually;
use tokio::{sync::Semaphore, time::Instant};

use crate::stage::{LIMIT, Place, Prober, Running, control_plane, operator, start_as};

/// Answers what it is told to answer, then nothing, and a poll takes until the test lets it.
struct Scripted {
    answers: VecDeque<Result<Vec<Change<String>>, SourceError>>,
    polls: Arc<Polls>,
}

/// The state that the test and the source share: the beginnings of polls, and how many may end.
struct Polls {
    begun: Mutex<Vec<Instant>>,
    may_end: Semaphore,
}

impl Source for Scripted {
    type Item = String;

    fn name(&self) -> &'static str {
        "scripted"
    }

    async fn poll(&mut self) -> Result<Polled<String>, SourceError> {
        self.polls.begun.lock().unwrap().push(Instant::now());
        self.polls.may_end.acquire().await.unwrap().forget();
        self.answers.pop_front().unwrap_or_else(|| Ok(Vec::new())).map(Polled::from)
    }
}

const INTERVAL: Duration = Duration::from_millis(200);
/// A pause is shorter than the interval by at most a tenth.
const SHORTEST: Duration = Duration::from_millis(180);

#[tokio::test(flavor = "multi_thread")]
async fn row_25_a_source_is_a_trigger_with_health_metrics_and_pauses() {
    let (place, prober) = (Place::new().await, Prober::default());
    let runs = prober.runs.clone();
    place.create_probe("outside", "ok").await;
    place.create_probe("other", "ok").await;
    let failure = SourceError::transient("Unavailable", std::io::Error::other("not now"));
    let answers = [Err(failure), Ok(vec![Change::Modified("outside".to_owned())])].into();
    let polls = Arc::new(Polls { begun: Mutex::default(), may_end: Semaphore::new(1) });
    let controller = Controller::new(prober).watches_outside(
        "scripted",
        Scripted { answers, polls: Arc::clone(&polls) },
        Options::every(INTERVAL),
        |change, probes| {
            let (Change::Added(name) | Change::Modified(name) | Change::Removed(name)) = change;
            probes.keys().into_iter().filter(|key| key.name == *name).collect::<Vec<_>>()
        },
    );
    let kubeconfig = control_plane().await.kubeconfig();
    let running = start_as(kubeconfig, operator(controller), &["--namespace", &place.namespace]).await;

    // The first poll fails, and the second has not ended: it is not ready, and says why.
    running.lacks("[-]scripted failed: no poll has succeeded yet: not now").await;
    running.measures(r#"konverge_external_errors_total{source="scripted",reason="Unavailable"} 1"#).await;
    runs.reach("outside", 1).await;
    runs.reach("other", 1).await;

    polls.may_end.add_permits(1);
    running.is_ready().await;
    let woken = runs.reach("outside", 2).await;
    assert!(woken[1].reasons.contains(&"scripted"), "{woken:?}");
    running.measures(r#"konverge_external_changes_total{source="scripted",kind="modified"} 1"#).await;

    // From now on it answers at once. It is polled once per interval, and never sooner.
    polls.may_end.add_permits(1000);
    let begun = eventually(LIMIT, || {
        let begun = polls.begun.lock().unwrap().clone();
        std::future::ready((begun.len() >= 6).then_some(begun))
    });
    let begun = begun.await.unwrap();
    let pauses: Vec<_> = begun.windows(2).skip(1).map(|two| two[1] - two[0]).collect();
    assert!(pauses.iter().all(|pause| *pause >= SHORTEST), "{pauses:?}");
    assert_eq!(runs.of("other").len(), 1, "a change concerns nobody but whom it names");
    running.end().await.unwrap();
}

/// Counts how often it is asked.
struct Counted(Arc<AtomicUsize>);

impl Source for Counted {
    type Item = String;

    fn name(&self) -> &'static str {
        "counted"
    }

    async fn poll(&mut self) -> Result<Polled<String>, SourceError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Vec::new().into())
    }
}

/// A replica with two sources, of which one also runs on standbys, and how often each was asked.
async fn replica(place: &Place) -> (Running, [Arc<AtomicUsize>; 2]) {
    let asked = [Arc::default(), Arc::default()];
    let [of_leader, of_all] = asked.each_ref().map(|asked| Counted(Arc::clone(asked)));
    let every = || Options::every(Duration::from_millis(20));
    let controller = Controller::new(Prober::default())
        .watches_outside("of-leader", of_leader, every(), |_, probes| probes.keys())
        .watches_outside("of-all", of_all, every().on_standbys(), |_, probes| probes.keys());
    let namespace = format!("--lease-namespace={}", place.namespace);
    let timings = ["--lease-duration=4", "--renew-deadline=3", "--retry-period=1"];
    let arguments = [&["--leader-election", namespace.as_str()], &timings[..]].concat();
    (place.run(operator(controller), &arguments).await, asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_leader_asks_outside_unless_standbys_are_to_ask_too() {
    let place = Place::new().await;
    let reach = async |count: &AtomicUsize, least: usize| {
        let reached = eventually(LIMIT, || std::future::ready((count.load(Ordering::SeqCst) >= least).then_some(())));
        reached.await.unwrap();
    };
    let (leader, [first, _]) = replica(&place).await;
    reach(&first, 1).await;
    let (standby, [second, second_of_all]) = replica(&place).await;
    // It is ready without an answer, has been asking where it is to, and has not where the leader asks.
    reach(&second_of_all, 20).await;
    assert_eq!(second.load(Ordering::SeqCst), 0);
    leader.end().await.unwrap();
    reach(&second, 1).await;
    standby.is_ready().await;
    standby.end().await.unwrap();
}
