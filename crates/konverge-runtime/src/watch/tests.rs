use std::sync::atomic::{AtomicUsize, Ordering};

use kube::core::Status;

use super::*;

type Step = Result<Event<u8>, watcher::Error>;

fn life(steps: Vec<fn() -> Step>) -> stream::BoxStream<'static, Result<Observed<u8>, watcher::Error>> {
    let steps = stream::iter(steps.into_iter().map(|step| step().map(Observed::from)));
    steps.chain(stream::pending()).boxed()
}

fn manner(list: InitialList, backoff: Backoff) -> Manner {
    Manner { list, backoff, optional: false }
}

fn api_error(code: u16) -> kube::Error {
    kube::Error::Api(Status { code, ..Status::default() }.boxed())
}

/// A watch that goes through the given lives, one per beginning, and hangs in the last.
fn watch(lives: Vec<Vec<fn() -> Step>>) -> (impl Stream<Item = Event<u8>>, WatchHealth, Arc<AtomicUsize>) {
    let beginnings = Arc::new(AtomicUsize::new(0));
    let (health, count) = (WatchHealth::default(), Arc::clone(&beginnings));
    let begin = move |_| life(lives[beginnings.fetch_add(1, Ordering::SeqCst)].clone());
    let backoff = Backoff { base: Duration::from_millis(1), factor: 1.0, cap: Duration::from_millis(1) };
    let events = never_ending(begin, manner(InitialList::default(), backoff), health.clone(), "Test".to_owned());
    (events.filter_map(|observed| future::ready(observed.event())), health, count)
}

async fn next(events: &mut (impl Stream<Item = Event<u8>> + Unpin)) -> Event<u8> {
    tokio::time::timeout(Duration::from_secs(20), events.next()).await.expect("an event in time").expect("no end")
}

#[tokio::test]
async fn row_05_errors_are_waited_out_and_410_at_opening_begins_anew() {
    let (events, health, beginnings) = watch(vec![
        vec![
            || Ok(Event::Init),
            || Ok(Event::InitDone),
            || Err(watcher::Error::WatchStartFailed(api_error(503))),
            || Err(watcher::Error::WatchFailed(api_error(500))),
            || Ok(Event::Apply(1)),
            || Err(watcher::Error::WatchStartFailed(api_error(410))),
        ],
        vec![|| Ok(Event::Init), || Ok(Event::InitApply(2)), || Ok(Event::InitDone)],
    ]);
    let mut events = Box::pin(events);
    assert!(matches!(next(&mut events).await, Event::Init));
    assert_eq!(health.check(), Err("the first list is not complete".to_owned()));
    assert!(matches!(next(&mut events).await, Event::InitDone));
    assert_eq!((health.check(), health.is_synced()), (Ok(()), true));
    assert!(matches!(next(&mut events).await, Event::Apply(1)));
    assert_eq!((beginnings.load(Ordering::SeqCst), health.failing_for()), (1, None));
    assert!(matches!(next(&mut events).await, Event::Init));
    assert_eq!(beginnings.load(Ordering::SeqCst), 2);
    assert!(health.failing_for().is_some());
    assert!(matches!(next(&mut events).await, Event::InitApply(2)));
    assert!(health.failing_for().is_none());
}

#[tokio::test]
async fn a_list_that_fails_says_why_it_is_not_ready() {
    let (events, health, _) = watch(vec![vec![|| Err(watcher::Error::InitialListFailed(api_error(403)))]]);
    let mut events = Box::pin(events);
    let waited = tokio::time::timeout(Duration::from_millis(50), events.next()).await;
    assert!(waited.is_err(), "there is no event to see");
    assert!(health.check().is_err_and(|why| why.starts_with("failing for 0 s: ")), "{:?}", health.check());
}

/// What a watch that begins with a streamed list does on an API server: how each life was begun, and the last event.
async fn streamed(first_life: Vec<fn() -> Step>) -> Vec<InitialList> {
    let lists = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&lists);
    let begin = move |list| {
        let mut begun = seen.lock().unwrap();
        begun.push(list);
        let paged: Vec<fn() -> Step> = vec![|| Ok(Event::Init), || Ok(Event::InitDone)];
        life(if begun.len() == 1 { first_life.clone() } else { paged })
    };
    let (backoff, health) = (Backoff::default(), WatchHealth::default());
    let events = never_ending(begin, manner(InitialList::Streamed, backoff), health.clone(), "Test".to_owned());
    let mut events = Box::pin(events.filter_map(|observed| future::ready(observed.event())));
    while !matches!(next(&mut events).await, Event::InitDone) {}
    assert_eq!(health.check(), Ok(()));
    drop(events);
    Arc::into_inner(lists).unwrap().into_inner().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_list_that_cannot_be_streamed_is_read_in_pages() {
    let (streamed_once, fallen_back) =
        (vec![InitialList::Streamed], vec![InitialList::Streamed, InitialList::default()]);
    let good: Vec<fn() -> Step> = vec![|| Ok(Event::Init), || Ok(Event::InitApply(1)), || Ok(Event::InitDone)];
    assert_eq!(streamed(good).await, streamed_once);
    // Refused, and not understood: begun a second time without an end of the first.
    assert_eq!(streamed(vec![|| Err(watcher::Error::WatchStartFailed(api_error(422)))]).await, fallen_back);
    assert_eq!(streamed(vec![|| Ok(Event::Init), || Ok(Event::InitApply(1)), || Ok(Event::Init)]).await, fallen_back);
    // An API server that is away says nothing of what it can.
    let away: Vec<fn() -> Step> =
        vec![|| Err(watcher::Error::WatchStartFailed(api_error(503))), || Ok(Event::Init), || Ok(Event::InitDone)];
    assert_eq!(streamed(away).await, streamed_once);
}
