//! Events, seen from the API server.

use k8s_openapi::api::{events::v1::Event, rbac::v1::ClusterRole};
use konverge_apply::events::{EventSink, Notice};
use kube::{
    Resource,
    api::{DeleteParams, ListParams, PostParams},
    runtime::events::EventType,
};
use prometheus_client::{encoding::text, registry::Registry};
use serde_json::json;

use super::*;

fn notice(object: &Secret, note: &str) -> Notice {
    Notice {
        regarding: object.object_ref(&()),
        kind: EventType::Warning,
        reason: "Tested",
        action: "Test",
        note: note.to_owned(),
    }
}

/// The lines of the sink's counters.
fn counted(sink: &EventSink) -> String {
    let mut registry = Registry::default();
    sink.register(&mut registry);
    let mut lines = String::new();
    text::encode(&mut lines, &registry).unwrap();
    lines
}

#[tokio::test]
async fn row_32_repeats_become_a_series_and_notes_are_cut() {
    let (client, namespace) = namespace().await;
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let object = api.create(&PostParams::default(), &secret("db", &[])).await.unwrap();
    let (sink, task) = EventSink::new(client.clone(), "test", std::future::pending());
    let task = tokio::spawn(task);
    for _ in 0..40 {
        sink.send(notice(&object, &"ä".repeat(2000)));
    }
    eventually(Duration::from_secs(20), async || {
        (counted(&sink).contains(r#"result="limited"} 15"#) && counted(&sink).contains(r#"result="published"} 26"#))
            .then_some(())
    })
    .await
    .unwrap_or_else(|error| panic!("{error}: {}", counted(&sink)));
    drop(sink);
    task.await.unwrap();
    let events =
        Api::<Event>::namespaced(client, &namespace).list(&kube::api::ListParams::default()).await.unwrap().items;
    let of = |reason| events.iter().filter(move |event| event.reason.as_deref() == Some(reason)).collect::<Vec<_>>();
    let (repeated, limited) = (of("Tested"), of("EventsLimited"));
    assert_eq!((repeated.len(), limited.len(), events.len()), (1, 1, 2));
    assert!(limited[0].note.as_deref().unwrap().contains("25 in a short time"), "{limited:?}");
    assert_eq!(repeated[0].series.as_ref().map(|series| series.count), Some(25));
    let note = repeated[0].note.as_deref().unwrap();
    assert!(note.len() <= 1024 && note.len() > 1020 && note.ends_with("ä…"), "{}", note.len());
}

#[tokio::test]
async fn row_32_long_and_odd_names_have_events_too() {
    let (client, namespace) = namespace().await;
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let long = format!("{}.{}", "a".repeat(126), "b".repeat(126));
    let object = api.create(&PostParams::default(), &secret(&long, &[])).await.unwrap();
    let (sink, task) = EventSink::new(client.clone(), "test", std::future::pending());
    let task = tokio::spawn(task);
    sink.send(Notice::normal(&object, "Tested", "Test", "a long name"));
    let role: ClusterRole =
        serde_json::from_value(json!({"metadata": {"name": "konverge:Test", "uid": namespace}})).unwrap();
    sink.send(Notice::warning(&role, "Tested", "Test", "an odd name"));
    drop(sink);
    task.await.unwrap();
    let events = Api::<Event>::namespaced(client.clone(), &namespace).list(&ListParams::default()).await.unwrap().items;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].regarding.as_ref().unwrap().name.as_deref(), Some(&*long));
    let others = Api::<Event>::namespaced(client, "default").list(&ListParams::default()).await.unwrap().items;
    let ours =
        |event: &&Event| event.regarding.as_ref().is_some_and(|object| object.uid.as_deref() == Some(&*namespace));
    assert_eq!(others.iter().filter(ours).count(), 1);
}

#[tokio::test]
async fn a_series_whose_event_was_deleted_begins_anew() {
    let (client, namespace) = namespace().await;
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let events: Api<Event> = Api::namespaced(client.clone(), &namespace);
    let object = api.create(&PostParams::default(), &secret("db", &[])).await.unwrap();
    let (sink, task) = EventSink::new(client, "test", std::future::pending());
    let task = tokio::spawn(task);
    let there = async || events.list(&ListParams::default()).await.unwrap().items;
    sink.send(notice(&object, "one"));
    eventually(Duration::from_secs(20), async || (there().await.len() == 1).then_some(())).await.unwrap();
    events.delete(&there().await[0].name_any(), &DeleteParams::default()).await.unwrap();
    sink.send(notice(&object, "two"));
    drop(sink);
    task.await.unwrap();
    let left = there().await;
    assert_eq!((left.len(), left[0].note.as_deref()), (1, Some("two")));
}

#[tokio::test]
async fn without_permission_events_are_counted_and_nothing_waits() {
    let (admin, namespace) = namespace().await;
    let api: Api<Secret> = Api::namespaced(admin, &namespace);
    let object = api.create(&PostParams::default(), &secret("db", &[])).await.unwrap();
    let kubeconfig = control_plane().await.service_account_kubeconfig(&namespace, "mute").await.unwrap();
    let mute = konverge_testkit::client_for(&kubeconfig).await.unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let (sink, task) = EventSink::new(mute, "test", stop.clone().cancelled_owned());
    sink.send(notice(&object, "one"));
    sink.send(notice(&object, "two"));
    stop.cancel();
    task.await;
    assert!(counted(&sink).contains(r#"result="forbidden"} 2"#), "{}", counted(&sink));
    sink.send(notice(&object, "late"));
    assert!(counted(&sink).contains(r#"result="dropped"} 1"#), "{}", counted(&sink));
}
