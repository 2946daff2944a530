//! The values of a Secret are where they belong and nowhere else.

use k8s_openapi::api::{core::v1::Secret, events::v1::Event};
use konverge_testkit::{Process, ProcessSpec, free_port, http_get};
use kube::api::ListParams;
use serde_json::json;

use crate::{
    collector::{Collector, attribute},
    stage::{LIMIT, Stage, change, says},
};

/// In the clear and as the API server would show it.
const VALUES: [&str; 4] = ["hunter-one-3141", "aHVudGVyLW9uZS0zMTQx", "hunter-two-2718", "aHVudGVyLXR3by0yNzE4"];

#[tokio::test(flavor = "multi_thread")]
async fn row_36_values_are_in_no_log_event_status_metric_or_trace() {
    let (stage, collector) = (Stage::set().await, Collector::start().await);
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    // With more to say than anybody would let it say.
    let spec = ProcessSpec::new("talkative", env!("CARGO_BIN_EXE_multicontroller-operator"))
        .args(["--address", &address, "--debug-queues", "--log-format=json", "--otlp-endpoint"])
        .arg(&collector.endpoint)
        .arg("--kubeconfig")
        .arg(stage.operator.kubeconfig())
        .env("RUST_LOG", "debug");
    let mut operator = Process::start(stage.plane.run_directory(), spec).unwrap();

    // Good; drifted and mended; refused by the API server for a key; and with nowhere to go.
    stage.create_secret("good", &[("password", VALUES[0])]).await;
    says(&stage.secret_syncs(), "good", "Ready", None).await;
    stage.create_secret("refused", &[("no key!", VALUES[0]), ("password", VALUES[2])]).await;
    says(&stage.secret_syncs(), "refused", "Stalled", None).await;
    let secrets = stage.api::<Secret>(&stage.target);
    change(&secrets, "ss-good", json!({"data": {"password": "ZHJpZnQ="}})).await;
    stage.holds("ss-good", &[("password", VALUES[0])]).await;
    stage.create_secret("lost", &[("password", VALUES[2])]).await;
    change(&stage.secret_syncs(), "lost", json!({"spec": {"targetNamespace": "nowhere"}})).await;
    says(&stage.secret_syncs(), "lost", "Reconciling", None).await;
    let events = stage.api::<Event>(&stage.home);
    let told = konverge_testkit::eventually(LIMIT, || async {
        let events = events.list(&ListParams::default()).await.unwrap().items;
        let has = |reason: &str| events.iter().any(|event| event.reason.as_deref() == Some(reason));
        (has("SecretDriftCorrected") && events.iter().any(|event| event.type_.as_deref() == Some("Warning")))
            .then(|| serde_json::to_string(&events).unwrap())
    });

    let events = told.await.unwrap();
    let mut places = Vec::new();
    for (place, path) in [("metrics", "/metrics"), ("queues", "/debug/queues")] {
        let (code, text) = http_get(&address, path).await.unwrap();
        assert_eq!(code, 200, "{place}");
        places.push((place, text));
    }
    // The last spans are sent at the end.
    assert!(operator.terminate(LIMIT).await.unwrap().success());
    let log = operator.logged();
    traces_tell_the_runs(&collector, &log, &stage.home);
    places.extend([("events", events), ("log", log), ("traces", collector.everything())]);
    for name in ["good", "refused", "lost"] {
        let status = stage.secret_syncs().get(name).await.unwrap().status;
        places.push((name, serde_json::to_string(&status).unwrap()));
    }
    for (place, text) in places {
        assert!(!text.is_empty(), "{place} says nothing at all");
        for value in VALUES {
            assert!(!text.contains(value), "{place} shows a value");
        }
    }
}

/// Each run is a span, with the requests that it made beneath it, and its log lines name its trace.
fn traces_tell_the_runs(collector: &Collector, log: &str, namespace: &str) {
    let spans = collector.spans();
    let of = |name: &str| {
        let object = format!("{namespace}/{name}");
        spans.iter().filter(move |span| span.name == "reconcile" && attribute(span, "object") == Some(object.clone()))
    };
    let good = of("good").find(|span| attribute(span, "result").as_deref() == Some("requeue_after")).unwrap();
    assert_eq!(attribute(good, "controller").as_deref(), Some("secretsyncs"));
    assert_eq!(attribute(good, "attempt").as_deref(), Some("1"));
    let request = spans.iter().find(|span| span.parent_span_id == good.span_id).unwrap();
    assert!(attribute(request, "http.method").is_some(), "{request:?}");

    let refused = of("refused").find(|span| attribute(span, "result").as_deref() == Some("error")).unwrap();
    assert_eq!(refused.status.as_ref().unwrap().code, 2, "an error");
    assert!(refused.events.iter().any(|event| event.name == "failed"), "{refused:?}");
    let trace_id = format!("{:032x}", u128::from_be_bytes(refused.trace_id.as_slice().try_into().unwrap()));
    let line = log.lines().find(|line| line.contains(&trace_id)).unwrap();
    assert!(line.contains("\"refused\"") || line.contains("/refused"), "{line}");
    assert!(spans.iter().all(|span| !span.parent_span_id.is_empty() || span.name == "reconcile"), "{spans:#?}");
    assert_eq!(collector.service().as_deref(), Some("multicontroller-operator"));
}
