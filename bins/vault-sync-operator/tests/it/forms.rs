//! A life of objects that ask in other ways: by a list of keys, of an engine of version 1, with each policy of deletion but the soft one.

use std::collections::BTreeMap;

use konverge_testkit_stores::VaultServer;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    lives::Life,
    stage::{Result, View},
};

/// Their keys of the Secret `db`, and under which names they are written.
const LIST: &str = r#"[{"name":"db","keys":["n"],"prefix":"db_"}]"#;

/// Name, path beneath the namespace's folder, key in Vault, and annotations beside the path.
type Object = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);

/// All of them are Secrets but the first.
const OBJECTS: [Object; 4] = [
    ("app", "destroyed", "db_n", &[("vault-sync.io/secrets", LIST), ("vault-sync.io/deletion-policy", "destroy")]),
    ("flat", "flat", "n", &[]),
    ("gone", "gone", "n", &[("vault-sync.io/deletion-policy", "metadata")]),
    ("kept", "kept", "n", &[("vault-sync.io/deletion-policy", "keep")]),
];

fn kind(name: &str) -> &'static str {
    if name == "app" { "Deployment" } else { "Secret" }
}

fn path(view: &View, name: &str, rest: &str) -> String {
    if name == "flat" { format!("old/{}/{rest}", view.namespace) } else { view.path(rest) }
}

/// Chosen keys, version 1, and the other policies of deletion.
#[derive(Clone, Copy)]
pub(crate) struct Forms;

impl Life for Forms {
    const NAME: &str = "forms";
    const STEPS: usize = 3;

    async fn change(self, view: &View, step: usize) -> Result<()> {
        if step == 2 {
            for (name, ..) in OBJECTS {
                view.delete(kind(name), name).await?;
            }
            return Ok(());
        }
        let value = (step + 1).to_string();
        view.secret("db", &[("n", &value), ("unused", "x")], None).await?;
        for (name, rest, _, annotations) in OBJECTS {
            let mut all: BTreeMap<_, _> = annotations.iter().map(|&(key, value)| (key, value.to_owned())).collect();
            all.insert("vault-sync.io/path", path(view, name, rest));
            let metadata = json!({ "name": name, "annotations": all });
            let object = if kind(name) == "Secret" {
                json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": { "n": value } })
            } else {
                let labels = json!({ "app": name });
                let containers = json!([{ "name": "main", "image": "example.com/app" }]);
                let pod = json!({ "metadata": { "labels": labels }, "spec": { "containers": containers } });
                let spec = json!({ "selector": { "matchLabels": labels }, "template": pod });
                json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec })
            };
            view.api(kind(name)).patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await?;
        }
        Ok(())
    }

    async fn is_converged(self, view: &View, step: usize) -> Result<bool> {
        for (name, rest, key, _) in OBJECTS {
            let path = path(view, name, rest);
            let is_so = if step == 2 {
                view.is_gone(kind(name), name).await?
            } else {
                let value = (step + 1).to_string();
                view.is_synced(kind(name), name, &[&path]).await? && view.holds(&path, key, &value).await?
            };
            if !is_so {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The final state in Vault: whether anything can be read or is marked, and how often it was written, where Vault counts that.
    async fn left(self, server: &VaultServer, view: &View) -> Result<Value> {
        let mut state = json!({});
        for (name, rest, ..) in OBJECTS {
            let path = path(view, name, rest);
            let versions = if name == "flat" { None } else { Some(view.versions(&path).await?) };
            state[rest] = json!({ "held": view.read(&path).await?, "versions and mark": versions });
        }
        let folder = format!("secret/metadata/{}/", view.namespace);
        state["paths"] = server.request("LIST", &folder, &Value::Null).await?["data"]["keys"].clone();
        let metadata = format!("secret/metadata/{}/destroyed", view.namespace);
        let versions = server.request("GET", &metadata, &Value::Null).await?["data"]["versions"].clone();
        state["destroyed versions"] =
            versions.as_object().into_iter().flatten().map(|(_, of)| of["destroyed"].clone()).collect();
        Ok(state)
    }
}
