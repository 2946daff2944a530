//! Where the token may not ask which engine holds a path, what the object says of it counts.

use futures::FutureExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::{
    front::{self, FrontAction, FrontRequest},
    stage::{Stage, until},
};

/// Not what a path alone would be taken for: that would be version 1 at `team`.
const ENGINE: &str = "team/kv";

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_vault_does_not_tell_is_what_the_object_says() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("engines").await.unwrap();
    let view = stage.view(&namespace).await;
    stage.server.mount_kv(ENGINE, 2).await.unwrap();
    let decide = |asked: FrontRequest| {
        let is_denied = asked.path.starts_with("sys/internal/ui/mounts/");
        async move { if is_denied { FrontAction::Answered(403, "") } else { FrontAction::Passes } }.boxed()
    };
    let vault = front::serve(&stage.server, Box::new(decide)).await.unwrap();
    let _operator = stage.start_at(&namespace, &vault, |spec| spec).await;
    let path = |name: &str| format!("{ENGINE}/data/{namespace}/{name}");
    let [told, pushed, untold] = ["told", "pushed", "untold"].map(path);

    view.secret("untold", &[("n", "1")], Some(&untold)).await.unwrap();
    until("it is not guessed at", async || {
        Ok(view.record("Secret", "untold").await?.is_some_and(|record| record["state"] == "MountMissing"))
    })
    .await;
    assert_eq!(view.read(&untold).await.unwrap(), None);

    view.secret("told", &[("n", "1")], None).await.unwrap();
    let asks = json!({ "vault-sync.io/path": told, "vault-sync.io/kv": "team/kv:2" });
    view.annotate("Secret", "told", asks).await.unwrap();
    let spec = json!({ "secrets": { "names": ["told"] }, "mount": ENGINE, "path": format!("{namespace}/pushed") });
    let object = json!({
        "apiVersion": "konverge.dev/v1alpha1", "kind": "VaultPush", "metadata": { "name": "pushed" }, "spec": spec,
    });
    let parameters = PatchParams::apply("user").force();
    view.api("VaultPush").patch("pushed", &parameters, &Patch::Apply(&object)).await.unwrap();
    for (kind, name, path) in [("Secret", "told", &told), ("VaultPush", "pushed", &pushed)] {
        until("it is in sync", async || view.is_synced(kind, name, &[path]).await).await;
        assert!(view.holds(path, "n", "1").await.unwrap(), "{path}");
        assert_eq!(view.versions(path).await.unwrap(), (1, true), "{path}");
        let record = view.record(kind, name).await.unwrap().unwrap();
        assert_eq!((&record["paths"][path]["mount"], &record["paths"][path]["kv"]), (&json!(ENGINE), &json!(2)));
    }
    view.delete("Secret", "told").await.unwrap();
    until("what was written there is cleared there", async || Ok(view.read(&told).await?.is_none())).await;
}
