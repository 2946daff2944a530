//! The manifest of a Secret that zopp fills.

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

/// A manifest as people read it.
pub fn yaml(manifest: &Value) -> Result<String> {
    serde_saphyr::to_string(manifest).context("cannot write a manifest as YAML")
}
