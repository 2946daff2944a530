//! A connection to zopp that a namespace declares, with the programs that we ship.

use std::{fs, time::Duration};

use konverge_e2e::Stage;
use serde_json::json;

const SOON: Duration = Duration::from_mins(1);

const DEFINITIONS: [&str; 2] =
    [include_str!("../../deploy/crds/secretpulls.yaml"), include_str!("../../deploy/crds/secretsources.yaml")];

#[tokio::test]
async fn a_namespace_follows_zopp_with_credentials_of_its_own() {
    let stage = Stage::set_on_ours().await.unwrap();
    for definition in DEFINITIONS {
        stage.control_plane.apply(definition).await.unwrap();
    }
    let namespace = stage.control_plane.namespace("team").await.unwrap();
    let environment = stage.environment("production").await.unwrap();
    stage.user.set(&environment, "A", b"1").await.unwrap();
    let credentials = fs::read_to_string(stage.credentials()).unwrap();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "zopp-credentials", "namespace": namespace },
        "stringData": { "config.json": credentials },
    });
    stage.control_plane.apply(&secret.to_string()).await.unwrap();
    let objects = format!(
        r#"
apiVersion: konverge.dev/v1alpha1
kind: SecretSource
metadata: {{ name: zopp, namespace: {namespace} }}
spec: {{ zopp: {{ address: "{url}", credentials: {{ name: zopp-credentials, key: config.json }} }} }}
---
apiVersion: konverge.dev/v1alpha1
kind: SecretPull
metadata: {{ name: web, namespace: {namespace} }}
spec: {{ sources: [{{ source: {{ name: zopp }}, from: "zopp://{environment}" }}] }}
"#,
        url = stage.server.url(),
    );
    stage.control_plane.apply(&objects).await.unwrap();

    // A rule about the operator's own connection does not concern it.
    let arguments = ["--allow", "nobody=acme/backend/production"];
    let mut operator = stage.operator_with("zopp-operator", &arguments).unwrap();
    operator.ready().await.unwrap();
    let watcher = stage.watcher(&namespace);
    watcher.holds("web", SOON, &[("A", "1")]).await.unwrap();
    stage.user.set(&environment, "A", b"2").await.unwrap();
    watcher.holds("web", SOON, &[("A", "2")]).await.unwrap();
    let said = operator.process().logged();
    assert!(said.contains("through SecretSource/zopp"), "{said}");

    // What the record on the Secret tells of zopp counts after a restart, too.
    operator.process().kill();
    operator.process().start_again().unwrap();
    stage.user.set(&environment, "A", b"3").await.unwrap();
    watcher.holds("web", SOON, &[("A", "3")]).await.unwrap();
}
