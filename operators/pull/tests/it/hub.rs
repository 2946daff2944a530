//! One subscription per environment: it ends when nobody wants it, and misses nothing.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use konverge_pull::{
    hub::{Hub, Hubs},
    metrics::Metrics,
    source::{Reference, Sources},
    zopp::{self, Zopp, memory::Memory, record::RecordKey},
};
use prometheus_client::{encoding::text, registry::Registry};
use tokio::time::Instant;
use tonic::Status;

use crate::{
    scripted::{Scene, Scripted},
    world::{holds, is_left_alone},
};

struct World {
    scene: Arc<Scene>,
    _server: Scripted,
    hubs: Hubs,
    wakes: Arc<AtomicUsize>,
    registry: Mutex<Registry>,
}

impl World {
    async fn new(poll_interval: Duration) -> Self {
        let (server, client) = Scripted::start().await;
        let scene = server.create("production");
        scene.set_silently("A", "1");
        let wakes = Arc::new(AtomicUsize::new(0));
        let (woken, name) = (Arc::clone(&wakes), zopp::reference(scene.name()));
        let wake = Arc::new(move |changed: &_| {
            assert_eq!(*changed, name);
            woken.fetch_add(1, Ordering::SeqCst);
        });
        let mut registry = Registry::default();
        let memory =
            Memory::new(RecordKey::of(client.identity()).unwrap(), client.connection().trust().clone(), [].into());
        memory.load();
        let sources = Sources::default().with(Zopp::new(client, memory));
        let hubs = Hubs::new(sources, poll_interval, wake, Metrics::new(&mut registry));
        Self { scene, _server: server, hubs, wakes, registry: Mutex::new(registry) }
    }

    fn subscribe(&self) -> Arc<Hub> {
        self.subscribe_to(&zopp::reference(self.scene.name()))
    }

    fn subscribe_to(&self, reference: &Reference) -> Arc<Hub> {
        self.hubs.subscribe(reference).unwrap()
    }

    fn wakes(&self) -> usize {
        self.wakes.load(Ordering::SeqCst)
    }

    fn metrics(&self) -> String {
        let mut answer = String::new();
        text::encode(&mut answer, &self.registry.lock().unwrap()).unwrap();
        answer
    }

    /// Subscribes and waits until the stream is open and the first full look is over, which ends with a wake.
    async fn settled(&self) -> Arc<Hub> {
        let wakes = self.wakes();
        let hub = self.subscribe();
        holds("the stream is open and the environment is known", || {
            self.scene.streams() == 1 && hub.stated().is_some() && self.wakes() > wakes
        })
        .await;
        hub
    }
}

const NO_POLL: Duration = Duration::from_hours(1);

#[tokio::test(flavor = "multi_thread")]
async fn one_stream_serves_all_and_ends_with_the_last() {
    let world = World::new(NO_POLL).await;
    let hubs: Vec<_> = (0..50).map(|_| world.subscribe()).collect();
    holds("a stream is open", || world.scene.streams() == 1).await;
    for number in 0..20 {
        world.scene.set("A", number.to_string());
        holds("the hub heard of it", || hubs[0].stated().is_some_and(|stated| stated.revision.number == number + 2))
            .await;
        assert_eq!(world.scene.streams(), 1, "after {number} changes");
    }
    drop(hubs);
    holds("the stream is closed", || world.scene.streams() == 0).await;
    holds("the gauge agrees", || world.metrics().contains("konverge_pull_streams 0")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribing_again_opens_a_stream_again() {
    let world = World::new(NO_POLL).await;
    drop(world.settled().await);
    holds("the stream is closed", || world.scene.streams() == 0).await;
    let _hub = world.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_wakes_and_is_fetched_once_for_all() {
    let world = World::new(NO_POLL).await;
    let hub = world.settled().await;
    let (wakes, lists) = (world.wakes(), world.scene.lists());
    world.scene.set("A", "2");
    holds("woken", || world.wakes() > wakes).await;
    let snapshots = futures::future::join_all((0..10).map(|_| hub.snapshot(None))).await;
    for snapshot in snapshots {
        assert!(snapshot.unwrap().values["A"].expose() == b"2");
    }
    assert_eq!(world.scene.lists(), lists + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_while_the_stream_is_away_is_found_on_reconnecting() {
    let world = World::new(NO_POLL).await;
    let hub = world.settled().await;
    let wakes = world.wakes();
    world.scene.hang_up();
    world.scene.set_silently("A", "2");
    holds("woken", || world.wakes() > wakes).await;
    assert_eq!(hub.stated().unwrap().revision.number, 2);
    holds("the stream is open again", || world.scene.streams() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_poll_finds_and_counts_what_the_stream_did_not_tell() {
    let world = World::new(Duration::from_millis(200)).await;
    let hub = world.settled().await;
    let wakes = world.wakes();
    world.scene.set_silently("A", "2");
    holds("woken", || world.wakes() > wakes).await;
    assert_eq!(hub.stated().unwrap().revision.number, 2);
    holds("counted", || world.metrics().contains("konverge_pull_missed_events_total 1")).await;
}

/// A server that was restored without moving its versions, or that lost changes in a fail-over.
#[tokio::test(flavor = "multi_thread")]
async fn other_content_under_the_same_version_is_a_change() {
    let world = World::new(Duration::from_millis(200)).await;
    let hub = world.settled().await;
    let polls = async || {
        let lists = world.scene.lists();
        holds("some polls", || world.scene.lists() > lists + 2).await;
    };
    polls().await;
    let (wakes, before) = (world.wakes(), hub.stated().unwrap());
    polls().await;
    assert_eq!(world.wakes(), wakes, "the same content is no news");
    world.scene.set_at_the_same_version("A", "2");
    holds("woken", || world.wakes() > wakes).await;
    let after = hub.stated().unwrap();
    assert_eq!(after.revision.number, before.revision.number);
    assert!(!after.revision.agrees_with(&before.revision));
    assert!(hub.snapshot(None).await.unwrap().values["A"].expose() == b"2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_during_a_poll_is_heard_at_once_and_not_missed() {
    let world = World::new(Duration::from_millis(200)).await;
    let hub = world.settled().await;
    world.scene.hang(true);
    holds("a poll is under way", || world.scene.hanging() > 0).await;
    let wakes = world.wakes();
    world.scene.set("A", "2");
    holds("the stream is read", || {
        world.wakes() > wakes && hub.stated().is_some_and(|stated| stated.revision.number == 2)
    })
    .await;
    assert_eq!(world.scene.hanging(), 1, "and the poll is still under way");
    world.scene.hang(false);
    // The next change is the first that is missed, and not before the stream has had its time.
    world.scene.set_silently("A", "3");
    holds("a poll found it", || hub.stated().is_some_and(|stated| stated.revision.number == 3)).await;
    assert!(world.metrics().contains("konverge_pull_missed_events_total 0"), "{}", world.metrics());
    holds("counted", || world.metrics().contains("konverge_pull_missed_events_total 1")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_made_anew_during_the_first_look_is_stated_with_its_own_id() {
    let world = World::new(Duration::from_millis(50)).await;
    world.scene.hang(true);
    let hub = world.subscribe();
    holds("the key is read, and the list is under way", || world.scene.hanging() > 0).await;
    world.scene.recreate();
    world.scene.hang(false);
    holds("the first look is over", || hub.stated().is_some()).await;
    for look in ["first", "later"] {
        let stated = hub.stated().unwrap();
        assert_eq!((&*stated.revision.identity, stated.revision.number), (&*world.scene.id(), 0), "{look}");
        let lists = world.scene.lists();
        holds("a poll", || world.scene.lists() > lists + 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn polls_without_news_wake_nobody() {
    let world = World::new(Duration::from_millis(50)).await;
    let _hub = world.settled().await;
    let (wakes, lists) = (world.wakes(), world.scene.lists());
    holds("some polls", || world.scene.lists() > lists + 5).await;
    assert_eq!(world.wakes(), wakes);
    assert!(world.metrics().contains("konverge_pull_missed_events_total 0"), "{}", world.metrics());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_wakes_once_and_its_end_wakes_again() {
    let world = World::new(Duration::from_millis(100)).await;
    let hub = world.settled().await;
    let wakes = world.wakes();
    world.scene.refuse(Some(Status::permission_denied("no")));
    holds("woken by the refusal", || world.wakes() > wakes).await;
    let error = hub.snapshot(None).await.err().expect("a refusal");
    assert!(error.to_string().contains("acme/backend/production"), "{error}");
    let refused = world.wakes();
    world.scene.refuse(None);
    holds("woken by the recovery", || world.wakes() > refused && hub.stated().is_some()).await;
    assert!(hub.snapshot(None).await.is_ok());
}

/// It was asked for again every one to four seconds without end.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_environment_is_asked_for_ever_more_seldom_and_at_once_when_somebody_waits() {
    let world = World::new(NO_POLL).await;
    let hub = world.settled().await;
    world.scene.refuse(Some(Status::permission_denied("no")));
    world.scene.hang_up();
    is_left_alone(&world.scene).await;
    world.scene.refuse(None);
    let wanted = Instant::now();
    hub.retry_soon();
    holds("it is read again", || hub.stated().is_some() && world.scene.streams() == 1).await;
    assert!(wanted.elapsed() < Duration::from_secs(2), "{:?}", wanted.elapsed());
}

/// One refused environment fired two alerts: that its Secrets are out of sync, and that the server is silent.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_an_answer_and_no_silence() {
    let world = World::new(Duration::from_millis(50)).await;
    let _hub = world.settled().await;
    world.scene.refuse(Some(Status::permission_denied("no")));
    let asked = world.scene.asked();
    holds("it is refused", || world.scene.asked() > asked).await;
    let refused = Instant::now();
    holds("an answer after that", || world.hubs.stalest().is_some_and(|age| age < refused.elapsed())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_grows_stale_and_what_can_does_not() {
    let world = World::new(Duration::from_millis(50)).await;
    assert!(world.hubs.stalest().is_none());
    let hub = world.settled().await;
    world.scene.refuse(Some(Status::unavailable("shutting down")));
    holds("stale", || world.hubs.stalest().is_some_and(|age| age > Duration::from_millis(500))).await;
    world.scene.refuse(None);
    holds("fresh", || world.hubs.stalest().is_some_and(|age| age < Duration::from_millis(100))).await;
    drop(hub);
    assert!(world.hubs.stalest().is_none());
}
