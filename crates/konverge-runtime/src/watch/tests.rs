use std::sync::atomic::{AtomicUsize, Ordering};

use kube::core::Status;

use super::*;

type Step = Result<Event<u8>, watcher::Error>;

fn life(steps: Vec<fn() -> Step>) -> stream::BoxStream<'static, Result<Observed<u8>, watcher::Error>> {
    let steps = stream::iter(steps.into_iter().map(|step| step().map(Observed::from)));
    steps.chain(stream::pending()).boxed()
}

fn stream_options(list: InitialList, backoff: Backoff) -> StreamOptions {
    StreamOptions { list, backoff, optional: false }
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
    let events = never_ending(begin, stream_options(InitialList::default(), backoff), health.clone(), "Test");
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

/// Runs a watch that begins with a streamed list. Returns how each life was begun, and the last event.
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
    let events = never_ending(begin, stream_options(InitialList::Streamed, backoff), health.clone(), "Test");
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

mod against_a_server {
    use k8s_openapi::api::core::v1::ConfigMap;
    use konverge_testkit::double::{Answer, ApiDouble, Expectation, RequestMatcher, WatchScript};
    use kube::ResourceExt;
    use serde_json::{Value, json};

    use super::*;

    const PATH: &str = "/api/v1/configmaps";

    fn object(name: &str, version: &str) -> Value {
        json!({ "metadata": { "namespace": "a", "name": name, "uid": name, "resourceVersion": version } })
    }

    fn list(version: &str, items: &[Value]) -> Expectation {
        RequestMatcher::list(PATH).answer(Answer::list("v1", "ConfigMapList", version, items))
    }

    fn watch(after: &str, script: &WatchScript) -> Expectation {
        RequestMatcher::watch(PATH).query("resourceVersion", after).answer(Answer::watch(script))
    }

    /// The next event in a few words.
    async fn next(events: &mut (impl Stream<Item = Event<ConfigMap>> + Unpin)) -> String {
        match events.next().await.expect("no end") {
            Event::Init => "list".to_owned(),
            Event::InitApply(object) => format!("has {}", object.name_any()),
            Event::InitDone => "complete".to_owned(),
            Event::Apply(object) => format!("changed {}", object.name_any()),
            Event::Delete(object) => format!("deleted {}", object.name_any()),
        }
    }

    fn events_of(
        server: &ApiDouble,
        options: &WatchOptions,
    ) -> (impl Stream<Item = Event<ConfigMap>> + Unpin + use<>, WatchHealth) {
        let (events, health) = events::<ConfigMap>(server.client(), &(), options);
        (Box::pin(events), health)
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_whose_body_stalls_fails_within_its_deadline_and_is_not_ready() {
        let (server, half) = (ApiDouble::default(), WatchScript::default());
        half.raw("{\"kind\":\"ConfigMapList\",\"items\":[");
        server.expect(RequestMatcher::list(PATH).answer(Answer::watch(&half)).times(5));
        server.expect(list("7", &[]));
        server.expect(watch("7", &WatchScript::default()));
        let (mut events, health) = events_of(&server, &WatchOptions::default());
        let run = tokio::spawn(async move { while next(&mut events).await != "complete" {} });
        let begin = Instant::now();
        while !run.is_finished() && begin.elapsed() < Duration::from_secs(100) {
            assert!(health.check().is_err(), "after {:?}", begin.elapsed());
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        assert!(health.check().is_err_and(|why| why.contains("not complete after 30s")), "{:?}", health.check());
        tokio::time::timeout(Duration::from_secs(5 * 60), run).await.expect("in time").unwrap();
        assert_eq!(health.check(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_page_that_stalls_is_read_again_and_not_the_whole_list() {
        let (server, half) = (ApiDouble::default(), WatchScript::default());
        half.raw("{");
        let page = json!({
            "apiVersion": "v1", "kind": "ConfigMapList",
            "metadata": { "resourceVersion": "7", "continue": "next" }, "items": [object("x", "3")],
        });
        server.expect(RequestMatcher::list(PATH).without_query("continue").answer(Answer::object(&page)));
        server.expect(RequestMatcher::list(PATH).query("continue", "next").answer(Answer::watch(&half)));
        let rest = Answer::list("v1", "ConfigMapList", "7", &[object("y", "4")]);
        server.expect(RequestMatcher::list(PATH).query("continue", "next").answer(rest));
        let (mut events, _) = events_of(&server, &WatchOptions::default());
        for expected in ["list", "has x", "has y", "complete"] {
            assert_eq!(next(&mut events).await, expected);
        }
        server.finish().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_frozen_watch_is_noticed_within_thirty_seconds_and_goes_on_where_it_was() {
        let (server, frozen, later) = (ApiDouble::default(), WatchScript::default(), WatchScript::default());
        server.expect(list("7", &[]));
        server.expect(watch("7", &frozen));
        frozen.added(&object("x", "8"));
        // The event proves what a comparison of versions would.
        server.expect(watch("8", &later));
        later.added(&object("y", "9"));
        let (mut events, health) = events_of(&server, &WatchOptions::default());
        for expected in ["list", "complete", "changed x"] {
            assert_eq!(next(&mut events).await, expected);
        }
        let begin = Instant::now();
        assert_eq!(next(&mut events).await, "changed y");
        assert!(begin.elapsed() <= Duration::from_secs(30), "{:?}", begin.elapsed());
        assert_eq!((health.check(), health.failing_for()), (Ok(()), None));
        server.finish().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_watch_that_ends_as_agreed_costs_one_request() {
        let (server, quiet) = (ApiDouble::default(), WatchScript::default());
        server.expect(list("7", &[]));
        server.expect(watch("7", &quiet));
        let next_watch = WatchScript::default();
        server.expect(watch("12", &next_watch));
        next_watch.added(&object("x", "13"));
        let (mut events, _) = events_of(&server, &WatchOptions::default());
        let ended = quiet.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(23)).await;
            ended.bookmark("v1", "ConfigMap", "12");
            tokio::time::sleep(Duration::from_secs(2)).await;
            ended.end();
        });
        for expected in ["list", "complete", "changed x"] {
            assert_eq!(next(&mut events).await, expected);
        }
        server.finish().unwrap();
    }

    /// The API server sends no bookmarks for a kind of which it has seen no event since it started.
    #[tokio::test(start_paused = true)]
    async fn a_quiet_watch_that_ends_as_agreed_without_a_bookmark_costs_one_request_too() {
        let (server, quiet, next_watch) = (ApiDouble::default(), WatchScript::default(), WatchScript::default());
        server.expect(list("7", &[]));
        server.expect(watch("7", &quiet));
        server.expect(watch("7", &next_watch));
        let (mut events, _) = events_of(&server, &WatchOptions::default());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(25)).await;
            quiet.end();
            tokio::time::sleep(Duration::from_secs(5)).await;
            next_watch.added(&object("x", "13"));
        });
        for expected in ["list", "complete", "changed x"] {
            assert_eq!(next(&mut events).await, expected);
        }
        server.finish().unwrap();
    }

    /// The store was replaced behind a load balancer, which ended the watch as the API server would have.
    #[tokio::test(start_paused = true)]
    async fn watches_that_stay_silent_are_compared_in_the_end() {
        const SILENT: usize = 37;
        let (server, quiet) = (ApiDouble::default(), [(); SILENT].map(|()| WatchScript::default()));
        server.expect(list("70", &[]));
        for script in &quiet {
            server.expect(watch("70", script));
        }
        server.expect(list("50", &[]));
        server.expect(list("50", &[object("x", "40")]));
        server.expect(watch("50", &WatchScript::default()));
        let (mut events, _) = events_of(&server, &WatchOptions::default());
        let begin = Instant::now();
        tokio::spawn(async move {
            for script in quiet {
                tokio::time::sleep(Duration::from_secs(25)).await;
                script.end();
            }
        });
        for expected in ["list", "complete", "list", "has x", "complete"] {
            assert_eq!(next(&mut events).await, expected);
        }
        let (took, proven) = (begin.elapsed(), Duration::from_secs(15 * 60));
        assert!(took >= proven && took < proven + Duration::from_secs(30), "{took:?}");
    }

    /// Two watches broke off in a row, and only the first one cost a comparison. The store was replaced between them.
    #[tokio::test(start_paused = true)]
    async fn a_comparison_that_was_left_out_is_made_when_the_silent_watch_ends() {
        let server = ApiDouble::default();
        let [first, second, silent] = [(); 3].map(|()| WatchScript::default());
        server.expect(list("70", &[]));
        server.expect(watch("70", &first));
        server.expect(watch("70", &second));
        server.expect(list("71", &[]));
        server.expect(watch("70", &silent));
        server.expect(watch("70", &WatchScript::default()));
        server.expect(list("50", &[]));
        server.expect(list("50", &[object("x", "40")]));
        server.expect(watch("50", &WatchScript::default()));
        let (mut events, _) = events_of(&server, &WatchOptions::default());
        tokio::spawn(async move {
            for watch in [first, second] {
                tokio::time::sleep(Duration::from_secs(4)).await;
                watch.break_off();
            }
            tokio::time::sleep(Duration::from_secs(25)).await;
            silent.end();
        });
        for expected in ["list", "complete", "list", "has x", "complete"] {
            assert_eq!(next(&mut events).await, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_older_store_is_noticed_and_listed_again() {
        let (server, broken) = (ApiDouble::default(), WatchScript::default());
        server.expect(list("70", &[object("x", "60")]));
        server.expect(watch("70", &broken));
        broken.break_off();
        // The copy is of version 50. A watch after 70 is silent until it is reached.
        server.expect(watch("70", &WatchScript::default()));
        server.expect(list("50", &[object("x", "40")]));
        server.expect(list("50", &[object("x", "40")]));
        server.expect(watch("50", &WatchScript::default()));
        let (mut events, _) = events_of(&server, &WatchOptions::default());
        for expected in ["list", "has x", "complete", "list", "has x", "complete"] {
            assert_eq!(next(&mut events).await, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_ends_with_a_list() {
        let (server, broken) = (ApiDouble::default(), WatchScript::default());
        server.expect(list("70", &[]));
        server.expect(watch("70", &broken));
        broken.break_off();
        server.expect(RequestMatcher::watch(PATH).answer(Answer::connection_error()).times(2));
        server.expect(list("90", &[object("x", "40")]));
        let (mut events, _) = events_of(&server, &WatchOptions::default());
        for expected in ["list", "complete", "list", "has x", "complete"] {
            assert_eq!(next(&mut events).await, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn watches_that_break_off_in_a_row_cost_one_comparison_of_versions() {
        let (server, last) = (ApiDouble::default(), WatchScript::default());
        let breaking = [WatchScript::default(), WatchScript::default()];
        server.expect(list("70", &[]));
        server.expect(watch("70", &breaking[0]));
        // Silence may be that of another store.
        server.expect(watch("70", &breaking[1]));
        server.expect(list("71", &[]));
        server.expect(watch("70", &last));
        let (mut events, _) = events_of(&server, &WatchOptions::default());
        tokio::spawn(async move {
            for watch in breaking {
                tokio::time::sleep(Duration::from_secs(4)).await;
                watch.break_off();
            }
            tokio::time::sleep(Duration::from_secs(4)).await;
            last.added(&object("x", "71"));
        });
        for expected in ["list", "complete", "changed x"] {
            assert_eq!(next(&mut events).await, expected);
        }
        server.finish().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn watches_that_are_refused_cost_one_list() {
        let (server, broken) = (ApiDouble::default(), WatchScript::default());
        server.expect(list("70", &[]));
        server.expect(watch("70", &broken));
        broken.break_off();
        let refused = Answer::status(500, "InternalError", "etcd has no leader");
        server.expect(RequestMatcher::watch(PATH).answer(refused).times(2));
        server.expect(list("90", &[object("x", "40")]));
        server.expect(watch("90", &WatchScript::default()));
        let (mut events, health) = events_of(&server, &WatchOptions::default());
        for expected in ["list", "complete", "list", "has x", "complete"] {
            assert_eq!(next(&mut events).await, expected);
        }
        assert!(tokio::time::timeout(Duration::from_secs(1), events.next()).await.is_err(), "nothing has changed");
        assert_eq!(health.check(), Ok(()));
        server.finish().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_may_be_missing_keeps_nobody_unready_and_is_watched_once_it_is_there() {
        let refusals = [(404, "NotFound", "no such kind"), (403, "Forbidden", "not allowed")];
        for (optional, (code, reason, text)) in
            [true, false].into_iter().flat_map(|optional| refusals.map(|refusal| (optional, refusal)))
        {
            let server = ApiDouble::default();
            server.expect(RequestMatcher::list(PATH).answer(Answer::status(code, reason, text)).times(3));
            server.expect(list("7", &[object("x", "3")]));
            let (mut events, health) = events_of(&server, &WatchOptions { optional, ..WatchOptions::default() });
            let run = tokio::spawn(async move { while next(&mut events).await != "has x" {} });
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!((health.check().is_ok(), health.is_missing()), (optional, optional));
            tokio::time::timeout(Duration::from_secs(2 * 60), run).await.expect("in time").unwrap();
        }
    }
}
