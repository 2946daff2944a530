//! The requests to Vault for a thousand `VaultSyncStatus` objects over ten paths while nothing changes, by Vault's own log.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};
use konverge_testkit::{ControlPlane, eventually};
use konverge_testkit_stores::{VaultOptions, VaultServer};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::field::{Field, LIMIT, name};
use crate::report::{Report, Row};

const OBJECTS: u16 = 1_000;
pub(crate) const PATHS: u16 = 10;

const DEFINITION: &str = include_str!("../../../deploy/crds/vaultsyncstatus.yaml");

/// The policy of the original's documentation.
const POLICY: &str = r#"path "+/metadata/*" { capabilities = ["read", "list"] }"#;

/// The interval between two requests for a path, and the number of intervals that are counted.
const INTERVAL: Duration = Duration::from_secs(5);
const INTERVALS: u16 = 12;

/// An interval may be a tenth shorter than asked for, and one may begin before it is counted and end after.
const BOUND: f64 = 1.2;

/// Between two looks at all objects.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) async fn measure(field: &mut Field, control_plane: &ControlPlane, report: &mut Report) -> Result<()> {
    let server = VaultServer::start(VaultOptions::default()).await?;
    server.mount_kv("secret", 2).await?;
    server.policy("rollout", POLICY).await?;
    let [log, token] = ["audit.log", "rollout-token"].map(|file| server.run_directory().path().join(file));
    std::fs::write(&token, server.token(&["rollout"], json!({})).await?)?;
    for path in 0..PATHS {
        let content = json!({ "data": { "VALUE": "initial" } });
        server.request("POST", &format!("secret/data/app-{path}"), &content).await?;
    }
    let device = json!({ "type": "file", "options": { "file_path": log } });
    server.request("PUT", "sys/audit/file", &device).await?;
    control_plane.apply(DEFINITION).await?;
    control_plane.apply(&objects(&field.namespace)).await?;
    let url = format!("--vault-url={}/v1/", server.address());
    let [token, interval] =
        [format!("--vault-token-file={}", token.display()), format!("--vault-interval={}s", INTERVAL.as_secs())];
    field.start(&[&url, &token, &interval]).await?;
    all_in_sync(&field.client, &field.namespace).await?;

    let before = reads(&log)?;
    sleep(INTERVAL * u32::from(INTERVALS)).await;
    let asked = reads(&log)? - before;
    let reads = f64::from(u32::try_from(asked)?) / f64::from(INTERVALS);
    field.kill();
    report.add(Row {
        subject: "roll: reads of Vault in an interval",
        figure: format!("{reads:.1}"),
        against: format!("{OBJECTS} objects over {PATHS} paths, {INTERVALS} intervals"),
        ratio: reads / f64::from(PATHS),
        bound: Some(BOUND),
    });
    Ok(())
}

/// The objects' manifest.
fn objects(namespace: &str) -> String {
    let one = |number: u16| {
        let spec = json!({
            "deployName": name(number % PATHS), "deployNamespace": namespace,
            "secretEngine": "secret", "secretPath": format!("app-{}", number % PATHS),
            "timeStamp": "0000-00-00T00:00:00.000000000Z",
        });
        json!({
            "apiVersion": "stable.example.com/v1", "kind": "VaultSyncStatus",
            "metadata": { "name": format!("status-{number}"), "namespace": namespace }, "spec": spec,
        })
    };
    (0..OBJECTS).map(|number| one(number).to_string()).collect::<Vec<_>>().join("\n---\n")
}

/// Waits until all objects say that their pods run with what is in Vault.
async fn all_in_sync(client: &Client, namespace: &str) -> Result<()> {
    let kind = GroupVersionKind::gvk("stable.example.com", "v1", "VaultSyncStatus");
    let kind = ApiResource::from_gvk_with_plural(&kind, "vaultsyncstatus");
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &kind);
    let says_so = |object: &DynamicObject| {
        let mut conditions = object.data["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|condition: &Value| condition["type"] == "Ready" && condition["reason"] == "InSync")
    };
    let all = async || {
        sleep(LOOK).await;
        let objects = api.list(&ListParams::default()).await.ok()?;
        (objects.iter().filter(|object| says_so(object)).count() == usize::from(OBJECTS)).then_some(())
    };
    eventually(LIMIT, all).await.context("not all objects are in sync")
}

/// How often Vault was asked for metadata of secrets.
fn reads(log: &Path) -> Result<usize> {
    let text = std::fs::read_to_string(log).with_context(|| format!("cannot read {}", log.display()))?;
    let answers = text.lines().filter(|line| line.contains(r#""type":"response""#));
    Ok(answers.filter(|line| line.contains(r#""path":"secret/metadata/"#)).count())
}
