//! The example configmapsync: a `ConfigMap` in a target namespace, a label, an event, a status.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_bench_protocol::{Job, Tell};
use koprs::{
    KubeGenericError,
    controller::{Action, Context, ControllerBuilder, Reconciler, watcher},
    events::{EventType, record_event},
    finalizers::add_finalizer_namespaced,
    gc::gc_resources,
    meta::ObjectMetaBuilder,
    owners::owner_label_mapper,
    resources::{ensure_resource, patch_labels},
    scope::Namespaced,
    status::{KoprsCondition, make_condition, patch_status_namespaced, upsert_condition},
};
use kube::{Api, Client, CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const MANAGER: &str = "configmapsync-koprs";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const OWNER: &str = "configmapsync.example.io/owner";

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.io", version = "v1alpha1", kind = "ConfigMapSync", namespaced, status = "SyncStatus")]
#[serde(rename_all = "camelCase")]
struct ConfigMapSyncSpec {
    target_namespace: String,
    data: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct SyncStatus {
    ready: bool,
    message: String,
    #[serde(default)]
    conditions: Vec<KoprsCondition>,
}

struct Sync(Tell);

impl Reconciler<ConfigMapSync> for Sync {
    type Error = KubeGenericError;

    async fn reconcile(&self, sync: Arc<ConfigMapSync>, context: Arc<Context>) -> Result<Action, Self::Error> {
        let client = || context.client.clone();
        let (name, namespace) = (sync.name_any(), sync.namespace().unwrap_or_default());
        self.0.run(&name, None);
        let target = sync.spec.target_namespace.as_str();
        add_finalizer_namespaced(client(), &*sync, "configmapsync.example.io/cleanup").await?;

        let child_name = format!("cms-{name}");
        let metadata = ObjectMetaBuilder::new().name(&child_name).namespace(target);
        let metadata = metadata.label(MANAGED_BY, MANAGER).label(OWNER, &name).build();
        let child = ConfigMap { metadata, data: Some(sync.spec.data.clone()), ..ConfigMap::default() };
        if ensure_resource(client(), Namespaced(target), &child, MANAGER).await?.was_changed() {
            let note = format!("wrote {child_name}");
            record_event(client(), &*sync, EventType::Normal, "Sync", "ConfigMapDriftCorrected", note, MANAGER).await?;
        }
        let of_this = format!("{MANAGED_BY}={MANAGER},{OWNER}={name}");
        gc_resources(client(), Namespaced(target), &of_this, |child: &ConfigMap| child.name_any() == child_name)
            .await?;
        let label = [("configmapsync.example.io/synced-to", target)];
        patch_labels::<ConfigMapSync, _>(client(), Namespaced(&namespace), &name, &label).await?;

        let message = format!("in sync with namespace {target}");
        let mut conditions = sync.status.clone().unwrap_or_default().conditions;
        let generation = sync.metadata.generation;
        upsert_condition(&mut conditions, make_condition("Ready", "True", "ConfigMapSynced", &message, generation));
        let status = SyncStatus { ready: true, message, conditions };
        patch_status_namespaced::<ConfigMapSync, _>(client(), &namespace, &name, status, MANAGER).await?;
        Ok(Action::requeue(Duration::from_secs(300)))
    }
}

/// The objects' namespace has to be the children's, since koprs's mapper looks for the owner there.
pub(crate) async fn run(client: Client, job: &Job, tell: Tell) -> Result<(), KubeGenericError> {
    let syncs = Api::<ConfigMapSync>::namespaced(client.clone(), &job.namespace);
    let children = Api::<ConfigMap>::all(client.clone());
    let ours = watcher::Config::default().labels(&format!("{MANAGED_BY}={MANAGER}"));
    ControllerBuilder::new(syncs)
        .watch(children, ours, owner_label_mapper(OWNER))
        .run(Sync(tell), Context::new(client))
        .await
}
