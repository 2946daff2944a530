//! Triggers, as a person sees them: their specs, and their health by their own status.

use std::time::Duration;

use konverge_apply::conditions::READY;
use konverge_core::names::few;
use konverge_kubectl::{Cluster, Fact, Failure, Grade, ObjectHealth};
use konverge_runtime::watch::Guarded;
use konverge_workload::Keys;
use kube::core::DynamicObject;
use serde::de::DeserializeOwned;

use super::{What, health::named};
use crate::{
    config::Config,
    convert::{Settings, watched},
    definition::{HELD, ROLLED_OUT},
    reasons,
    trigger::{TriggerKind, TriggerRef, TriggerSpec, WatchedTrigger},
    vault_rollout::VaultRollout,
    vault_sync_status::VaultSyncStatus,
};

/// Returns a trigger as the operator sees it.
fn read(kind: TriggerKind, object: &DynamicObject, settings: &Settings) -> Option<(TriggerRef, WatchedTrigger)> {
    match kind {
        TriggerKind::VaultSyncStatus => watched::<VaultSyncStatus>(decoded(object)?, settings),
        TriggerKind::VaultRollout => watched::<VaultRollout>(decoded(object)?, settings),
    }
}

fn decoded<K>(object: &DynamicObject) -> Option<Guarded<K>>
where
    Guarded<K>: DeserializeOwned,
{
    serde_json::from_value(serde_json::to_value(object).ok()?).ok()
}

/// Returns all triggers that the user may list, or those of one namespace if no others may be listed.
pub(super) async fn all(
    cluster: &Cluster,
    namespace: &str,
    config: &Config,
) -> (Vec<(TriggerRef, WatchedTrigger)>, Vec<Failure>) {
    let settings = config.vault.settings();
    let (mut all, mut unseen) = (Vec::new(), Vec::new());
    for kind in TriggerKind::ALL {
        let shown = What::Trigger(kind).kind();
        let found = match cluster.list(&shown, None).await {
            Ok(found) => Ok(found),
            Err(_) => cluster.list(&shown, Some(namespace)).await,
        };
        match found {
            Ok(found) => all.extend(found.iter().filter_map(|object| read(kind, object, &settings))),
            Err(failure) => unseen.push(failure),
        }
    }
    (all, unseen)
}

/// Returns the health of a trigger, by its own status.
pub(super) fn health(kind: TriggerKind, object: &DynamicObject) -> Option<ObjectHealth> {
    let (_, shown) = read(kind, object, &DEFAULTS)?;
    let pending = |message: &str| ObjectHealth::new("Pending", Grade::Waiting, message.to_owned());
    let Some(ready) = shown.status.conditions.get(READY) else {
        return Some(pending("the operator has not seen it; it follows this kind only with an address of Vault"));
    };
    if shown.status.observed_generation != shown.generation {
        return Some(pending("it has changed, and the operator has not handled the change yet"));
    }
    let grade = match (&*ready.status, &*ready.reason) {
        ("True", _) => Grade::InSync,
        (_, reasons::SUSPENDED) => Grade::Paused,
        (_, reasons::ROLLOUT_PENDING | reasons::ROLLOUT_RUNNING) => Grade::Waiting,
        _ => Grade::Wrong,
    };
    let since = Some(ready.last_transition_time.0);
    Some(ObjectHealth { since, ..ObjectHealth::new(&*ready.reason, grade, ready.message.clone()) })
}

/// The settings of a plugin without an operator. The spec does not depend on them.
const DEFAULTS: Settings =
    Settings { every: Duration::from_mins(1), restart_on_first_seen: false, allow_path: Vec::new() };

/// Returns the spec of a trigger, its workloads, and the last result.
pub(super) fn facts(kind: TriggerKind, object: &DynamicObject) -> Vec<Fact> {
    let Some((_, shown)) = read(kind, object, &DEFAULTS) else { return Vec::new() };
    let mut facts = match &shown.spec {
        Ok(spec) => spec_facts(spec),
        Err(refusal) => vec![Fact::new("rolls", format!("no workload: {}", refusal.text))],
    };
    if let Some((in_sync, all)) = shown.status.in_sync_workloads.zip(shown.status.workloads) {
        facts.push(Fact::new("in sync", format!("{in_sync} of {all} workloads run with the content of Vault")));
    }
    let told = |about, condition: &str| Some(Fact::new(about, shown.status.conditions.get(condition)?.message.clone()));
    facts.extend(told("last rolled", ROLLED_OUT));
    facts.extend(told(Fact::HELD_BACK, HELD));
    facts
}

fn spec_facts(spec: &TriggerSpec) -> Vec<Fact> {
    let mut facts: Vec<_> = spec
        .sources
        .iter()
        .map(|(source, keys)| match keys {
            Keys::All => Fact::new("rolls for", source.to_string()),
            Keys::Some(keys) => Fact::new("rolls for", format!("{source}, {}", named(keys))),
        })
        .collect();
    let named: Vec<_> = spec.targets.iter().map(ToString::to_string).collect();
    if !named.is_empty() {
        facts.push(Fact::new("rolls", few(&named)));
    }
    for choice in &spec.choices {
        let kind = choice.kind.map_or("any kind", |kind| kind.name());
        facts.push(Fact::new("rolls", format!("{kind} in namespace {} with {}", choice.namespace, choice.labels)));
    }
    facts
}
