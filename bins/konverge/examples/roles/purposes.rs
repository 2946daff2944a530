//! The purpose of each rule that does not speak for itself.

use crate::manifest::{
    Place::{self, Everywhere, Home},
    Purpose,
};

const LEASE: Purpose =
    Purpose::new(Home, "leases", "An object that does not exist yet has no name that a rule could state.");

pub(crate) const OF_PULL: [Purpose; 6] = [
    Purpose::new(
        Everywhere,
        "secrets",
        "The operator lists and watches metadata only, although this role would let it read the values, too; get reads a Secret that carries the\n\
         annotations or is made for a custom resource; patch writes its keys. create and delete are for custom resources alone: leave them out if there\n\
         are none.",
    ),
    Purpose::new(
        Everywhere,
        "zoppsecretsyncs",
        "The custom resource of the original operator, where it is installed. patch of status tells the state.",
    ),
    Purpose::new(
        Everywhere,
        "secretpulls",
        "The custom resources, where their definitions (in crds/) are installed. patch of status tells the state. A login by a service account needs\n\
         create of serviceaccounts/token, too. That is not here: each team permits it for its own account, as docs/how-to/secretsource.md shows.",
    ),
    Purpose::new(
        Everywhere,
        "namespaces",
        "Lists the namespaces that spec.namespaceSelector of a ClusterSecretSource selects.",
    ),
    Purpose::new(Everywhere, "events", "Tells on the object what happened and what to do."),
    LEASE,
];

pub(crate) const OF_PUSH: [Purpose; 8] = [
    Purpose::new(
        Everywhere,
        "secrets",
        "The watch carries metadata only; get reads a Secret that an object requests. Where many requested Secrets of one namespace wait, as at a\n\
         start, list reads whole Secrets of that namespace in pages, also those that nobody requests, and wipes their values at once. The verb patch\n\
         is for finalizer and annotations of an annotated Secret. There is no create, update or delete: the operator makes and removes no Secret but\n\
         its own, see below.",
    ),
    Purpose::new(
        Everywhere,
        "deployments",
        "The workloads that request a push of what they use; patch writes their finalizer and annotations. You can leave out a kind here\n\
         and with --kinds.",
    ),
    Purpose::new(
        Everywhere,
        "vaultpushes",
        "The custom resource, where its definition (crds/vaultpushes.yaml) is installed; patch writes its finalizer and its status.",
    ),
    Purpose::new(Everywhere, "events", "Tells on the object what happened and what to do."),
    Purpose::new(
        Everywhere,
        "namespaces",
        "Whether a namespace is being deleted: then its objects wait for Vault a shorter time.",
    ),
    LEASE,
    Purpose::new(Home, "configmaps", "The paths that were left behind in Vault, until the operator can clear them."),
    Purpose::new(
        Home,
        "secrets",
        "The writes that are planned for many objects at once, until the objects record them: Secrets named vault-sync-operator-intended-*, with\n\
         paths and digests and no value. Without this the operator writes on each object first, which takes a first sync of many three times as long.",
    ),
];

pub(crate) const OF_ROLL: [Purpose; 10] = [
    Purpose::new(
        Everywhere,
        "secrets",
        "The operator lists and watches metadata only, although this role would let it read the values, too; get reads a source that changed and for\n\
         which a workload restarts, and before a restart what else its pods need to start. The operator writes neither kind.",
    ),
    Purpose::new(
        Everywhere,
        "deployments",
        "get reads a workload that changed during a decision; patch writes annotations of it and of its pod template. You can leave out a kind\n\
         here and with --kinds.",
    ),
    Purpose::new(Everywhere, "rollouts", "Where Argo Rollouts is installed."),
    Purpose::new(
        Everywhere,
        "secretproviderclasses",
        "Where the Secrets Store CSI driver is installed: which Secrets it makes for pods. The content that it mounts is not in these objects.",
    ),
    Purpose::new(
        Everywhere,
        "vaultsyncstatus",
        "Where VaultSyncStatus is installed. get and patch remove the finalizer and annotations of the original, and status tells the state.",
    ),
    Purpose::new(Everywhere, "vaultrollouts", "Where VaultRollout is installed. patch of status tells the state."),
    Purpose::new(Everywhere, "events", "Tells on the workload and on its source what happened."),
    LEASE,
    Purpose::named(
        Home,
        "secrets",
        "vault-rollout-operator-digest-key",
        "Also needed where the ClusterRole has become a Role of another namespace.",
    ),
    Purpose::new(
        Home,
        "secrets",
        "The key of digests, once. If you create that Secret by hand, with 32 random bytes in \"key\", you can leave this out.",
    ),
];

impl Purpose {
    /// The purpose of the rule whose first resource is this, without a name.
    const fn new(place: Place, resource: &'static str, text: &'static str) -> Self {
        Self { place, resource, name: None, text }
    }

    /// The purpose of the rule for the object of this name.
    const fn named(place: Place, resource: &'static str, name: &'static str, text: &'static str) -> Self {
        Self { place, resource, name: Some(name), text }
    }
}
