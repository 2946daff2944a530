//! The answers of the kubectl plugin about workloads that are rolled, and about their sources.
//!
//! It works with a person's own access to the cluster, not with the operator's. The health of an object comes from its metadata
//! alone (`health`). For the rest, the objects around it go into an index like the operator's, which decides as the operator
//! would (`look`). Its events tell the rest, such as the order of waves.

mod difference;
mod doctor;
mod explain;
mod health;
mod look;
mod trigger;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use konverge_kubectl::{
    Cluster, Detail, Difference, Fact, Failure, Finding, Found, Installed, Job, Kind, ObjectHealth, Operator,
    Permission, RequestedAction, in_sync,
};
use konverge_workload::WorkloadKind;
use kube::{
    ResourceExt,
    core::{ApiResource, DynamicObject, ObjectMeta},
};
use serde_json::Value;

pub use self::doctor::used;
use crate::{
    annotations::{IGNORE, ON_CHANGE, PAUSE, ROLL_USERS},
    config::{Config, KINDS, PROGRAM},
    object::{SourceKind, WorkloadRef},
    trigger::TriggerKind,
};

/// The kinds of sources that are objects of the cluster.
const SOURCES: [SourceKind; 2] = [SourceKind::Secret, SourceKind::ConfigMap];

/// Roll, for the plugin.
pub struct Roll;

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// It is rolled.
    Workload(WorkloadKind),
    /// Others are rolled for it.
    Source(SourceKind),
    /// It requests rollouts of others.
    Trigger(TriggerKind),
}

impl What {
    /// All kinds.
    fn all() -> impl Iterator<Item = Self> {
        let workloads = KINDS.map(Self::Workload).into_iter();
        workloads.chain(SOURCES.map(Self::Source)).chain(TriggerKind::ALL.map(Self::Trigger))
    }

    fn of(kind: &Kind) -> Option<Self> {
        Self::named(&kind.resource.kind)
    }

    /// The kind of this name in manifests.
    fn named(name: &str) -> Option<Self> {
        Self::all().find(|what| what.name() == name)
    }

    /// As in manifests.
    fn name(self) -> &'static str {
        match self {
            Self::Workload(kind) => kind.name(),
            Self::Source(kind) => kind.name(),
            Self::Trigger(kind) => kind.name(),
        }
    }

    /// The kind for the plugin. Of sources, the plugin shows only the metadata.
    fn kind(self) -> Kind {
        let (resource, short, shown): (_, &[&str], _) = match self {
            Self::Workload(kind) => (kind.resource(), kind.short_names(), Detail::Whole),
            Self::Source(SourceKind::ConfigMap) => (ApiResource::erase::<ConfigMap>(&()), &["cm"], Detail::Metadata),
            Self::Source(_) => (ApiResource::erase::<Secret>(&()), &[], Detail::Metadata),
            Self::Trigger(kind @ TriggerKind::VaultSyncStatus) => (kind.resource(), &["vss"], Detail::Whole),
            Self::Trigger(kind @ TriggerKind::VaultRollout) => (kind.resource(), &["vroll"], Detail::Whole),
        };
        Kind { short, ..Kind::namespaced(resource, shown) }
    }
}

#[async_trait]
impl Job for Roll {
    fn name(&self) -> &'static str {
        "roll"
    }

    fn operator(&self) -> &'static str {
        PROGRAM
    }

    fn kinds(&self) -> Vec<Kind> {
        What::all().map(What::kind).collect()
    }

    fn health(&self, kind: &Kind, object: &DynamicObject) -> Option<ObjectHealth> {
        match What::of(kind)? {
            What::Workload(_) => health::of_workload(object),
            What::Source(_) => health::of_source(object),
            What::Trigger(kind) => trigger::health(kind, object),
        }
    }

    fn how_to_opt_in(&self, kind: &Kind, name: &str) -> String {
        let annotate = format!("kubectl annotate {} {name}", kind.singular());
        match What::of(kind) {
            Some(What::Source(_)) => {
                format!(
                    "To restart the workloads that use it when its content changes:\n  {annotate} {ROLL_USERS}=true"
                )
            }
            Some(What::Trigger(kind)) => format!("The operator follows every {}.", kind.name()),
            _ => format!(
                "To restart it when a Secret or ConfigMap that its pods use changes:\n  {annotate} {ON_CHANGE}=true"
            ),
        }
    }

    async fn explain(&self, cluster: &Cluster, kind: &Kind, object: &DynamicObject) -> Vec<Fact> {
        match What::of(kind) {
            Some(What::Workload(kind)) => match key(kind, &object.metadata) {
                Some(key) => explain::of_workload(cluster, &key).await,
                None => Vec::new(),
            },
            Some(What::Source(kind)) => explain::of_source(cluster, kind, &object.metadata).await,
            Some(What::Trigger(kind)) => trigger::facts(kind, object),
            None => Vec::new(),
        }
    }

    async fn difference(
        &self,
        cluster: &Cluster,
        kind: &Kind,
        object: &DynamicObject,
    ) -> Result<Vec<Difference>, Failure> {
        // Another object is compared with what workloads run with, each of which can be looked at.
        let Some(What::Workload(kind)) = What::of(kind) else { return Ok(Vec::new()) };
        match key(kind, &object.metadata) {
            Some(key) => difference::differences(cluster, &key).await,
            None => Ok(Vec::new()),
        }
    }

    fn annotation_for(
        &self,
        object: &DynamicObject,
        action: &RequestedAction,
    ) -> Result<(&'static str, Value), Failure> {
        let kind = object.types.as_ref().map(|types| types.kind.as_str()).unwrap_or_default();
        let refused =
            |instead: &str| Err(Failure::Failed(format!("roll pauses and resumes only workloads; {instead}")));
        match What::named(kind) {
            Some(What::Workload(_)) => {}
            Some(What::Trigger(TriggerKind::VaultRollout)) => return refused("set its spec.suspend instead"),
            Some(What::Trigger(TriggerKind::VaultSyncStatus)) => {
                return refused("pause its workload, or use a VaultRollout instead");
            }
            Some(What::Source(_)) | None => {
                return refused(&format!("with {IGNORE}=true nothing restarts for this object"));
            }
        }
        match action {
            RequestedAction::Pause => Ok((PAUSE, "true".into())),
            RequestedAction::Resume => Ok((PAUSE, Value::Null)),
            RequestedAction::Adopt(_) | RequestedAction::Release => Err(action.unsupported(self.name())),
            RequestedAction::Sync(_) => {
                let restart = format!("kubectl rollout restart {}/{}", kind.to_ascii_lowercase(), object.name_any());
                Err(Failure::Failed(format!(
                    "roll needs no request: it handles each change by itself, and why shows what it holds back. To restart its pods now, \
                     without a change: {restart}"
                )))
            }
        }
    }
}

#[async_trait]
impl Operator for Roll {
    type Config = Config;

    fn how_to_install(&self) -> &'static str {
        "install it as docs/install.md says, unless it runs outside of the cluster"
    }

    fn role(&self) -> &'static str {
        "deploy/rbac/vault-rollout-operator.yaml"
    }

    fn needed(&self, config: &Config, home: &str) -> Vec<Permission> {
        doctor::needed(config, home)
    }

    fn does_without(&self) -> Option<&'static str> {
        Some("leave a kind out with --kinds")
    }

    fn watches(&self, config: &Config, kind: &Kind) -> bool {
        What::of(kind).is_some_and(|kind| doctor::watches(config, kind))
    }

    fn watch_flags(&self) -> &'static str {
        "--kinds, --namespace and --vault-addr"
    }

    fn check_settings(&self, operator: &Installed<Config>) -> Vec<Finding> {
        let Installed { installation, config } = operator;
        let several = installation.wanted > 1 && !config.leader_elect;
        let note = several.then(|| {
            let wanted = installation.wanted;
            let text = format!(
                "{wanted} processes work at the same time; nothing restarts twice, but each request is sent twice"
            );
            Finding::note("settings", text, Some("give it --leader-elect"))
        });
        let open = config.vault.flags().is_some() && config.vault.allow_path.is_empty();
        let open = open.then(|| {
            let text = "objects of any namespace may name every secret in Vault";
            Finding::note("settings", text, Some("give it --allow-path, as docs/how-to/tenancy.md says"))
        });
        let settings = [Finding::fine("settings", doctor::settings(config)), doctor::watched(config)];
        settings.into_iter().chain(open).chain(note).collect()
    }

    async fn check_installation(&self, cluster: &Cluster, operator: &Installed<Config>) -> Vec<Finding> {
        vec![doctor::key(cluster, &operator.installation, &operator.config).await]
    }

    async fn check_objects(&self, _: &Cluster, found: &Found<'_, Config>) -> Vec<Finding> {
        let not_followed = doctor::not_followed(found.objects, found.operators);
        not_followed.into_iter().chain(in_sync(self, found.objects)).collect()
    }
}

fn key(kind: WorkloadKind, metadata: &ObjectMeta) -> Option<WorkloadRef> {
    Some(WorkloadRef { namespace: metadata.namespace.clone()?, kind, name: metadata.name.clone()? })
}
