//! The conversion of specs that both kinds of triggers share. Each error names its field.

use std::{sync::Arc, time::Duration};

use jiff::SignedDuration;
use konverge_runtime::watch::Guarded;
use konverge_vault::boundaries::{Place, Rule, is_allowed};
use konverge_workload::{Keys, WorkloadKind};
use kube::{
    Resource,
    core::{
        ObjectMeta,
        object::{HasSpec, HasStatus},
    },
};

use crate::{
    annotations::object_name,
    definition::{Status, WaitForSpec},
    object::{SourceKind, SourceName},
    reasons,
    time::span_of_field,
    trigger::{Leftovers, Refusal, TriggerKind, TriggerRef, TriggerSpec, WaitFor, WatchedTrigger},
    vault,
};

/// The default of `spec.waitFor.timeout`: longer than the interval of tools that sync Secrets.
const TIMEOUT: SignedDuration = SignedDuration::from_mins(5);

/// The settings of the platform.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The poll interval of an object without one.
    pub every: Duration,
    /// Whether a workload of which nothing was noted is restarted once, as with the original.
    pub restart_on_first_seen: bool,
    /// Which objects may name which secrets; without a rule, each object may name all.
    pub allow_path: Vec<Rule>,
}

/// A custom resource that requests rollouts.
pub trait TriggerResource: Resource<DynamicType = ()> + HasSpec + HasStatus<Status = Status> {
    /// Its kind.
    const KIND: TriggerKind;

    /// Reads the spec of an object of this namespace.
    fn read(spec: &Self::Spec, namespace: &str, settings: &Settings) -> Result<TriggerSpec, String>;

    /// The finalizers and annotations that the original has left on an object.
    fn leftovers(_: &ObjectMeta) -> Leftovers {
        Leftovers::default()
    }
}

/// Returns the trigger that an object is. Returns `None` if it has no name.
pub fn watched<K: TriggerResource>(object: Guarded<K>, settings: &Settings) -> Option<(TriggerRef, WatchedTrigger)> {
    let metadata = object.meta().clone();
    let leftovers = K::leftovers(&metadata);
    let key = TriggerRef { kind: K::KIND, namespace: metadata.namespace?, name: metadata.name? };
    let uid = metadata.uid?;
    let (spec, status) = match object.0 {
        Ok(mut object) => {
            // A copied object may carry the status of its source. The original's status has no uid.
            let is_own =
                |status: &Status| status.uid == uid || K::KIND == TriggerKind::VaultSyncStatus && status.uid.is_empty();
            let status = object.status_mut().take().filter(is_own);
            (K::read(object.spec(), &key.namespace, settings), status)
        }
        Err(undecodable) => (Err(undecodable.error), None),
    };
    let spec = spec
        .map_err(|cause| Refusal { reason: reasons::INVALID_SPEC, text: cause.into() })
        .and_then(|spec| allowed(spec, &key, &settings.allow_path));
    let watched = WatchedTrigger {
        uid,
        version: metadata.resource_version.unwrap_or_default(),
        generation: metadata.generation,
        spec: spec.map(Arc::new),
        deleting: metadata.deletion_timestamp.is_some(),
        leftovers,
        status: Arc::new(status.unwrap_or_default()),
    };
    Some((key, watched))
}

/// Refuses a spec that names a secret that its object may not name.
fn allowed(spec: TriggerSpec, key: &TriggerRef, rules: &[Rule]) -> Result<TriggerSpec, Refusal> {
    let TriggerRef { namespace, name, .. } = key;
    let place = Place { namespace, name, cluster: None };
    let mut named = spec.sources.keys().filter_map(vault::location);
    match named.find(|location| !is_allowed(rules, &place, location)) {
        None => Ok(spec),
        Some(location) => {
            let text = format!(
                "objects of namespace {namespace} may not name {location}: none of the rules of --allow-path says so, as {namespace}={location} \
                 would"
            );
            Err(Refusal { reason: reasons::PATH_NOT_ALLOWED, text: text.into() })
        }
    }
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

/// Returns the poll interval.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    span_of_field("spec.interval", text, "30s").map(SignedDuration::unsigned_abs)
}

/// Returns the Secret to wait for.
pub(crate) fn wait_for(spec: &WaitForSpec) -> Result<WaitFor, String> {
    let secret = object_name(&spec.secret).map_err(|cause| format!("spec.waitFor.secret: {cause}"))?;
    let timeout = match &spec.timeout {
        None => TIMEOUT,
        Some(text) => span_of_field("spec.waitFor.timeout", text, "90s")?,
    };
    let holds = match spec.on_timeout.as_deref() {
        None | Some("Roll") => false,
        Some("Hold") => true,
        Some(other) => return Err(format!("spec.waitFor.onTimeout: {other:?} is neither Roll nor Hold")),
    };
    let keys = keys("spec.waitFor", spec.keys.as_deref(), SourceKind::Secret)?;
    Ok(WaitFor { secret: SourceName::secret(secret), keys, timeout, holds })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(timeout: Option<&str>, on_timeout: Option<&str>) -> Result<WaitFor, String> {
        wait_for(&WaitForSpec {
            secret: "db".to_owned(),
            keys: None,
            timeout: timeout.map(str::to_owned),
            on_timeout: on_timeout.map(str::to_owned),
        })
    }

    #[test]
    fn a_timeout_is_a_second_or_more_and_is_refused_in_its_own_words() {
        for (text, expected) in [
            (None, TIMEOUT),
            (Some("1s"), SignedDuration::from_secs(1)),
            (Some(" 1m30s "), SignedDuration::from_secs(90)),
        ] {
            assert_eq!(read(text, None).unwrap().timeout, expected, "{text:?}");
        }
        for text in ["0s", "0.5s", "999ms", "-1m", "soon", "", "5"] {
            let cause = read(Some(text), None).unwrap_err();
            assert_eq!(
                cause,
                format!("spec.waitFor.timeout: {text:?} is no span of time of a second or more, such as 90s or 5m")
            );
        }
    }

    #[test]
    fn what_follows_the_timeout_is_one_of_two() {
        let holds = |text| read(None, text).map(|wait| wait.holds);
        assert_eq!([None, Some("Roll"), Some("Hold")].map(holds), [Ok(false), Ok(false), Ok(true)]);
        assert!(holds(Some("Wait")).unwrap_err().contains("spec.waitFor.onTimeout"));
    }
}
