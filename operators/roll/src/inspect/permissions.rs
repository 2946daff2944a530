//! The permissions that the operator uses with its settings.

use konverge_kubectl::Permission;

use crate::{config::Config, trigger::TriggerKind};

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
