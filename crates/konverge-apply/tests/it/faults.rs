//! Repetition ends in the same state, whichever write is lost, refused or not answered, and however old the view is.

use k8s_openapi::{api::core::v1::ConfigMap, jiff::Timestamp};
use konverge_apply::{Applier, Conditions, DesiredSet, Moment, Owner, Reason, StatusWriter, owners::OWNER_UID};
use konverge_core::error::{Classify, ErrorClass};
use konverge_testkit::fault_proxy::{FaultProxy, Plan};
use kube::api::{ListParams, PostParams};
use serde_json::json;

use super::status::{Sample, sample, samples};
use super::*;

const FINALIZER: &str = "konverge.dev/test";

/// The objects, as a cache would show them.
struct View {
    owner: Sample,
    children: Vec<ConfigMap>,
}

impl View {
    async fn now(client: &Client, namespace: &str) -> Self {
        let owner = samples(client, namespace).await.get("owner").await.unwrap();
        let ours = ListParams::default().labels(&format!("{OWNER_UID}={}", owner.uid().unwrap()));
        Self { owner, children: Api::namespaced(client.clone(), namespace).list(&ours).await.unwrap().items }
    }
}

fn child(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"a": "1"}})).unwrap()
}

/// Five writes: the finalizer, two children, a deletion, the status.
async fn reconcile(applier: &Applier, view: &View) -> Result<(), Box<dyn Classify>> {
    let boxed = |error| -> Box<dyn Classify> { Box::new(error) };
    let owner = applier.add_finalizer(&view.owner, FINALIZER).await.map_err(boxed)?;
    let owner = owner.unwrap_or_else(|| view.owner.clone());
    let set = DesiredSet::new(Owner::of(&owner).unwrap()).observe(&view.children).add(child("one")).add(child("two"));
    if let Err(error) = set.apply(applier).await {
        return Err(Box::new(error));
    }
    let mut conditions = Conditions::default();
    let moment = Moment { generation: owner.metadata.generation, now: Timestamp::now() };
    conditions.ready(&Reason::new("Synced"), "", moment);
    StatusWriter::new(applier.clone()).write(&owner, &json!({"conditions": conditions})).await.map_err(boxed)?;
    Ok(())
}

async fn check(proxy: &FaultProxy, fault: &str, nth: usize) {
    let (admin, namespace) = namespace().await;
    let api = samples(&admin, &namespace).await;
    let owner = api.create(&PostParams::default(), &sample(&namespace, "owner")).await.unwrap();
    let before = DesiredSet::new(Owner::of(&owner).unwrap()).add(child("old"));
    assert!(before.apply(&Applier::new(admin.clone(), "ours")).await.unwrap().is_change());

    let phase = if fault == "lost reply" { "after" } else { "before" };
    let action = match fault {
        "lost reply" | "lost request" => "drop".to_owned(),
        code => format!("{{ status: {{ code: {code} }} }}"),
    };
    let when = format!("phase: {phase}, mutating: true, namespace: {namespace}, nth: {nth}");
    proxy.set(Plan::parse(&format!("rules: [{{ when: {{ {when} }}, then: {action} }}]")).unwrap()).unwrap();
    let applier = Applier::new(konverge_testkit::client_for(proxy.kubeconfig()).await.unwrap(), "ours");
    let mut view = View::now(&admin, &namespace).await;
    let mut failures = 0;
    while let Err(error) = reconcile(&applier, &view).await {
        assert_ne!(error.class(), ErrorClass::Permanent, "{fault} at {nth}: {}", error.reason());
        failures += 1;
        assert!(failures < 6, "{fault} at {nth}: {}", error.reason());
        // The first repetition comes before the watch has told anything.
        if failures > 1 {
            view = View::now(&admin, &namespace).await;
        }
    }
    assert_eq!(proxy.fired(), [1], "{fault} at {nth} did not happen");
    // On a conflict the status is sent again, as our part of it is as it was seen.
    let is_repeated_at_once = (fault, nth) == ("409", 5);
    assert_eq!(failures > 0, !is_repeated_at_once, "{fault} at {nth}");

    let end = View::now(&admin, &namespace).await;
    assert_eq!(end.owner.finalizers(), [FINALIZER], "{fault} at {nth}");
    assert!(end.owner.status.as_ref().unwrap().conditions.is_true("Ready"), "{fault} at {nth}");
    let names: Vec<_> = end.children.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["one", "two"], "{fault} at {nth}");
    // Now there is nothing to do, also for a process that has just started.
    let write_observer = std::sync::Arc::new(Notes::default());
    let fresh = Applier::new(admin, "ours").with_write_observer(write_observer.clone());
    assert!(reconcile(&fresh, &end).await.is_ok());
    assert!(write_observer.taken().is_empty(), "{fault} at {nth}");
}

#[tokio::test]
async fn whatever_write_fails_repeating_ends_in_the_same_state() {
    let control_plane = control_plane().await;
    let proxy = FaultProxy::start(control_plane.run_directory(), control_plane.kubeconfig()).await.unwrap();
    for fault in ["lost request", "lost reply", "500", "409", "403"] {
        for nth in 1..=5 {
            check(&proxy, fault, nth).await;
        }
    }
}
