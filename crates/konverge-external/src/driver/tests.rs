//! The loop on paused time, with sources that follow a script.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use futures::StreamExt;
use prometheus_client::{encoding::text::encode, registry::Registry};

use super::*;
use crate::{Entries, MemoryError, Remembered, from_stream, memory::InProcess};

const INTERVAL: Duration = Duration::from_secs(10);

type Step = Box<dyn FnOnce() -> Result<Polled<u8>, SourceError> + Send>;

/// Answers one step per poll and then nothing; writes down when it was polled.
struct Script {
    steps: VecDeque<Step>,
    began: Instant,
    polls: Arc<Mutex<Vec<Duration>>>,
    entries: Entries,
}

impl Script {
    fn new(steps: impl IntoIterator<Item = Step>) -> (Self, Arc<Mutex<Vec<Duration>>>) {
        let polls = Arc::new(Mutex::new(Vec::new()));
        let steps = steps.into_iter().collect();
        (Self { steps, began: Instant::now(), polls: Arc::clone(&polls), entries: Entries::new() }, polls)
    }
}

impl Source for Script {
    type Item = u8;

    fn name(&self) -> &'static str {
        "script"
    }

    async fn poll(&mut self) -> Result<Polled<u8>, SourceError> {
        self.polls.lock().unwrap().push(self.began.elapsed());
        let polled = self.steps.pop_front().map_or_else(|| Ok(Vec::new().into()), |step| step())?;
        for change in &polled.changes {
            self.entries.insert(change.item().to_string(), String::new());
        }
        Ok(polled)
    }

    fn recall(&mut self, remembered: Remembered) {
        self.entries = remembered.entries;
    }

    fn remembered(&self) -> Option<Entries> {
        Some(self.entries.clone())
    }
}

fn added(items: &'static [u8]) -> Step {
    Box::new(|| Ok(items.iter().map(|item| Change::Added(*item)).collect::<Vec<_>>().into()))
}

fn fails() -> Step {
    Box::new(|| Err(SourceError::transient("Test", "it is away")))
}

fn asks_for(pause: Duration) -> Step {
    Box::new(move || Err(SourceError::after(pause, "Test", "not now")))
}

fn panics() -> Step {
    Box::new(|| panic!("on purpose"))
}

fn options() -> Options {
    Options::every(INTERVAL).jitter(0.0)
}

#[tokio::test(start_paused = true)]
async fn polls_at_once_and_then_every_interval_in_order() {
    let (script, polls) = Script::new([added(&[1, 2]), added(&[]), added(&[3])]);
    let (changes, _) = watch(script, options());
    let items: Vec<_> = changes.take(3).map(Change::into_item).collect().await;
    assert_eq!(items, [1, 2, 3]);
    assert_eq!(*polls.lock().unwrap(), [0, 10, 20].map(Duration::from_secs));
}

#[tokio::test(start_paused = true)]
async fn failures_never_end_the_stream_and_pauses_grow_and_are_forgotten() {
    let (script, polls) = Script::new([fails(), fails(), panics(), fails(), added(&[1]), fails(), added(&[2])]);
    let (changes, health) = watch(script, options());
    let items: Vec<_> = changes.take(2).map(Change::into_item).collect().await;
    assert_eq!(items, [1, 2]);
    let polls = polls.lock().unwrap();
    let pauses: Vec<_> = polls.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    for (pause, limit) in pauses.iter().zip([10, 20, 40, 80, 10, 10]) {
        assert!(*pause <= Duration::from_secs(limit) + Duration::from_millis(1), "{pauses:?}");
    }
    assert_eq!(health.failures(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_was_asked_for_is_kept() {
    let (script, polls) = Script::new([asks_for(Duration::from_secs(120)), added(&[1])]);
    let (mut changes, _) = watch(script, options());
    changes.next().await.unwrap();
    let second = polls.lock().unwrap()[1];
    assert!(second >= Duration::from_secs(120) && second <= Duration::from_secs(133), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn a_part_that_failed_does_not_withhold_the_rest() {
    let partly: Step = Box::new(|| {
        let failure = Some(SourceError::after(Duration::from_secs(50), "Test", "one of two"));
        Ok(Polled { changes: vec![Change::Added(1)], next: Next::Now, failure })
    });
    let (script, polls) = Script::new([partly, added(&[2])]);
    let (mut changes, health) = watch(script, options());
    assert_eq!(changes.next().await, Some(Change::Added(1)));
    assert_eq!((health.failures(), health.last_error().as_deref()), (0, Some("one of two")));
    assert_eq!(changes.next().await, Some(Change::Added(2)));
    assert_eq!(health.last_error(), None);
    assert!(polls.lock().unwrap()[1] >= Duration::from_secs(50));
}

#[tokio::test(start_paused = true)]
async fn a_slow_consumer_delays_the_next_poll() {
    let (script, polls) = Script::new([added(&[1, 2]), added(&[3])]);
    let (mut changes, _) = watch(script, options());
    changes.next().await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(polls.lock().unwrap().len(), 1);
    changes.next().await.unwrap();
    changes.next().await.unwrap();
    assert_eq!(*polls.lock().unwrap(), [0, 60].map(Duration::from_secs));
}

#[tokio::test(start_paused = true)]
async fn cancelling_ends_the_stream_at_once_and_it_stays_ended() {
    let token = CancellationToken::new();
    let (script, _) = Script::new([added(&[1])]);
    let (mut changes, health) = watch(script, options().shutdown(token.clone()));
    changes.next().await.unwrap();
    let began = Instant::now();
    let canceller = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(3)).await;
        token.cancel();
    });
    assert_eq!(changes.next().await, None);
    assert_eq!(began.elapsed().as_secs(), 3);
    assert_eq!(changes.next().await, None);
    assert!(health.ready().unwrap_err().contains("ended"));
    canceller.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_ends_a_poll_that_is_under_way() {
    struct Hangs(Arc<()>);

    impl Source for Hangs {
        type Item = ();

        fn name(&self) -> &'static str {
            "hangs"
        }

        async fn poll(&mut self) -> Result<Polled<()>, SourceError> {
            let _held = Arc::clone(&self.0);
            std::future::pending().await
        }
    }

    let held = Arc::new(());
    let (mut changes, health) = watch(Hangs(Arc::clone(&held)), options());
    assert!(tokio::time::timeout(INTERVAL, changes.next()).await.is_err());
    assert_eq!(Arc::strong_count(&held), 3);
    drop(changes);
    assert_eq!(Arc::strong_count(&held), 1);
    assert!(health.ready().is_err());
}

#[tokio::test(start_paused = true)]
async fn readiness_follows_successes_and_says_why_not() {
    let steps = [fails(), added(&[1]), fails(), fails(), fails(), fails(), fails(), fails(), added(&[2])];
    let (script, _) = Script::new(steps);
    let (mut changes, health) = watch(script, options().stale_after(Duration::from_secs(1)));
    assert_eq!(health.ready().unwrap_err(), "no poll has succeeded yet: none has ended yet");
    let check = health.readiness();
    changes.next().await.unwrap();
    check().unwrap();
    let unready = async {
        loop {
            if let Err(why) = check() {
                return why;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let why = tokio::select! {
        _ = changes.next() => panic!("the failures come first"),
        why = unready => why,
    };
    assert!(why.contains("it is away") && why.contains("failed polls"), "{why}");
    changes.next().await.unwrap();
    check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn memory_knows_what_was_taken_and_no_more() {
    let memory = InProcess::default();
    let (script, _) = Script::new([added(&[1]), added(&[2, 3])]);
    let (mut changes, _) = watch(script, options().memory(memory.clone()));
    changes.next().await.unwrap();
    changes.next().await.unwrap();
    drop(changes);
    let entries = memory.clone().load().await.unwrap().entries;
    assert_eq!(
        entries.into_keys().collect::<Vec<_>>(),
        ["1"],
        "3 was not taken, so the poll that found 2 and 3 is not over"
    );
}

#[tokio::test(start_paused = true)]
async fn a_memory_that_cannot_be_read_holds_polls_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory");
    std::fs::write(&path, "nonsense").unwrap();
    let (script, polls) = Script::new([added(&[1])]);
    let (mut changes, health) = watch(script, options().memory(crate::memory::FileMemory::new(&path)));
    let mend = async {
        while health.failures() < 3 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!(health.ready().unwrap_err().contains("delete it to start over"));
        assert!(polls.lock().unwrap().is_empty());
        std::fs::remove_file(&path).unwrap();
    };
    let (change, ()) = tokio::join!(changes.next(), mend);
    assert_eq!(change, Some(Change::Added(1)));
}

/// Refuses the first write.
struct Reluctant(InProcess, bool);

impl Memory for Reluctant {
    fn load(&mut self) -> futures::future::BoxFuture<'_, Result<Remembered, MemoryError>> {
        self.0.load()
    }

    fn save<'a>(&'a mut self, entries: &'a Entries) -> futures::future::BoxFuture<'a, Result<(), MemoryError>> {
        if std::mem::replace(&mut self.1, true) {
            return self.0.save(entries);
        }
        let full = MemoryError::TooLarge { place: "a box".to_owned(), entries: entries.len(), size: 2, limit: 1 };
        Box::pin(std::future::ready(Err(full)))
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_failed_is_counted_and_tried_again() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let memory = InProcess::default();
    let (script, _) = Script::new([added(&[1]), added(&[]), added(&[])]);
    let options = options().memory(Reluctant(memory.clone(), false)).metrics(&metrics);
    let (mut changes, _) = watch(script, options);
    changes.next().await.unwrap();
    assert!(tokio::time::timeout(INTERVAL / 2, changes.next()).await.is_err());
    assert!(memory.clone().load().await.unwrap().entries.is_empty());
    assert!(tokio::time::timeout(INTERVAL * 2, changes.next()).await.is_err());
    assert_eq!(memory.clone().load().await.unwrap().entries.len(), 1);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let line = r#"konverge_external_errors_total{source="script",reason="MemoryTooLarge"} 1"#;
    assert!(text.contains(line), "{text}");
}

#[tokio::test(start_paused = true)]
async fn any_stream_has_health_and_metrics_and_ends_when_it_ends() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let items = [
        Ok(Change::Added("a")),
        Err(SourceError::transient("Broken", "a hiccup")),
        Ok(Change::Modified("a")),
        Ok(Change::Removed("a")),
    ];
    let source = from_stream("letters", stream::iter(items));
    let (changes, health) = watch(source, options().metrics(&metrics));
    let changes: Vec<_> = changes.collect().await;
    assert_eq!(changes, [Change::Added("a"), Change::Modified("a"), Change::Removed("a")]);
    assert!(health.ready().unwrap_err().contains("ended"));
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for line in [
        r#"konverge_external_polls_total{source="letters",result="error"} 1"#,
        r#"konverge_external_polls_total{source="letters",result="success"} 5"#,
        r#"konverge_external_errors_total{source="letters",reason="Broken"} 1"#,
        r#"konverge_external_changes_total{source="letters",kind="modified"} 1"#,
        r#"konverge_external_poll_duration_seconds_count{source="letters"} 6"#,
        r#"konverge_external_last_success_timestamp_seconds{source="letters"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is not in:\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_with_nothing_to_say_is_ready() {
    let (mut changes, health) = watch(from_stream("silent", stream::pending::<Result<Change<()>, _>>()), options());
    assert!(tokio::time::timeout(Duration::from_secs(3600), changes.next()).await.is_err());
    health.ready().unwrap();
}

/// A memory that another process has written before the first save.
struct Contested {
    loads: Arc<Mutex<usize>>,
    theirs: Option<Entries>,
    ours: Entries,
}

impl crate::Memory for Contested {
    fn load(&mut self) -> futures::future::BoxFuture<'_, Result<Remembered, MemoryError>> {
        *self.loads.lock().unwrap() += 1;
        let entries = if *self.loads.lock().unwrap() > 1 { self.ours.clone() } else { Entries::new() };
        let key = crate::FingerprintKey::random().unwrap();
        Box::pin(std::future::ready(Ok(Remembered { key, entries })))
    }

    fn save<'a>(&'a mut self, entries: &'a Entries) -> futures::future::BoxFuture<'a, Result<(), MemoryError>> {
        let theirs = self.theirs.take();
        let saved =
            if theirs.is_some() { Err(MemoryError::Changed { place: "ConfigMap a/b".to_owned() }) } else { Ok(()) };
        self.ours = theirs.unwrap_or_else(|| entries.clone());
        Box::pin(std::future::ready(saved))
    }
}

#[tokio::test(start_paused = true)]
async fn what_another_process_remembers_replaces_what_this_one_knows() {
    let loads = Arc::new(Mutex::new(0));
    let theirs = Entries::from([("7".to_owned(), String::new())]);
    let memory = Contested { loads: Arc::clone(&loads), theirs: Some(theirs), ours: Entries::new() };
    let (script, _) = Script::new([added(&[1]), added(&[2])]);
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let (mut changes, health) = watch(script, options().memory(memory).metrics(&metrics));
    changes.next().await.unwrap();
    changes.next().await.unwrap();
    assert_eq!((*loads.lock().unwrap(), health.ready()), (2, Ok(())));
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    assert!(text.contains(r#"konverge_external_errors_total{source="script",reason="MemoryChanged"} 1"#), "{text}");
}

#[test]
fn a_memory_keeps_a_watch_from_standbys() {
    assert!(!options().polls_on_standbys());
    assert!(options().on_standbys().polls_on_standbys());
    assert!(!options().on_standbys().memory(InProcess::default()).polls_on_standbys());
}
