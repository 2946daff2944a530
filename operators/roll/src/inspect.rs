//! The answers of the kubectl plugin about workloads that are rolled, and about their sources.
//!
//! It works with a person's own access to the cluster, not with the operator's. The state of an object comes from its metadata
//! alone (`standing`). For the rest, the objects around it go into an index like the operator's, which decides as the operator
//! would (`look`). Its events tell the rest, such as the order of waves.

mod classes;
mod difference;
mod doctor;
mod explain;
mod look;
mod permissions;
mod standing;
mod trigger;

use std::collections::BTreeMap;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use konverge_kubectl::{
    Cluster, Difference, Fact, Failure, Finding, Found, Installed, Job, Kind, Operator, Permission, Shown, Standing,
    Wish, in_sync,
};
use konverge_workload::WorkloadKind;
use kube::{
    ResourceExt,
    core::{ApiResource, DynamicObject, ObjectMeta},
};
use serde_json::Value;

pub use self::permissions::used;
use crate::{
    config::{Config, KINDS, PROGRAM},
    declarations::{ON_CHANGE, PAUSE, ROLL_USERS},
    object::{SourceKind, WorkloadRef},
    trigger::TriggerKind,
};

/// Roll, for the plugin.
pub struct Roll;

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// It is rolled.
    Workload(WorkloadKind),
    /// Others are rolled for it.
    Source(SourceKind),
    /// It asks for rollouts of others.
    Trigger(TriggerKind),
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
        let sources = [ApiResource::erase::<Secret>(&()), ApiResource::erase::<ConfigMap>(&())];
        let sources = sources.into_iter().zip([&[][..], &["cm"]]);
        let sources = sources.map(|(resource, short)| Kind { short, ..Kind::namespaced(resource, Shown::Metadata) });
        let triggers = TriggerKind::ALL.into_iter().map(trigger::shown_kind);
        KINDS.into_iter().map(shown_kind).chain(sources).chain(triggers).collect()
    }

    fn standing(&self, kind: &Kind, object: &DynamicObject) -> Option<Standing> {
        match what(kind)? {
            What::Workload(_) => standing::of_workload(object),
            What::Source(_) => standing::of_source(object),
            What::Trigger(kind) => trigger::standing(kind, object),
        }
    }

    fn how_to_ask(&self, kind: &Kind, name: &str) -> String {
        let annotate = format!("kubectl annotate {} {name}", kind.singular());
        match what(kind) {
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
        match (what(kind), key(kind, &object.metadata)) {
            (_, Some(key)) => explain::of_workload(cluster, &key).await,
            (Some(What::Source(kind)), None) => explain::of_source(cluster, kind, &object.metadata).await,
            (Some(What::Trigger(kind)), None) => trigger::facts(kind, object),
            _ => Vec::new(),
        }
    }

    async fn difference(
        &self,
        cluster: &Cluster,
        kind: &Kind,
        object: &DynamicObject,
    ) -> Result<Vec<Difference>, Failure> {
        match key(kind, &object.metadata) {
            Some(key) => difference::differences(cluster, &key).await,
            // It is compared with what workloads run with, each of which can be looked at.
            None => Ok(Vec::new()),
        }
    }

    fn ask(&self, object: &DynamicObject, wish: &Wish) -> Result<BTreeMap<String, Value>, Failure> {
        let kind = object.types.as_ref().map(|types| types.kind.as_str()).unwrap_or_default();
        if let Some(kind) = trigger::kind_of(kind) {
            let how = match kind {
                TriggerKind::VaultRollout => "set its spec.suspend instead",
                TriggerKind::VaultSyncStatus => "pause its workload, or use a VaultRollout instead",
            };
            return Err(Failure::Failed(format!("roll pauses and resumes only workloads; {how}")));
        }
        if KINDS.into_iter().all(|known| known.name() != kind) {
            return Err(Failure::Failed(format!(
                "roll pauses and resumes only workloads; with {}=true nothing restarts for this object",
                crate::declarations::IGNORE
            )));
        }
        let value = match wish {
            Wish::Pause => "true".into(),
            Wish::Resume => Value::Null,
            Wish::Adopt(_) | Wish::Release => return Err(wish.unsupported(self.name())),
            Wish::Sync(_) => {
                let restart = format!("kubectl rollout restart {}/{}", kind.to_ascii_lowercase(), object.name_any());
                return Err(Failure::Failed(format!(
                    "roll needs no request: it handles each change by itself, and why shows what it holds back. To restart its pods now, \
                     without a change: {restart}"
                )));
            }
        };
        Ok(BTreeMap::from([(PAUSE.to_owned(), value)]))
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
        permissions::needed(config, home)
    }

    fn does_without(&self) -> Option<&'static str> {
        Some("leave a kind out with --kinds")
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
        [Finding::fine("settings", doctor::settings(config))].into_iter().chain(open).chain(note).collect()
    }

    async fn check_installation(&self, cluster: &Cluster, operator: &Installed<Config>) -> Vec<Finding> {
        vec![doctor::key(cluster, &operator.installation, &operator.config).await]
    }

    async fn check_objects(&self, _: &Cluster, found: &Found<'_, Config>) -> Vec<Finding> {
        let watched = doctor::watched(found.objects, found.operators);
        watched.into_iter().chain(in_sync(self, found.objects)).collect()
    }
}

fn shown_kind(kind: WorkloadKind) -> Kind {
    Kind { short: kind.short_names(), ..Kind::namespaced(kind.resource(), Shown::Metadata) }
}

fn what(kind: &Kind) -> Option<What> {
    let name = kind.resource.kind.as_str();
    let workload = KINDS.into_iter().find(|known| known.name() == name).map(What::Workload);
    let sources = [SourceKind::Secret, SourceKind::ConfigMap];
    let source = || sources.into_iter().find(|known| known.name() == name).map(What::Source);
    workload.or_else(source).or_else(|| trigger::kind_of(name).map(What::Trigger))
}

/// Which workload it is, if it is one.
fn key(kind: &Kind, metadata: &ObjectMeta) -> Option<WorkloadRef> {
    let Some(What::Workload(kind)) = what(kind) else { return None };
    Some(WorkloadRef { namespace: metadata.namespace.clone()?, kind, name: metadata.name.clone()? })
}
