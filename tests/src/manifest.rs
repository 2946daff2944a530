//! The manifests of the stage: a Secret that zopp fills, and a Deployment whose Secrets go to Vault.

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// A Secret without data, bound to `<workspace>/<project>/<environment>`.
pub fn annotated_secret(name: &str, environment: &str) -> Value {
    let mut parts = environment.split('/');
    let mut next = || parts.next().unwrap_or_default();
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": name, "annotations": {
            "zopp.dev/sync": "true",
            "zopp.dev/workspace": next(),
            "zopp.dev/project": next(),
            "zopp.dev/environment": next(),
        } },
    })
}

/// A Deployment without pods whose container uses this Secret, which goes to Vault beneath `path`.
pub fn annotated_deployment(name: &str, secret: &str, path: &str) -> Value {
    let labels = json!({ "app": name });
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name, "annotations": { "vault-sync.io/path": path } },
        "spec": {
            // Nobody has its image.
            "replicas": 0,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{
                    "name": name,
                    "image": format!("example.com/{name}"),
                    "envFrom": [{ "secretRef": { "name": secret } }],
                }] },
            },
        },
    })
}

/// A Deployment that is rolled when the content of this Secret changes.
pub fn followed_deployment(name: &str, secret: &str) -> Value {
    let labels = json!({ "app": name });
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name, "annotations": { "roll.konverge.dev/on-change": "true" } },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{
                    "name": name,
                    "image": "registry.k8s.io/pause:3.10",
                    "envFrom": [{ "secretRef": { "name": secret } }],
                }] },
            },
        },
    })
}

/// A manifest as people read it.
pub fn yaml(manifest: &Value) -> Result<String> {
    serde_saphyr::to_string(manifest).context("cannot write a manifest as YAML")
}
