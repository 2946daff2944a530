use std::time::Duration;

use futures::{Stream, StreamExt, stream::BoxStream};
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams, WatchEvent, WatchParams},
    client::Body,
};
use tokio::{task::JoinHandle, time::timeout};

use super::{Rig, SOON, code};

type Events = BoxStream<'static, kube::Result<WatchEvent<ConfigMap>>>;

impl Rig {
    async fn watch(&self) -> Events {
        let version = self.direct.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
        self.proxied.watch(&WatchParams::default(), &version).await.unwrap().boxed()
    }

    /// All that a watch says until its end, and whether it broke. A kube client tells a broken watch as one that is over.
    async fn raw_watch(&self) -> JoinHandle<(String, bool)> {
        let version = self.direct.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
        let path = format!("/api/v1/namespaces/{}/configmaps?watch=true&resourceVersion={version}", self.namespace);
        let mut body = self.client.send(Request::get(path).body(Body::empty()).unwrap()).await.unwrap().into_body();
        tokio::spawn(async move {
            let mut text = Vec::new();
            loop {
                match body.frame().await {
                    Some(Ok(frame)) => text.extend_from_slice(frame.data_ref().unwrap()),
                    end => return (String::from_utf8(text).unwrap(), end.is_some()),
                }
            }
        })
    }
}

/// The next event in a few words; `over` is the end of the stream.
async fn next(events: &mut (impl Stream<Item = kube::Result<WatchEvent<ConfigMap>>> + Unpin)) -> String {
    match timeout(SOON, events.next()).await.expect("an event or an end") {
        Some(Ok(WatchEvent::Added(map))) => format!("+{}", map.name_any()),
        Some(Ok(WatchEvent::Modified(map))) => format!("~{}", map.name_any()),
        Some(Ok(WatchEvent::Deleted(map))) => format!("-{}", map.name_any()),
        Some(Ok(WatchEvent::Bookmark(_))) => "bookmark".to_owned(),
        Some(Ok(WatchEvent::Error(status))) => format!("error {}", status.code),
        Some(Err(error)) => error.to_string(),
        None => "over".to_owned(),
    }
}

/// Nothing comes for a while.
async fn is_silent(events: &mut Events) -> bool {
    timeout(Duration::from_millis(300), events.next()).await.is_err()
}

#[tokio::test]
async fn events_come_one_by_one() {
    let rig = Rig::new().await;
    let mut events = rig.watch().await;
    rig.create("a").await;
    assert_eq!(next(&mut events).await, "+a");
    rig.direct.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(next(&mut events).await, "-a");
    assert!(is_silent(&mut events).await);
    assert_eq!((rig.last().events, rig.last().request.verb.name()), (2, "watch"));
}

#[tokio::test]
async fn held_events_wait_for_their_release_and_keep_their_order() {
    let rig = Rig::new().await;
    rig.plan("- { when: { phase: body, verbs: [watch], name: held, events: [ADDED] }, then: hold }");
    let mut events = rig.watch().await;
    rig.create("before").await;
    assert_eq!(next(&mut events).await, "+before");
    rig.create("held").await;
    rig.direct.delete("held", &DeleteParams::default()).await.unwrap();
    rig.create("after").await;
    rig.journal_has(|entry| !entry.faults.is_empty()).await;
    assert!(is_silent(&mut events).await);
    // The proxy serves all else meanwhile.
    assert!(rig.proxied.get_opt("after").await.unwrap().is_some());

    rig.proxy.release();
    for event in ["+held", "-held", "+after"] {
        assert_eq!(next(&mut events).await, event);
    }
    rig.create("held").await;
    assert_eq!(next(&mut events).await, "+held", "a released rule holds no more");
}

#[tokio::test]
async fn what_an_old_plan_holds_is_released_by_a_new_one() {
    let rig = Rig::new().await;
    rig.plan("- { when: { phase: body, verbs: [watch] }, then: hold }");
    let mut events = rig.watch().await;
    rig.create("a").await;
    rig.journal_has(|entry| !entry.faults.is_empty()).await;
    rig.plan("- { when: { phase: body, verbs: [watch], name: b }, then: suppress }");
    rig.create("b").await;
    rig.create("c").await;
    assert_eq!([next(&mut events).await, next(&mut events).await], ["+a", "+c"]);
}

#[tokio::test]
async fn too_old_at_the_opening_of_the_watch() {
    let rig = Rig::new().await;
    rig.plan("- { when: { verbs: [watch], nth: 1 }, then: { status: { code: 410 } } }\n- { when: { verbs: [watch], nth: 2 }, then: { error_event: 410 } }");
    let Err(refused) = rig.proxied.watch(&WatchParams::default(), "1").await.map(|_| ()) else { panic!("it opened") };
    assert!(matches!(&refused, kube::Error::Api(status) if status.reason == "Expired"), "{refused:?}");
    assert_eq!(code(&refused), Some(410));
    let mut events = rig.watch().await;
    assert_eq!([next(&mut events).await, next(&mut events).await], ["error 410", "over"]);
    let mut events = rig.watch().await;
    assert!(is_silent(&mut events).await);
}

#[tokio::test]
async fn too_old_in_the_stream() {
    let rig = Rig::new().await;
    rig.plan("- { when: { phase: body, verbs: [watch], nth: 2 }, then: { error_event: 410 } }");
    let mut events = rig.watch().await;
    rig.create("a").await;
    rig.create("b").await;
    assert_eq!(
        [next(&mut events).await, next(&mut events).await, next(&mut events).await],
        ["+a", "error 410", "over"]
    );
}

#[tokio::test]
async fn a_stream_breaks_in_the_middle_of_an_event() {
    for (fault, kinds) in [("truncate", 2), ("drop", 1)] {
        let rig = Rig::new().await;
        rig.plan(&format!("- {{ when: {{ phase: body, verbs: [watch], events: [DELETED] }}, then: {fault} }}"));
        let watch = rig.raw_watch().await;
        rig.create("a").await;
        rig.direct.delete("a", &DeleteParams::default()).await.unwrap();
        let (text, broken) = timeout(SOON, watch).await.unwrap().unwrap();
        assert!(broken, "{fault}");
        assert_eq!((text.matches("type").count(), text.matches('\n').count()), (kinds, 1), "{text}");
    }
}

#[tokio::test]
async fn a_frozen_stream_is_silent_and_open_until_the_release_breaks_it() {
    let rig = Rig::new().await;
    rig.plan("- { when: { phase: body, verbs: [watch], nth: 2 }, then: freeze }");
    let mut watch = rig.raw_watch().await;
    rig.create("a").await;
    rig.create("b").await;
    rig.journal_has(|entry| !entry.faults.is_empty()).await;
    rig.create("c").await;
    timeout(Duration::from_millis(300), &mut watch).await.unwrap_err();
    rig.proxy.release();
    let (text, broken) = timeout(SOON, watch).await.unwrap().unwrap();
    assert!(broken);
    assert_eq!(text.matches("ADDED").count(), 1, "{text}");
}

#[tokio::test]
async fn events_are_left_out_doubled_and_late() {
    let rig = Rig::new().await;
    let rule = |name: &str, fault: &str| {
        format!("- {{ when: {{ phase: body, verbs: [watch], name: {name} }}, then: {fault} }}\n")
    };
    rig.plan(&[rule("lost", "suppress"), rule("twice", "duplicate"), rule("late", "{ delay: 300ms }")].concat());
    let mut events = rig.watch().await;
    for name in ["lost", "twice", "late"] {
        rig.create(name).await;
    }
    for event in ["+twice", "+twice", "+late"] {
        assert_eq!(next(&mut events).await, event);
    }
}

#[tokio::test]
async fn bookmarks_are_suppressed_but_for_the_one_that_ends_a_streaming_list() {
    const SUPPRESS: &str = "- { when: { phase: body, verbs: [watch], events: [BOOKMARK] }, then: suppress }";
    // The server sends a bookmark two seconds before it ends a watch, if something new has happened elsewhere.
    let version =
        async |rig: &Rig| rig.direct.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let short = async |rig: &Rig| {
        let version = version(rig).await;
        let mut events = rig.proxied.watch(&WatchParams::default().timeout(6), &version).await.unwrap().boxed();
        Rig::new().await.create("elsewhere").await;
        next(&mut events).await
    };
    let (plain, suppressing) = (Rig::new().await, Rig::new().await);
    suppressing.plan(SUPPRESS);
    let (told, suppressed) = tokio::join!(short(&plain), short(&suppressing));
    assert_eq!([told, suppressed], ["bookmark", "over"]);

    suppressing.create("a").await;
    let streaming_list = WatchParams::default().initial_events();
    // One of any version could lack what was just made.
    let mut events = suppressing.proxied.watch(&streaming_list, &version(&suppressing).await).await.unwrap().boxed();
    assert_eq!([next(&mut events).await, next(&mut events).await], ["+a", "bookmark"]);
}
