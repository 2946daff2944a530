//! The permissions that the operator uses with its settings.

use konverge_apply::ledger::CLUSTER_NAMESPACE;
use konverge_kubectl::Permission;

use crate::{config::Config, object::Kind, orphans::CONFIG_MAP};

/// Returns every permission that an operator with these settings uses. `home` is its own namespace.
pub fn needed(config: &Config, home: &str) -> Vec<Permission> {
    let mut needed = of_objects(config);
    needed.extend(of_namespaces(config));
    needed.extend(at_home(config, home));
    needed.extend(Permission::of_program(config, home));
    needed
}

/// Where it looks at objects: their kinds, and the Secrets that they use.
fn of_objects(config: &Config) -> Vec<Permission> {
    let takes_part = |kind: &Kind| config.push.kinds.contains(kind);
    let mut needed = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|kind| *kind == Kind::Secret || takes_part(kind)) {
        let of_kind = |verb| Permission::new(kind.group(), kind.plural(), verb);
        needed.extend(["get", "list", "watch"].map(of_kind));
        // Nothing is written on a Secret that only others use.
        if takes_part(&kind) {
            needed.push(of_kind("patch"));
        }
        if kind == Kind::VaultPush {
            needed.push(of_kind("patch").part("status"));
        }
    }
    needed.into_iter().map(|permission| permission.within(config.push.namespace.as_deref())).collect()
}

/// Whether a namespace is being deleted, and the one whose uid is the cluster's name.
fn of_namespaces(config: &Config) -> Vec<Permission> {
    let get = || Permission::new("", "namespaces", "get");
    match &config.push.namespace {
        None => vec![get()],
        Some(only) if config.push.instance.is_some() => vec![get().on(only)],
        Some(only) => vec![get().on(only), get().on(CLUSTER_NAMESPACE)],
    }
}

/// In its own namespace: what is left behind in Vault, and what is about to be written.
fn at_home(config: &Config, home: &str) -> Vec<Permission> {
    let mut needed = vec![Permission::new("", "configmaps", "create")];
    needed.extend(["get", "patch"].map(|verb| Permission::new("", "configmaps", verb).on(CONFIG_MAP)));
    needed.extend(["create", "delete"].map(|verb| Permission::new("", "secrets", verb)));
    // Elsewhere it is part of what it may do everywhere.
    if config.push.namespace.as_deref().is_some_and(|only| only != home) {
        needed.push(Permission::new("", "secrets", "list"));
    }
    needed.into_iter().map(|permission| permission.within(Some(home))).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use clap::Parser;

    use super::*;

    fn needed(arguments: &str) -> Vec<String> {
        let config = Config::try_parse_from(["vault-sync-operator"].into_iter().chain(arguments.split(' '))).unwrap();
        super::needed(&config, "home").iter().map(Permission::to_string).collect()
    }

    #[test]
    fn only_what_the_settings_need() {
        let cases = [
            ("--leader-elect", "get leases vault-sync-operator.io in namespace home", true),
            ("--leader-elect=false", "create leases in namespace home", false),
            ("--kinds=deployments", "list secrets", true),
            ("--kinds=deployments", "patch secrets", false),
            ("--kinds=deployments", "patch statefulsets", false),
            ("--kinds=vaultpushes", "patch vaultpushes/status", true),
            ("--kinds=deployments", "patch vaultpushes/status", false),
            ("--namespace=shop", "get secrets in namespace shop", true),
            ("--namespace=shop", "list secrets in namespace home", true),
            ("--namespace=home", "get namespaces home", true),
            ("--namespace=shop", "get namespaces kube-system", true),
            ("--namespace=shop --instance=one", "get namespaces kube-system", false),
            ("--enable-metrics-auth", "create tokenreviews", true),
            ("--enable-metrics-auth=false", "create tokenreviews", false),
            ("--metrics-bind-address=0", "create subjectaccessreviews", false),
        ];
        for (arguments, permission, expected) in cases {
            let needed = needed(arguments);
            assert_eq!(
                needed.iter().any(|known| known == permission),
                expected,
                "{arguments}: {permission}: {needed:?}"
            );
        }
    }
}
