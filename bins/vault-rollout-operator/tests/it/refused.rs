//! A source that the operator may not read: its user is told, nothing is rolled, and it goes on by itself (A3).

use std::path::Path;

use k8s_openapi::api::{core::v1::Secret, rbac::v1::ClusterRole};
use konverge_testkit::client_for;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    stage::{Stage, install, until},
    view::View,
};

/// The verbs of the rule that is about Secrets and `ConfigMaps`, which is the first one.
async fn may(view: &View, role: &str, verbs: Value) {
    let patch = json!([{ "op": "replace", "path": "/rules/0/verbs", "value": verbs }]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(patch).unwrap());
    let api = Api::<ClusterRole>::all(view.client.clone());
    let role = api.patch(role, &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(role.rules.unwrap()[0].resources, Some(vec!["secrets".to_owned(), "configmaps".to_owned()]));
}

/// Waits until the API server refuses that this account reads a Secret. It heeds a role after a moment.
async fn is_refused(view: &View, kubeconfig: &Path) {
    let secrets = Api::<Secret>::namespaced(client_for(kubeconfig).await.unwrap(), &view.namespace);
    until("the account may read no Secret", async || {
        Ok(matches!(secrets.get("db").await, Err(kube::Error::Api(status)) if status.code == 403))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_uses_what_may_not_be_read_is_told_and_rolled_when_it_may() {
    let stage = Stage::shared().await;
    let view = stage.view("refused").await;
    // An installation of its own, of which something can be taken away. Its objects of the whole cluster are called after it.
    let home = stage.plane.namespace("refused-operator").await.unwrap();
    let kubeconfig = install(&stage.plane, &home).await.unwrap();
    view.secret("db", "1").await.unwrap();
    view.deployment("known", "db").await.unwrap();
    let operator = stage.start_through(&kubeconfig, &view.namespace, &[]).await;
    view.rolled("known", 0).await;
    may(&view, &home, json!(["list", "watch"])).await;
    is_refused(&view, &kubeconfig).await;
    view.secret("db", "2").await.unwrap();
    // A Secret that was not known before is in the same case.
    view.deployment("new", "db").await.unwrap();
    for name in ["known", "new"] {
        until(&format!("{name} is told"), async || {
            let events = view.events(name).await?;
            Ok(events.iter().any(|(reason, text)| {
                let says = ["Secret/db may not be read", "secrets \"db\" is forbidden", "service account"];
                reason == "SourceForbidden" && says.iter().all(|part| text.contains(part))
            }))
        })
        .await;
    }
    assert!(operator.metric("konverge_roll_failed_checks_total", "reason=\"SourceForbidden\"").await >= 1.0);
    operator.settled().await;
    let (known, new) = (view.seen("Deployment", "known").await.unwrap(), view.seen("Deployment", "new").await.unwrap());
    assert_eq!((known.changes, new.changes, new.content), (0, 0, None));

    may(&view, &home, json!(["get", "list", "watch"])).await;
    view.rolled("known", 1).await;
    view.rolled("new", 0).await;
    view.secret("db", "3").await.unwrap();
    view.rolled("known", 2).await;
    view.rolled("new", 1).await;
}
