//! Which Secrets fit a selector is asked of the API server, and one answer may be wrong (I3).

use konverge_testkit::fault_proxy::{FaultProxy, Plan};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::{
    network_faults::start,
    stage::{Stage, until},
};

#[tokio::test(flavor = "multi_thread")]
async fn one_list_that_lacks_a_secret_clears_nothing_and_a_second_one_does() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("emptied").await.unwrap();
    let view = stage.view(&namespace).await;
    let proxy = FaultProxy::start(stage.plane.run_directory(), stage.kubeconfig()).await.unwrap();
    let operator = start(stage, &namespace, &proxy, stage.server.address()).await;
    // Operators of other tests write to the same log.
    let doubts = || {
        let is_doubt = |line: &&str| line.contains(&namespace) && line.contains("a second list must confirm that");
        operator.process.logged().lines().filter(is_doubt).count()
    };
    let label = async |name: &str, tier: serde_json::Value| {
        let labels = Patch::Merge(json!({ "metadata": { "labels": { "tier": tier } } }));
        view.api("Secret").patch(name, &PatchParams::default(), &labels).await.unwrap();
    };
    for name in ["db", "api"] {
        view.secret(name, &[("n", "1")], None).await.unwrap();
        label(name, "gold".into()).await;
    }
    let spec = json!({
        "secrets": { "selector": { "matchLabels": { "tier": "gold" } } }, "mount": "secret", "path": "{namespace}/{secret}",
        "deletionPolicy": "Metadata",
    });
    let object = json!({
        "apiVersion": "konverge.dev/v1alpha1", "kind": "VaultPush", "metadata": { "name": "tiers" }, "spec": spec,
    });
    let parameters = PatchParams::apply("user").force();
    view.api("VaultPush").patch("tiers", &parameters, &Patch::Apply(&object)).await.unwrap();
    let [path, other] = ["db", "api"].map(|name| view.path(name));
    until("it is in sync", async || view.is_synced("VaultPush", "tiers", &[&other, &path]).await).await;
    let plan = format!(
        "rules: [{{ when: {{ verbs: [list], resources: [secrets], namespace: {namespace}, query: {{ labelSelector: 'tier*' }}, times: 1 }}, \
         then: empty }}]"
    );
    proxy.set(Plan::parse(&plan).unwrap()).unwrap();
    view.annotate("VaultPush", "tiers", json!({ "vault-sync.io/sync-now": "again" })).await.unwrap();
    until("it is looked at again", async || {
        Ok(view.record("VaultPush", "tiers").await?.is_some_and(|record| record["answered"] == "again"))
    })
    .await;
    assert_eq!(proxy.fired(), [1], "the list was empty once");
    assert!(view.is_synced("VaultPush", "tiers", &[&other, &path]).await.unwrap());
    // All versions would have gone with it.
    assert_eq!(view.versions(&path).await.unwrap(), (1, true));
    // First one of two, then the last one.
    for (name, path) in [("api", &other), ("db", &path)] {
        let before = doubts();
        label(name, json!(null)).await;
        until("a second list must confirm it", async || Ok(doubts() > before)).await;
        assert!(view.holds(path, "n", "1").await.unwrap(), "it was asked for once");
        until("what fits no more is cleared", async || Ok(view.versions(path).await? == (0, false))).await;
    }
}
