//! A Secret in another namespace.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use konverge::prelude::*;

use crate::sync::{SyncStatus, Words, sync};

/// Data that is to be in a Secret of another namespace.
#[derive(CustomResource, Clone, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.io",
    version = "v1alpha1",
    kind = "SecretSync",
    shortname = "ssy",
    namespaced,
    status = "SyncStatus",
    printcolumn = r#"{"name": "Target", "type": "string", "jsonPath": ".spec.targetNamespace"}"#,
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.ready"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct SecretSyncSpec {
    /// Where the Secret is made. It is named ss- and the name of this object.
    pub target_namespace: String,
    /// The data of the Secret that the operator makes.
    pub string_data: BTreeMap<String, String>,
}

/// Shows names only: the values are secrets.
impl std::fmt::Debug for SecretSyncSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys: Vec<_> = self.string_data.keys().collect();
        f.debug_struct("SecretSyncSpec").field("target_namespace", &self.target_namespace).field("keys", &keys).finish()
    }
}

/// The controller of [`SecretSync`].
pub struct Secrets;

impl Reconcile<SecretSync> for Secrets {
    type Error = Error;

    async fn apply(&self, object: Arc<SecretSync>, context: Context<SecretSync>) -> Result<Action, Error> {
        let mut child = Secret { type_: Some("Opaque".to_owned()), ..Secret::default() };
        child.metadata.name = Some(format!("ss-{}", object.name_any()));
        // Not `stringData`: the API server forgets it, so that keys which go would stay in `data`.
        let bytes = |text: &String| ByteString(text.clone().into_bytes());
        child.data = Some(object.spec.string_data.iter().map(|(key, value)| (key.clone(), bytes(value))).collect());
        let words = Words {
            created: "SecretCreated",
            corrected: "SecretDriftCorrected",
            synced: const { Reason::new("SecretSynced") },
        };
        sync(&context, child, &object.spec.target_namespace, words).await
    }
}
