//! The spec of a `VaultSyncStatus`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use konverge_runtime::watch::Guarded;
use konverge_workload::WorkloadKind;
use kube::{Resource, core::ObjectMeta};

use super::resource::{VaultSyncStatus, VaultSyncStatusSpec};
use crate::{
    declarations::object_name,
    object::WorkloadRef,
    spelling::{self, Settings},
    trigger::{Before, Leftovers, TriggerKind, TriggerRef, TriggerSpec, WatchedTrigger},
    vault,
    wait::WaitFor,
};

/// The finalizer of kopf, the framework of the original.
pub const KOPF_FINALIZER: &str = "kopf.zalando.org/KopfFinalizerMarker";
/// The prefix of its annotations.
pub const KOPF_PREFIX: &str = "kopf.zalando.org/";

/// The time before all others in the samples of the original.
const DUMMY: &str = "0000-00-00T00:00:00";

/// Returns a trigger. Returns `None` if it has no name.
pub fn shown(object: Guarded<VaultSyncStatus>, settings: Settings) -> Option<(TriggerRef, WatchedTrigger)> {
    let leftovers = leftovers(object.meta());
    let (key, shown) = spelling::shown(TriggerKind::VaultSyncStatus, object, |_, spec| trigger_spec(spec, settings))?;
    Some((key, WatchedTrigger { leftovers, ..shown }))
}

/// The finalizers and annotations that kopf has left on it.
fn leftovers(metadata: &ObjectMeta) -> Leftovers {
    let annotations = metadata.annotations.iter().flat_map(BTreeMap::keys);
    Leftovers {
        finalizers: metadata.finalizers.iter().flatten().filter(|known| *known == KOPF_FINALIZER).cloned().collect(),
        annotations: annotations.filter(|name| name.starts_with(KOPF_PREFIX)).cloned().collect(),
    }
}

fn trigger_spec(spec: &VaultSyncStatusSpec, settings: Settings) -> Result<TriggerSpec, String> {
    let name = required("deployName", spec.deploy_name.as_deref())?;
    let namespace = required("deployNamespace", spec.deploy_namespace.as_deref())?;
    let engine = required("secretEngine", spec.secret_engine.as_deref())?;
    let path = required("secretPath", spec.secret_path.as_deref())?;
    let target = WorkloadRef {
        namespace: object_name(namespace).map_err(|cause| format!("spec.deployNamespace: {cause}"))?,
        kind: match spec.deploy_kind.as_deref() {
            None => WorkloadKind::Deployment,
            Some(kind) => spelling::workload_kind("spec.deployKind", kind)?,
        },
        name: object_name(name).map_err(|cause| format!("spec.deployName: {cause}"))?,
    };
    let kind = spelling::source_kind("spec", spec.engine_version, spec.mode.as_deref())?;
    let source =
        vault::source(kind, engine, path).map_err(|cause| format!("spec.secretEngine and spec.secretPath: {cause}"))?;
    let (before, notes) = before(spec.time_stamp.as_deref(), settings);
    Ok(TriggerSpec {
        targets: BTreeSet::from([target]),
        choices: Vec::new(),
        sources: BTreeMap::from([(source, spelling::keys("spec", spec.keys.as_deref(), kind)?)]),
        every: spec.interval.as_deref().map_or(Ok(settings.every), spelling::interval)?,
        before,
        suspended: false,
        wait_for: spec.wait_for.as_ref().map(WaitFor::read).transpose()?,
        notes,
    })
}

fn required<'a>(field: &str, value: Option<&'a str>) -> Result<&'a str, String> {
    let value = value.map(str::trim).filter(|value| !value.is_empty());
    value.ok_or_else(|| format!("spec.{field} is missing"))
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
