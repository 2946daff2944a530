//! The verbs of the plugin of kubectl for objects of push.
//!
//! It works with a person's own access to the cluster and to Vault, not with the operator's. Knowledge of the operator itself comes from
//! the record on the object (`health`) and from what its Deployment is started with.

mod difference;
mod doctor;
mod explain;
mod health;
mod permissions;
mod vault;

use async_trait::async_trait;
use konverge_kubectl::{
    Cluster, Detail, Difference, Fact, Failure, Finding, Found, Installed, Job, ObjectHealth, Operator, Permission,
    RequestedAction, in_sync,
};
use konverge_workload::{Workload, WorkloadKind};
use kube::{
    Resource, ResourceExt,
    api::GetParams,
    core::{DynamicObject, Request},
};
use serde_json::Value;

pub use self::{health::record_of, permissions::needed};
use crate::{
    annotations::{PATH, PAUSE, SYNC_NOW, parse_spec},
    config::{Config, PROGRAM},
    desired::Wanted,
    object::{Kind, ObjectRef},
    secrets,
    spec::{Invalid, PushSpec},
    vault_push,
};

/// Push, for the plugin.
pub struct Push;

#[async_trait]
impl Job for Push {
    fn name(&self) -> &'static str {
        "push"
    }

    fn operator(&self) -> &'static str {
        PROGRAM
    }

    fn kinds(&self) -> Vec<konverge_kubectl::Kind> {
        Kind::ALL.into_iter().map(shown_kind).collect()
    }

    fn health(&self, kind: &konverge_kubectl::Kind, object: &DynamicObject) -> Option<ObjectHealth> {
        health::health(&key(kind, object)?, object)
    }

    fn how_to_opt_in(&self, kind: &konverge_kubectl::Kind, name: &str) -> String {
        if kind.resource.kind == Kind::VaultPush.name() {
            return "The operator follows every VaultPush.".to_owned();
        }
        let what =
            if kind.resource.kind == Kind::Secret.name() { "all its keys" } else { "each Secret that its pods use" };
        let kind = kind.singular();
        format!("To have {what} in Vault or OpenBao:\n  kubectl annotate {kind} {name} {PATH}=secret/data/…")
    }

    async fn explain(&self, cluster: &Cluster, kind: &konverge_kubectl::Kind, object: &DynamicObject) -> Vec<Fact> {
        match key(kind, object) {
            Some(key) => explain::facts(cluster, &key, object).await,
            None => Vec::new(),
        }
    }

    async fn difference(
        &self,
        cluster: &Cluster,
        kind: &konverge_kubectl::Kind,
        object: &DynamicObject,
    ) -> Result<Vec<Difference>, Failure> {
        match key(kind, object) {
            Some(key) => difference::differences(cluster, &key, object).await,
            None => Ok(Vec::new()),
        }
    }

    fn annotation_for(
        &self,
        object: &DynamicObject,
        action: &RequestedAction,
    ) -> Result<(&'static str, Value), Failure> {
        let is_vault_push = object.types.as_ref().is_some_and(|types| types.kind == Kind::VaultPush.name());
        if !is_vault_push && parse_spec(object.annotations()).is_none() {
            return Err(Failure::Failed(format!("it has no {PATH} any more; set it first")));
        }
        Ok(match action {
            RequestedAction::Sync(token) => (SYNC_NOW, token.clone().into()),
            RequestedAction::Pause => (PAUSE, "true".into()),
            RequestedAction::Resume => (PAUSE, Value::Null),
            RequestedAction::Adopt(_) | RequestedAction::Release => return Err(action.unsupported(self.name())),
        })
    }

    async fn left_behind(&self, cluster: &Cluster, namespace: Option<&str>) -> Result<Vec<String>, Failure> {
        doctor::left_behind(cluster, namespace).await
    }

    async fn approve(&self, cluster: &Cluster, namespace: Option<&str>) -> Result<Vec<String>, Failure> {
        doctor::APPROVAL.approve(cluster, namespace).await
    }

    fn is_acknowledged(&self, object: &DynamicObject, token: &str) -> bool {
        record_of(object).is_some_and(|record| record.answered.as_deref() == Some(token))
    }
}

#[async_trait]
impl Operator for Push {
    type Config = Config;

    fn how_to_install(&self) -> &'static str {
        "install it as docs/install.md says, unless it runs outside of the cluster"
    }

    fn role(&self) -> &'static str {
        "deploy/rbac/vault-sync-operator.yaml"
    }

    fn needed(&self, config: &Config, home: &str) -> Vec<Permission> {
        needed(config, home)
    }

    fn does_without(&self) -> Option<&'static str> {
        Some("leave a kind out with --kinds")
    }

    fn watches(&self, config: &Config, kind: &konverge_kubectl::Kind) -> bool {
        Kind::named(&kind.resource.kind).is_some_and(|kind| config.push.kinds.contains(&kind))
    }

    fn watch_flags(&self) -> &'static str {
        "--kinds and --namespace"
    }

    fn check_settings(&self, operator: &Installed<Config>) -> Vec<Finding> {
        doctor::settings(operator)
    }

    async fn check_objects(&self, cluster: &Cluster, found: &Found<'_, Config>) -> Vec<Finding> {
        let mut findings = in_sync(self, found.objects);
        findings.extend(doctor::deserted(found.objects, found.installations));
        findings.extend(doctor::unserved(cluster, found.namespace).await);
        findings.extend(doctor::orphans(cluster).await);
        findings.push(doctor::vault_serves().await);
        findings
    }
}

fn shown_kind(kind: Kind) -> konverge_kubectl::Kind {
    let (short, shown): (&[&str], _) = match kind {
        Kind::VaultPush => (&["vpush"], Detail::Whole),
        _ => (kind.workload().map_or(&[], WorkloadKind::short_names), Detail::Metadata),
    };
    konverge_kubectl::Kind { short, ..konverge_kubectl::Kind::namespaced(kind.resource(), shown) }
}

fn key(kind: &konverge_kubectl::Kind, object: &DynamicObject) -> Option<ObjectRef> {
    ObjectRef::of(Kind::named(&kind.resource.kind)?, &object.metadata)
}

/// The request of the object, if it has one, even if it is invalid.
fn spec_of(key: &ObjectRef, object: &DynamicObject) -> Option<Result<PushSpec, Invalid>> {
    match key.kind {
        Kind::VaultPush => Some(vault_push::parse(key, object).map(|push| push.spec.clone())),
        _ => parse_spec(object.annotations()),
    }
}

/// Which Secrets it is made of. Of a workload the names are read that its pods use, and nothing else of it is decoded.
async fn wanted(
    cluster: &Cluster,
    key: &ObjectRef,
    object: &DynamicObject,
    spec: &PushSpec,
) -> Result<Wanted, Failure> {
    match key.kind {
        Kind::Secret => Ok(Wanted::of_secret(&spec.selection, &key.name)),
        Kind::VaultPush => composed(cluster, key, object).await,
        kind => {
            let Some(workload) = kind.workload() else { return Err(Failure::Failed(format!("{key} has no pods"))) };
            let failed = |error| Failure::of(&format!("get {key}"), &error);
            let request = Request::new(Workload::url_path(&workload, Some(&key.namespace)));
            let request = request
                .get(&key.name, &GetParams::default())
                .map_err(|error| failed(kube::Error::BuildRequest(error)))?;
            let workload: Workload = cluster.client.request(request).await.map_err(failed)?;
            Ok(Wanted::of_workload(&spec.selection, &workload.references))
        }
    }
}

/// The same for a `VaultPush`; those that fit its selector are looked for.
async fn composed(cluster: &Cluster, key: &ObjectRef, object: &DynamicObject) -> Result<Wanted, Failure> {
    let push = vault_push::parse(key, object).map_err(|invalid| Failure::Failed(invalid.to_string()))?;
    let Wanted::Composed(composition) = &push.wanted else { return Ok(push.wanted.clone()) };
    let Some(selector) = composition.selector() else { return Ok(push.wanted.clone()) };
    let fitting = secrets::fitting(&cluster.client, &key.namespace, selector).await;
    let fitting = fitting.map_err(|error| Failure::of(&format!("list the secrets of {}", key.namespace), &error))?;
    Ok(Wanted::Composed(composition.of(fitting)))
}
