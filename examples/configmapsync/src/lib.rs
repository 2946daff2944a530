//! Copies data into a `ConfigMap` of another namespace and keeps it so.

use std::collections::BTreeMap;

use konverge::prelude::*;

/// Data that is to be in a `ConfigMap` of another namespace.
#[konverge::resource(
    group = "example.io",
    version = "v1alpha1",
    kind = "ConfigMapSync",
    shortname = "cms",
    namespaced,
    status = "SyncStatus",
    printcolumn = r#"{"name": "Target", "type": "string", "jsonPath": ".spec.targetNamespace"}"#,
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.ready"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapSyncSpec {
    /// Where the `ConfigMap` is made. It is named cms- and the name of this object.
    pub target_namespace: String,
    /// The data of the `ConfigMap` that the operator makes.
    pub data: BTreeMap<String, String>,
}

/// How the copy stands.
#[konverge::schema]
#[derive(Default)]
pub struct SyncStatus {
    /// Whether the copy is as it should be.
    pub ready: bool,
    /// The same in words.
    pub message: String,
    /// Conditions and the generation they are about.
    #[serde(flatten)]
    pub standard: Status,
}

impl CustomStatus for SyncStatus {
    fn standard(&self) -> &Status {
        &self.standard
    }

    fn standard_mut(&mut self) -> &mut Status {
        &mut self.standard
    }

    fn summarize(&mut self, ready: bool, message: &str) {
        (self.ready, self.message) = (ready, message.to_owned());
    }
}

struct Sync;

impl Reconcile<ConfigMapSync> for Sync {
    type Error = Error;

    async fn apply(&self, sync: Arc<ConfigMapSync>, context: Context<ConfigMapSync>) -> Result<Action, Error> {
        let target = &sync.spec.target_namespace;
        let mut child = ConfigMap { data: Some(sync.spec.data.clone()), ..ConfigMap::default() };
        child.metadata.name = Some(format!("cms-{}", sync.name_any()));
        child.metadata.namespace = Some(target.clone());
        child.labels_mut().insert("configmapsync.example.io/owner".to_owned(), sync.name_any());

        let report = context.children().with(child).apply().await?;
        context.label("configmapsync.example.io/synced-to", target).await?;
        for child in &report.children {
            let (reason, note) = match child.outcome {
                ApplyOutcome::Created => ("ConfigMapCreated", format!("created {}", child.object)),
                ApplyOutcome::Changed => ("ConfigMapDriftCorrected", format!("corrected {}", child.object)),
                ApplyOutcome::Unchanged => continue,
            };
            context.event(EventType::Normal, reason, "Sync", note);
        }
        context.ready(const { Reason::new("ConfigMapSynced") }, format!("in sync with namespace {target}"));
        Ok(Action::After(Duration::from_mins(5)))
    }
}

/// The operator.
pub fn operator() -> Operator {
    let controller = Controller::new(Sync).owns_anywhere::<ConfigMap>().finalizer("configmapsync.example.io/cleanup");
    konverge::operator!().controller(controller)
}
