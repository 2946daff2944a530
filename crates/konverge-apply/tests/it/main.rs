//! Writing to a real API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod admission;
mod applying;
mod cluster_scoped;
mod desired;
mod events;
mod faults;
mod finalizers;
mod in_sync;
mod migration;
mod parity;
mod secrets;
mod status;
mod stored_key;
mod write_observer;

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use konverge_core::SecretValue;
use konverge_testkit::{ControlPlane, Options, eventually};
use kube::{Api, Client, ResourceExt, api::ObjectMeta};
use tokio::sync::OnceCell;

use write_observer::Notes;

/// One for all tests of this binary; it ends with the process. Ours, because tests apply definitions of custom resources.
async fn control_plane() -> &'static ControlPlane {
    static CONTROL_PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    CONTROL_PLANE.get_or_init(|| async { ControlPlane::start(Options::ours()).await.unwrap() }).await
}

/// A namespace of its own for a test, and who may do everything there.
async fn namespace() -> (Client, String) {
    let control_plane = control_plane().await;
    (control_plane.admin_client().await.unwrap(), control_plane.namespace("apply").await.unwrap())
}

/// How many writes the namespace has seen, once there are at least `expected`: the audit log comes after the answer.
async fn writes_in(namespace: &str, expected: usize) -> usize {
    // Once this request is in the log, all earlier ones are.
    let marker = format!("marker-{namespace}");
    let client = control_plane().await.admin_client().await.unwrap();
    Api::<Secret>::namespaced(client, namespace).get_opt(&marker).await.unwrap();
    let audit = control_plane().await.audit_log().unwrap();
    let found = eventually(Duration::from_secs(20), async || {
        let entries = audit.entries().unwrap();
        let is_marked = entries.iter().any(|entry| entry.object_ref.name == marker);
        let writes =
            entries.iter().filter(|entry| entry.object_ref.namespace == namespace && entry.is_mutating()).count();
        (is_marked && writes >= expected).then_some(writes)
    });
    found.await.unwrap_or_else(|_| panic!("fewer than {expected} writes"))
}

fn secret(name: &str, data: &[(&str, &str)]) -> Secret {
    Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(
            data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()))).collect(),
        ),
        ..Secret::default()
    }
}

fn values(data: &[(&str, &str)]) -> BTreeMap<String, SecretValue> {
    data.iter().map(|(key, value)| ((*key).to_owned(), SecretValue::from((*value).to_owned()))).collect()
}

/// Returns the current object.
async fn stored(api: &Api<Secret>, name: &str) -> Vec<(String, String)> {
    let data = api.get(name).await.unwrap().data.unwrap_or_default();
    data.into_iter().map(|(key, value)| (key, String::from_utf8(value.0).unwrap())).collect()
}

fn pairs(data: &[(&str, &str)]) -> Vec<(String, String)> {
    data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn version(secret: &Secret) -> String {
    secret.resource_version().unwrap()
}
