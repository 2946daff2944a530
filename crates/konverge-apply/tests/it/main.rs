//! Writing to a real API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod events;
mod migration;
mod secrets;

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use konverge_core::SecretValue;
use konverge_testkit::{ControlPlane, Options};
use kube::{Api, Client, ResourceExt, api::ObjectMeta};
use tokio::sync::OnceCell;

/// One for all tests of this binary; it ends with the process.
async fn control_plane() -> &'static ControlPlane {
    static CONTROL_PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    CONTROL_PLANE.get_or_init(|| async { ControlPlane::start(Options::default()).await.unwrap() }).await
}

/// A namespace of its own for a test, and who may do everything there.
async fn namespace() -> (Client, String) {
    let control_plane = control_plane().await;
    (control_plane.admin_client().await.unwrap(), control_plane.namespace("apply").await.unwrap())
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

/// What the API server has now.
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
