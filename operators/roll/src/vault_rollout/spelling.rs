//! The spec of a `VaultRollout`.

use std::collections::{BTreeMap, BTreeSet};

use konverge_runtime::watch::Guarded;

use super::resource::{VaultRollout, VaultRolloutSpec, VaultSecretSpec};
use crate::{
    declarations::object_name,
    object::{SourceName, WorkloadRef},
    spelling::{self, Settings},
    trigger::{Before, Choice, TriggerKind, TriggerRef, TriggerSpec, WatchedTrigger},
    vault,
    wait::WaitFor,
};

/// Returns a trigger. Returns `None` if it has no name.
pub fn shown(object: Guarded<VaultRollout>, settings: Settings) -> Option<(TriggerRef, WatchedTrigger)> {
    spelling::shown(TriggerKind::VaultRollout, object, |home, spec| trigger_spec(home, spec, settings))
}

fn trigger_spec(home: &str, spec: &VaultRolloutSpec, settings: Settings) -> Result<TriggerSpec, String> {
    let mut sources = BTreeMap::new();
    for (number, secret) in spec.vault_secrets.iter().enumerate() {
        let field = format!("spec.vaultSecrets[{number}]");
        let VaultSecretSpec { mount, path, mode, keys, engine_version } = secret;
        let kind = spelling::source_kind(&field, *engine_version, mode.as_deref())?;
        let source =
            vault::source(kind, mount, path).map_err(|cause| format!("{field}.mount and {field}.path: {cause}"))?;
        let keys = spelling::keys(&field, keys.as_deref(), kind)?;
        add(&mut sources, source, keys);
    }
    if sources.is_empty() {
        return Err("spec.vaultSecrets is empty".to_owned());
    }
    let (mut targets, mut choices) = (BTreeSet::new(), Vec::new());
    for (number, target) in spec.targets.iter().enumerate() {
        let field = format!("spec.targets[{number}]");
        let kind = target.kind.as_deref();
        let kind = kind.map(|kind| spelling::workload_kind(&format!("{field}.kind"), kind)).transpose()?;
        let namespace = object_name(target.namespace.as_deref().unwrap_or(home))
            .map_err(|cause| format!("{field}.namespace: {cause}"))?;
        match (&target.name, &target.selector) {
            (Some(name), None) => {
                let name = object_name(name).map_err(|cause| format!("{field}.name: {cause}"))?;
                let kind = kind.ok_or_else(|| format!("{field}.kind is missing, such as Deployment"))?;
                targets.insert(WorkloadRef { namespace, kind, name });
            }
            (None, Some(selector)) => {
                let labels = selector.read().map_err(|cause| format!("{field}.selector: {cause}"))?;
                let labels =
                    labels.ok_or_else(|| format!("{field}.selector: it is empty, and would roll every workload"))?;
                choices.push(Choice { namespace, kind, labels });
            }
            _ => return Err(format!("{field}: give either a name or a selector")),
        }
    }
    if targets.is_empty() && choices.is_empty() {
        return Err("spec.targets is empty".to_owned());
    }
    Ok(TriggerSpec {
        targets,
        choices,
        sources,
        every: spec.interval.as_deref().map_or(Ok(settings.every), spelling::interval)?,
        // Never by the first sight of an object, whatever the operator is told for those of the original.
        before: Before::Adopted,
        suspended: spec.suspend,
        wait_for: spec.wait_for.as_ref().map(WaitFor::read).transpose()?,
        notes: Vec::new(),
    })
}

/// Once more by other keys means both.
fn add(sources: &mut BTreeMap<SourceName, konverge_workload::Keys>, source: SourceName, keys: konverge_workload::Keys) {
    let keys = match sources.remove(&source) {
        Some(known) => known.and(keys),
        None => keys,
    };
    sources.insert(source, keys);
}

#[cfg(test)]
mod tests;
