//! The values of a Secret are where they belong and nowhere else.

use k8s_openapi::api::{core::v1::Secret, events::v1::Event};
use konverge_testkit::{Process, ProcessSpec};
use kube::api::ListParams;
use serde_json::json;

use crate::stage::{LIMIT, Stage, change, says};

/// In the clear and as the API server would show it.
const VALUES: [&str; 4] = ["hunter-one-3141", "aHVudGVyLW9uZS0zMTQx", "hunter-two-2718", "aHVudGVyLXR3by0yNzE4"];

#[tokio::test(flavor = "multi_thread")]
async fn values_are_in_no_log_event_or_status() {
    let stage = Stage::set().await;
    // With more to say than anybody would let it say.
    let spec = ProcessSpec::new("talkative", env!("CARGO_BIN_EXE_multicontroller-operator"))
        .args(["--address", "127.0.0.1:0", "--debug-queues", "--kubeconfig"])
        .arg(stage.operator.kubeconfig())
        .env("RUST_LOG", "debug");
    let operator = Process::start(stage.plane.run_directory(), spec).unwrap();

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

    let mut places = vec![("events", told.await.unwrap()), ("log", operator.logged())];
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
