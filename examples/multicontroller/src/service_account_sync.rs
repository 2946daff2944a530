//! A service account in another namespace.

use k8s_openapi::api::core::v1::LocalObjectReference;
use konverge::prelude::*;

use crate::sync::{SyncStatus, Words, sync};

/// A service account that is to be in another namespace.
#[konverge::resource(
    group = "example.io",
    version = "v1alpha1",
    kind = "ServiceAccountSync",
    shortname = "sasy",
    namespaced,
    status = "SyncStatus",
    printcolumn = r#"{"name": "Target", "type": "string", "jsonPath": ".spec.targetNamespace"}"#,
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.ready"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAccountSyncSpec {
    /// Where the service account is made. It is named sas- and the name of this object.
    pub target_namespace: String,
    /// Whether pods get its token without asking.
    #[serde(default)]
    pub automount_token: bool,
    /// Names of the Secrets with which its pods pull images.
    #[serde(default)]
    pub image_pull_secrets: Vec<String>,
}

/// The controller of [`ServiceAccountSync`].
pub struct Accounts;

impl Reconcile<ServiceAccountSync> for Accounts {
    type Error = Error;

    async fn apply(
        &self,
        object: Arc<ServiceAccountSync>,
        context: Context<ServiceAccountSync>,
    ) -> Result<Action, Error> {
        let spec = &object.spec;
        let secrets = spec.image_pull_secrets.iter().map(|name| LocalObjectReference { name: name.clone() });
        let mut child = ServiceAccount {
            automount_service_account_token: Some(spec.automount_token),
            image_pull_secrets: (!spec.image_pull_secrets.is_empty()).then(|| secrets.collect()),
            ..ServiceAccount::default()
        };
        child.metadata.name = Some(format!("sas-{}", object.name_any()));
        let words = Words {
            created: "ServiceAccountCreated",
            corrected: "ServiceAccountDriftCorrected",
            synced: const { Reason::new("ServiceAccountSynced") },
        };
        sync(&context, child, &spec.target_namespace, words).await
    }
}
