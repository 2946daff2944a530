//! What a `VaultSyncStatus` asks for.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use konverge_runtime::watch::Guarded;
use konverge_workload::{Keys, WorkloadKind};
use kube::Resource;

use super::{VaultSyncStatus, VaultSyncStatusSpec};
use crate::{
    declarations::object_name,
    object::{SourceKind, WorkloadRef},
    trigger::{Asks, Before, Leftovers, Shown, TriggerKind, TriggerRef},
    vault,
};

/// What kopf, which the original is made with, puts on each object that it works on.
pub const KOPF_FINALIZER: &str = "kopf.zalando.org/KopfFinalizerMarker";
/// What its annotations begin with.
pub const KOPF_PREFIX: &str = "kopf.zalando.org/";

/// What the original's samples have for a time before any.
const DUMMY: &str = "0000-00-00T00:00:00";

/// Vault is asked no more often than this.
const SHORTEST: Duration = Duration::from_secs(1);

/// What the platform decides.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How often Vault is asked for an object that does not say.
    pub every: Duration,
    /// Whether a workload of which nothing was noted is restarted once, as with the original.
    pub restart_on_first_seen: bool,
}

/// What an object is to us; nothing if it has no name.
pub fn shown(object: Guarded<VaultSyncStatus>, settings: Settings) -> Option<(TriggerRef, Shown)> {
    let metadata = object.meta().clone();
    let key = TriggerRef { kind: TriggerKind::VaultSyncStatus, namespace: metadata.namespace?, name: metadata.name? };
    let uid = metadata.uid?;
    let (asks, status) = match object.0 {
        Ok(object) => {
            let status = object.status.filter(|status| status.uid.is_empty() || status.uid == uid);
            (asks(&object.spec, settings).map(Arc::new), status)
        }
        Err(undecodable) => (Err(undecodable.error), None),
    };
    let leftovers = Leftovers {
        finalizers: metadata.finalizers.into_iter().flatten().filter(|known| known == KOPF_FINALIZER).collect(),
        annotations: metadata
            .annotations
            .into_iter()
            .flat_map(BTreeMap::into_keys)
            .filter(|name| name.starts_with(KOPF_PREFIX))
            .collect(),
    };
    let shown = Shown {
        uid,
        version: metadata.resource_version.unwrap_or_default(),
        generation: metadata.generation,
        asks: asks.map_err(Into::into),
        deleting: metadata.deletion_timestamp.is_some(),
        leftovers,
        status: Arc::new(status.unwrap_or_default()),
    };
    Some((key, shown))
}

fn asks(spec: &VaultSyncStatusSpec, settings: Settings) -> Result<Asks, String> {
    let name = required("deployName", spec.deploy_name.as_deref())?;
    let namespace = required("deployNamespace", spec.deploy_namespace.as_deref())?;
    let engine = required("secretEngine", spec.secret_engine.as_deref())?;
    let path = required("secretPath", spec.secret_path.as_deref())?;
    let target = WorkloadRef {
        namespace: object_name(namespace).map_err(|cause| format!("spec.deployNamespace: {cause}"))?,
        kind: spec.deploy_kind.as_deref().map_or(Ok(WorkloadKind::Deployment), kind)?,
        name: object_name(name).map_err(|cause| format!("spec.deployName: {cause}"))?,
    };
    let source_kind = source_kind(spec)?;
    let source = vault::source(source_kind, engine, path)
        .map_err(|cause| format!("spec.secretEngine and spec.secretPath: {cause}"))?;
    let (before, notes) = before(spec.time_stamp.as_deref(), settings);
    Ok(Asks {
        targets: BTreeSet::from([target]),
        sources: BTreeMap::from([(source, keys(spec, source_kind)?)]),
        every: spec.interval.as_deref().map_or(Ok(settings.every), interval)?,
        before,
        notes,
    })
}

fn required<'a>(field: &str, value: Option<&'a str>) -> Result<&'a str, String> {
    let value = value.map(str::trim).filter(|value| !value.is_empty());
    value.ok_or_else(|| format!("spec.{field} is missing"))
}

fn kind(text: &str) -> Result<WorkloadKind, String> {
    // The template of a Job never changes.
    let mut kinds = WorkloadKind::ALL.into_iter().filter(|kind| *kind != WorkloadKind::Job);
    kinds.find(|kind| kind.name() == text).ok_or_else(|| format!("spec.deployKind: {text:?} is nothing that is rolled"))
}

fn source_kind(spec: &VaultSyncStatusSpec) -> Result<SourceKind, String> {
    match (spec.engine_version, spec.mode.as_deref()) {
        (Some(1), None | Some("content")) => Ok(SourceKind::VaultV1),
        (Some(1), Some("version")) => {
            Err("spec.mode: an engine of version 1 has no versions; leave it out, or write content".to_owned())
        }
        (None | Some(2), None | Some("version")) => Ok(SourceKind::Vault),
        (None | Some(2), Some("content")) => Ok(SourceKind::VaultContent),
        (None | Some(1 | 2), Some(other)) => Err(format!("spec.mode: {other:?} is neither version nor content")),
        (Some(other), _) => Err(format!("spec.engineVersion: {other} is neither 1 nor 2")),
    }
}

fn keys(spec: &VaultSyncStatusSpec, kind: SourceKind) -> Result<Keys, String> {
    match spec.keys.as_deref() {
        None | Some([]) => Ok(Keys::All),
        Some(_) if kind == SourceKind::Vault => {
            Err("spec.keys: which keys have changed is only known with spec.mode content".to_owned())
        }
        Some(keys) => Ok(Keys::Some(keys.iter().cloned().collect())),
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let span = text.trim().parse::<SignedDuration>().ok().and_then(|span| Duration::try_from(span).ok());
    span.filter(|span| *span >= SHORTEST)
        .ok_or_else(|| format!("spec.interval: {text:?} is no span of time of a second or more, such as 30s or 5m"))
}

/// A time that cannot be understood counts as none, since what follows from it would be a restart.
fn before(time: Option<&str>, settings: Settings) -> (Before, Vec<Arc<str>>) {
    let unknown = if settings.restart_on_first_seen { Before::Other } else { Before::Adopted };
    let text = time.map(str::trim).filter(|text| !text.is_empty() && !text.starts_with(DUMMY));
    match text.map(|text| text.parse::<Timestamp>().map_err(|_| text)) {
        None => (unknown, Vec::new()),
        Some(Ok(time)) => (Before::Time(time), Vec::new()),
        Some(Err(text)) => {
            let shown: String = text.chars().take(64).collect();
            let note = format!(
                "spec.timeStamp is {shown:?}, which is no time such as 2026-01-31T12:00:00Z; it counts as if it were not there"
            );
            (Before::Adopted, vec![note.into()])
        }
    }
}

#[cfg(test)]
mod tests;
