//! The objects of an operator when etcd is replaced by an older copy.

use konverge::{Operator, prelude::*};
use konverge_testkit::eventually;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::json;

use crate::{
    faults::{Texts, text_is},
    stage::{Place, Probe, own_control_plane, run_as},
};

/// After a restore, everything has to be as it should within this time.
const SOON: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn an_older_copy_of_etcd_is_noticed_and_nothing_is_deleted_because_of_it() {
    let mut cluster = own_control_plane().await;
    let place = Place::on(&cluster).await;
    let (probes, children): (Api<Probe>, Api<ConfigMap>) = (place.api(), place.api());
    let controller = Controller::new(Texts).owns::<ConfigMap>().finalizer("test.konverge.dev/texts");
    let operator = Operator::new("konverge-restoring", "0").controller(controller);
    let running = run_as(cluster.kubeconfig(), operator, &["--namespace", &place.namespace]).await;
    for name in ["stale", "back"] {
        place.create_probe(name, "one").await;
        text_is(&children, name, "one", SOON).await;
    }
    let snapshot = cluster.snapshot().await.unwrap().unwrap();

    // Time goes on.
    for number in 0..40 {
        place.merge::<Probe>("stale", json!({"spec": {"behave": number.to_string()}})).await;
    }
    text_is(&children, "stale", "39", SOON).await;
    place.create_probe("lost", "one").await;
    text_is(&children, "lost", "one", SOON).await;
    probes.delete("back", &DeleteParams::default()).await.unwrap();
    let gone = || async { probes.get_opt("back").await.unwrap().is_none().then_some(()) };
    eventually(SOON, gone).await.unwrap();
    let before = children.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();

    let log = cluster.audit_log().unwrap();
    log.catch_up(&place.client).await.unwrap();
    let log = log.from_now().unwrap();
    cluster.restore(&snapshot).await.unwrap().unwrap();
    let after = children.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    assert!(after.parse::<u64>().unwrap() < before.parse::<u64>().unwrap(), "{after} {before}");

    // The text that the child had before the restore: it differs from the child that there is, and not from the one that was known.
    place.merge::<Probe>("stale", json!({"spec": {"behave": "39"}})).await;
    place.create_probe("new", "one").await;
    place.merge::<Probe>("back", json!({"spec": {"behave": "two"}})).await;
    for (name, text) in [("stale", "39"), ("new", "one"), ("back", "two")] {
        text_is(&children, name, text, SOON).await;
    }
    assert!(probes.get_opt("lost").await.unwrap().is_none(), "the operator makes no objects of its own kind");
    running.is_ready().await;

    log.catch_up(&place.client).await.unwrap();
    let entries = log.entries().unwrap();
    let deletions: Vec<_> = entries.iter().filter(|entry| entry.verb.starts_with("delete")).collect();
    assert!(deletions.is_empty(), "{deletions:#?}");
    for resource in ["probes", "configmaps"] {
        // A list of one object only compares versions.
        let is_relist = |uri: &str| !uri.split(['?', '&']).any(|part| part == "limit=1");
        let lists = entries.iter().filter(|entry| entry.verb == "list" && entry.object_ref.resource == resource);
        let relists = lists.filter(|entry| is_relist(&entry.request_uri)).count();
        // The test itself lists the children once.
        assert!(relists > usize::from(resource == "configmaps"), "{resource}");
    }
}
