//! The conversion that both kinds of triggers share. Each error names the field that it is about.

use std::{sync::Arc, time::Duration};

use jiff::SignedDuration;
use konverge_runtime::watch::Guarded;
use konverge_workload::{Keys, WorkloadKind};
use kube::{
    Resource,
    core::object::{HasSpec, HasStatus},
};

use crate::{
    object::SourceKind,
    reasons,
    status::Status,
    trigger::{Leftovers, Refusal, TriggerKind, TriggerRef, TriggerSpec, WatchedTrigger},
};

/// Vault is asked no more often than this.
const SHORTEST: Duration = Duration::from_secs(1);

/// The settings of the platform.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How often Vault is asked for an object that does not say.
    pub every: Duration,
    /// Whether a workload of which nothing was noted is restarted once, as with the original.
    pub restart_on_first_seen: bool,
}

/// Returns a trigger. Returns `None` if it has no name. `spec` reads its spec, which counts from the object's namespace.
pub(crate) fn shown<K>(
    kind: TriggerKind,
    object: Guarded<K>,
    spec: impl FnOnce(&str, &K::Spec) -> Result<TriggerSpec, String>,
) -> Option<(TriggerRef, WatchedTrigger)>
where
    K: Resource<DynamicType = ()> + HasSpec + HasStatus<Status = Status>,
{
    let metadata = object.meta().clone();
    let key = TriggerRef { kind, namespace: metadata.namespace?, name: metadata.name? };
    let uid = metadata.uid?;
    let (spec, status) = match object.0 {
        Ok(mut object) => {
            // A copy may have brought that of another object along. That of the original says of none whose it is.
            let is_own =
                |status: &Status| status.uid == uid || kind == TriggerKind::VaultSyncStatus && status.uid.is_empty();
            let status = object.status_mut().take().filter(is_own);
            (spec(&key.namespace, object.spec()).map(Arc::new), status)
        }
        Err(undecodable) => (Err(undecodable.error), None),
    };
    let shown = WatchedTrigger {
        uid,
        version: metadata.resource_version.unwrap_or_default(),
        generation: metadata.generation,
        spec: spec.map_err(|cause| Refusal { reason: reasons::INVALID_SPEC, text: cause.into() }),
        deleting: metadata.deletion_timestamp.is_some(),
        leftovers: Leftovers::default(),
        status: Arc::new(status.unwrap_or_default()),
    };
    Some((key, shown))
}

/// A kind of workloads by its name in manifests.
pub(crate) fn workload_kind(field: &str, text: &str) -> Result<WorkloadKind, String> {
    // The template of a Job never changes.
    let mut kinds = WorkloadKind::ALL.into_iter().filter(|kind| *kind != WorkloadKind::Job);
    kinds.find(|kind| kind.name() == text).ok_or_else(|| format!("{field}: {text:?} is nothing that is rolled"))
}

/// The mode in which a secret counts, and the version of its engine. `fields` is what stands before the names of the fields.
pub(crate) fn source_kind(fields: &str, engine_version: Option<u8>, mode: Option<&str>) -> Result<SourceKind, String> {
    // Objects that an earlier definition accepted have the modes in lower case.
    let is_content = match mode {
        None => None,
        Some(mode) if mode.eq_ignore_ascii_case("Content") => Some(true),
        Some(mode) if mode.eq_ignore_ascii_case("Version") => Some(false),
        Some(other) => return Err(format!("{fields}.mode: {other:?} is neither Version nor Content")),
    };
    match (engine_version, is_content) {
        (Some(1), None | Some(true)) => Ok(SourceKind::VaultV1),
        (Some(1), Some(false)) => {
            Err(format!("{fields}.mode: an engine of version 1 has no versions; leave it out, or write Content"))
        }
        (None | Some(2), None | Some(false)) => Ok(SourceKind::Vault),
        (None | Some(2), Some(true)) => Ok(SourceKind::VaultContent),
        (Some(other), _) => Err(format!("{fields}.engineVersion: {other} is neither 1 nor 2")),
    }
}

/// Which keys count.
pub(crate) fn keys(fields: &str, keys: Option<&[String]>, kind: SourceKind) -> Result<Keys, String> {
    match keys {
        None | Some([]) => Ok(Keys::All),
        Some(_) if kind == SourceKind::Vault => {
            Err(format!("{fields}.keys: which keys have changed is only known with {fields}.mode Content"))
        }
        Some(keys) => Ok(Keys::Some(keys.iter().cloned().collect())),
    }
}

/// How often Vault is asked.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let span = text.trim().parse::<SignedDuration>().ok().and_then(|span| Duration::try_from(span).ok());
    span.filter(|span| *span >= SHORTEST)
        .ok_or_else(|| format!("spec.interval: {text:?} is no span of time of a second or more, such as 30s or 5m"))
}
