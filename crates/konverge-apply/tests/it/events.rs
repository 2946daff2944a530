//! Events, seen from the API server.

use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use konverge_apply::events::{EventSink, Notice};
use konverge_testkit::eventually;
use kube::{Api, Resource, api::PostParams, runtime::events::EventType};
use prometheus_client::{encoding::text, registry::Registry};

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
async fn repeats_become_a_series_and_notes_are_cut() {
    let (client, namespace) = namespace().await;
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let object = api.create(&PostParams::default(), &secret("db", &[])).await.unwrap();
    let (sink, task) = EventSink::new(client.clone(), "test", std::future::pending());
    let task = tokio::spawn(task);
    for _ in 0..40 {
        sink.send(notice(&object, &"ä".repeat(2000)));
    }
    eventually(Duration::from_secs(20), async || {
        (counted(&sink).contains(r#"result="limited"} 15"#) && counted(&sink).contains(r#"result="published"} 25"#))
            .then_some(())
    })
    .await
    .unwrap_or_else(|error| panic!("{error}: {}", counted(&sink)));
    drop(sink);
    task.await.unwrap();
    let events =
        Api::<Event>::namespaced(client, &namespace).list(&kube::api::ListParams::default()).await.unwrap().items;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].series.as_ref().map(|series| series.count), Some(25));
    assert_eq!(events[0].note.as_ref().map(String::len), Some(1024));
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
