//! The doctor's checks of roll: the permissions that its settings need, the settings, the key of digests, and annotations of other tools.

use k8s_openapi::api::core::v1::Secret;
use konverge_apply::stored_key;
use konverge_core::names::few;
use konverge_kubectl::{Cluster, Failure, Finding, Installation, Installed, Objects, Permission, named};
use kube::Api;

use super::{What, health};
use crate::{config::Config, trigger::TriggerKind};

/// The flags of the operator that decide which workloads are rolled, and when.
pub(super) fn settings(config: &Config) -> String {
    let budget = match (config.pace.max_rollouts_per_minute, config.pace.max_concurrent_rollouts) {
        (0, 0) => "no budget over all workloads".to_owned(),
        (rate, 0) => format!("at most {rate} rollouts per minute"),
        (0, concurrent) => format!("at most {concurrent} concurrent rollouts"),
        (rate, concurrent) => format!("at most {rate} rollouts per minute, {concurrent} concurrent rollouts"),
    };
    let others = [(config.tools.reloader_annotations, "Stakater Reloader"), (config.tools.wave_annotations, "wave")];
    let others: Vec<_> = others.into_iter().filter(|(given, _)| *given).map(|(_, whose)| whose).collect();
    let others = if others.is_empty() { String::new() } else { format!(", annotations of {}", others.join(" and ")) };
    format!("each workload at most once in {:#}, {budget}{others}", config.pace.min_interval)
}

/// The Secret with the key of digests.
pub(super) async fn key(cluster: &Cluster, installation: &Installation, config: &Config) -> Finding {
    let (home, name) = (&installation.namespace, &config.digest_key);
    let api = Api::<Secret>::namespaced(cluster.client.clone(), home);
    match api.get_opt(name).await {
        Err(error) => Finding::unknown("key", &Failure::of(&format!("get secret {home}/{name}"), &error)),
        Ok(None) => Finding::note(
            "key",
            format!("there is no secret {home}/{name} yet"),
            Some(
                "the operator creates it at its start; if one was deleted, all baselines are recorded anew, and nothing restarts",
            ),
        ),
        Ok(Some(secret)) => match stored_key::of(secret) {
            Some(_) => Finding::fine("key", format!("the key of digests is in the secret {home}/{name}")),
            None => Finding::wrong(
                "key",
                format!("the secret {home}/{name} holds no key of digests, so the operator does nothing"),
                format!(
                    "kubectl delete secret {name} -n {home}; then all baselines are recorded anew, and nothing restarts"
                ),
            ),
        },
    }
}

/// Returns `true` if the operator watches objects of this kind.
pub(super) fn watches(config: &Config, kind: What) -> bool {
    match kind {
        What::Workload(kind) => config.kinds.contains(&kind),
        What::Source(_) => true,
        What::Trigger(_) => config.vault.flags().is_some(),
    }
}

/// The kinds that the operator watches.
pub(super) fn watched(config: &Config) -> Finding {
    let kinds: Vec<_> = config.kinds.iter().map(|kind| kind.plural()).collect();
    Finding::fine("watches", format!("secrets, configmaps, {}", kinds.join(", ")))
}

/// Finds workloads with annotations of other tools that no operator follows.
pub(super) fn not_followed(objects: &[Objects], operators: &[Installed<Config>]) -> Option<Finding> {
    let follows = |config: &Config| config.tools.reloader_annotations || config.tools.wave_annotations;
    if operators.is_empty() || operators.iter().any(|operator| follows(&operator.config)) {
        return None;
    }
    let workloads = objects.iter().filter(|objects| matches!(What::of(&objects.kind), Some(What::Workload(_))));
    let all = workloads.flat_map(|Objects { kind, found }| found.iter().flatten().map(move |object| (kind, object)));
    let not_followed = all.filter(|(_, object)| health::requests_by_others(object));
    let not_followed: Vec<_> = not_followed.map(|(kind, object)| named(kind, object)).collect();
    let text = format!(
        "these have annotations of Stakater Reloader or wave, which the operator does not follow: {}",
        few(&not_followed)
    );
    let next = "give the operator --reloader-annotations or --wave-annotations";
    (!not_followed.is_empty()).then(|| Finding::note("settings", text, Some(next)))
}

/// Returns the permissions that an operator with these settings needs, as `deploy/rbac` grants them.
pub(super) fn needed(config: &Config, home: &str) -> Vec<Permission> {
    let mut needed = of_objects(config);
    // If you create that Secret by hand, the operator needs no permission to create it.
    needed.push(Permission::new("", "secrets", "get").on(&config.digest_key).within(Some(home)));
    needed.extend(Permission::of_program(config, home));
    needed
}

/// Returns every permission that an operator with these settings uses: the needed ones, and those that it can do without. `home` is its own
/// namespace.
pub fn used(config: &Config, home: &str) -> Vec<Permission> {
    let classes = Permission::verbs("secrets-store.csi.x-k8s.io", "secretproviderclasses", ["list", "watch"]);
    let mut used = needed(config, home);
    used.extend(classes.map(|permission| permission.within(config.namespace.as_deref())));
    // Once, to make the key of digests.
    used.push(Permission::new("", "secrets", "create").within(Some(home)));
    used
}

/// Where it looks at objects: workloads, what they use, and what asks for their rollouts. Without the classes of the Secrets Store CSI
/// driver it does.
fn of_objects(config: &Config) -> Vec<Permission> {
    let mut needed = Vec::new();
    for resource in ["secrets", "configmaps"] {
        needed.extend(Permission::verbs("", resource, ["get", "list", "watch"]));
    }
    for kind in &config.kinds {
        needed.extend(Permission::verbs(kind.group(), kind.plural(), ["get", "list", "watch", "patch"]));
    }
    for kind in TriggerKind::ALL.into_iter().filter(|_| config.vault.flags().is_some()) {
        let (group, _) = kind.api_version().split_once('/').unwrap_or_default();
        needed.extend(Permission::verbs(group, kind.plural(), ["list", "watch"]));
        if kind == TriggerKind::VaultSyncStatus {
            // The operator removes the finalizer and annotations of the original.
            needed.extend(Permission::verbs(group, kind.plural(), ["get", "patch"]));
        }
        needed.push(Permission::new(group, kind.plural(), "patch").part("status"));
    }
    needed.into_iter().map(|permission| permission.within(config.namespace.as_deref())).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::config::PROGRAM;

    #[test]
    fn only_what_the_settings_need() {
        let vault = "--vault-addr=https://vault:8200";
        let cases = [
            ("--leader-elect", "create leases in namespace home", true),
            ("--leader-elect", "get leases vault-rollout-operator in namespace home", true),
            ("--leader-elect", "patch leases vault-rollout-operator in namespace home", true),
            ("--kinds=deployments", "get leases vault-rollout-operator in namespace home", false),
            ("--kinds=deployments", "get secrets vault-rollout-operator-digest-key in namespace home", true),
            ("--digest-key=other", "get secrets other in namespace home", true),
            ("--kinds=deployments", "create secrets in namespace home", false),
            ("--kinds=deployments", "list secrets", true),
            ("--kinds=deployments", "patch secrets", false),
            ("--kinds=deployments", "patch deployments", true),
            ("--kinds=deployments", "patch statefulsets", false),
            ("--namespace=shop", "get configmaps in namespace shop", true),
            ("--namespace=shop", "create events in namespace shop", true),
            ("--namespace=shop", "get configmaps", false),
            ("--kinds=deployments", "list vaultsyncstatus", false),
            (vault, "patch vaultsyncstatus", true),
            (vault, "patch vaultsyncstatus/status", true),
            (vault, "watch vaultrollouts", true),
            (vault, "patch vaultrollouts/status", true),
            (vault, "patch vaultrollouts", false),
            ("--enable-metrics-auth", "create tokenreviews", true),
            ("--enable-metrics-auth", "create subjectaccessreviews", true),
            ("--leader-elect", "create tokenreviews", false),
            ("--enable-metrics-auth --metrics-bind-address=0", "create tokenreviews", false),
        ];
        for (arguments, permission, expected) in cases {
            let config = Config::try_parse_from([PROGRAM].into_iter().chain(arguments.split(' '))).unwrap();
            let needed: Vec<_> = needed(&config, "home").iter().map(Permission::to_string).collect();
            assert_eq!(
                needed.iter().any(|known| known == permission),
                expected,
                "{arguments}: {permission}: {needed:?}"
            );
        }
    }
}
