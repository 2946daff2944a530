//! Which objects push where, and what happens to content in Vault: the decisions of the platform for all objects.

use std::{fmt, time::Duration};

use clap::{ArgAction, Args, builder::ArgPredicate};
use konverge_apply::ledger::DeletionDeadline;
use konverge_core::deletion_guard::DeletionBudget;
use konverge_runtime::watch::namespace;
use konverge_vault::{
    Location,
    boundaries::{Place, Rule, is_allowed},
    environment::boolean,
};

use crate::{
    object::{Kind, ObjectRef},
    spec::{BinaryPolicy, DeletionPolicy, ExistingPolicy},
};

/// The maximum grace period for data of a deleted object. A deletion is usually intended, but `kubectl replace --force`, a renaming and some
/// controllers delete an object to create its successor.
const DELETED_GRACE: Duration = Duration::from_secs(10);

/// The rules of a start that the original could not make, because it has another login method than `kubernetes`: a folder for each namespace, with and without the prefix of
/// the cluster.
const NATIVE_RULES: &str = "*=secret/data/{namespace}/*,*=clusters/{cluster}/secret/data/{namespace}/*";

/// Which objects push where, and what happens to content in Vault.
#[derive(Debug, Clone, Args)]
pub struct PushOptions {
    /// Name of this cluster; all paths begin with clusters/NAME/ then
    #[arg(long, env = "VAULT_SYNC_CLUSTER_NAME", default_value = "", hide_default_value = true, value_parser = super::values::cluster, value_name = "NAME")]
    pub cluster_name: String,
    /// Name of this installation in marks of ownership [default: the uid of the namespace kube-system]
    #[arg(long, env = "VAULT_SYNC_INSTANCE", value_parser = super::values::instance, value_name = "NAME")]
    pub instance: Option<String>,
    /// The only namespace to look at [default: all namespaces]
    #[arg(long, env = "VAULT_SYNC_NAMESPACE", value_parser = namespace)]
    pub namespace: Option<String>,
    /// Kinds of objects that the operator watches
    #[arg(long, env = "VAULT_SYNC_KINDS", value_delimiter = ',', default_value = "deployments,statefulsets,daemonsets,cronjobs,jobs,rollouts,secrets,vaultpushes", value_parser = super::values::kind)]
    pub kinds: Vec<Kind>,
    /// Which namespaces may write where; may be repeated [default: no restriction with the login method kubernetes, as with the original; with
    /// others, which the original lacks, secret/data/{namespace}/* behind the prefix of the cluster]
    ///
    /// The path is that in Vault's API, such as secret/data/{namespace}/*, where {namespace}, {name} and {cluster} are those of the object
    /// and * is one segment, at the end one or more. The namespace may be * for all.
    #[arg(long, env = "VAULT_SYNC_ALLOW_PATH", value_delimiter = ',', default_value_ifs([("vault_auth_method", "kubernetes".into(), None), ("vault_auth_method", ArgPredicate::IsPresent, Some(NATIVE_RULES))]), value_name = "NAMESPACE=PATH")]
    pub allow_path: Vec<Rule>,
    /// How data that nothing requests any more is deleted, unless the object says it
    #[arg(long, env = "VAULT_SYNC_DEFAULT_DELETION_POLICY", default_value = "soft", value_name = "POLICY")]
    pub default_deletion_policy: DeletionPolicy,
    /// Grace period for data that an existing object no longer requests, unless the object sets its own; 0s for none
    ///
    /// Data of a deleted object stays for 10 s, or for this time if that is shorter. An object that requests the path again in that time keeps it.
    #[arg(long, env = "VAULT_SYNC_DELETION_GRACE", default_value = "5m", value_parser = super::values::duration_or_none, value_name = "TIME")]
    pub deletion_grace: Duration,
    /// Delete any number of paths without approval
    #[arg(long, env = "VAULT_SYNC_ALLOW_DELETES", default_value = "false", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_name = "BOOL")]
    pub allow_deletes: bool,
    /// Percentage of all paths that one namespace may have deleted without approval within the grace period; at least five
    /// paths, and at most a hundred
    #[arg(long, env = "VAULT_SYNC_DELETION_SHARE", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100), value_name = "PERCENT")]
    pub deletion_share: u8,
    /// How a path is treated that has content without an owner, unless the object says it
    #[arg(long, env = "VAULT_SYNC_EXISTING", default_value = "adopt", value_name = "POLICY")]
    pub existing: ExistingPolicy,
    /// How a value that is no text is written, where the object does not say
    #[arg(long, env = "VAULT_SYNC_BINARY", default_value = "base64", value_name = "POLICY")]
    pub binary: BinaryPolicy,
    /// How long an object may wait for its deletion while Vault cannot be cleared
    #[arg(long, env = "VAULT_SYNC_FINALIZER_DEADLINE", default_value = "15m", value_parser = super::values::duration, value_name = "TIME")]
    pub finalizer_deadline: Duration,
    /// The same for an object whose namespace is being deleted
    #[arg(long, env = "VAULT_SYNC_TERMINATING_NAMESPACE_DEADLINE", default_value = "1m", value_parser = super::values::duration, value_name = "TIME")]
    pub terminating_namespace_deadline: Duration,
    /// How many objects are worked on at the same time
    #[arg(long, env = "VAULT_SYNC_WORKERS", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,
}

impl PushOptions {
    /// The cluster's name, if it has one.
    pub fn cluster(&self) -> Option<&str> {
        Some(&*self.cluster_name).filter(|name| !name.is_empty())
    }

    /// The prefix of every path: `clusters/NAME/` if the cluster has a name.
    pub(crate) fn prefix(&self) -> String {
        self.cluster().map(|cluster| format!("clusters/{cluster}/")).unwrap_or_default()
    }

    /// Whether the rules let the object write the location. Without a rule, each may write everywhere.
    pub(crate) fn allows(&self, key: &ObjectRef, location: &Location) -> bool {
        let place = Place { namespace: &key.namespace, name: &key.name, cluster: self.cluster() };
        is_allowed(&self.allow_path, &place, location)
    }

    /// Returns the budget of deletions without approval. Returns `None` if no deletion needs approval.
    pub(crate) fn deletion_budget(&self) -> Option<DeletionBudget> {
        (!self.allow_deletes).then(|| DeletionBudget { percent: self.deletion_share, ..DeletionBudget::default() })
    }

    /// How long an object that is being deleted waits for Vault.
    pub(crate) fn deadline(&self) -> DeletionDeadline {
        DeletionDeadline {
            limit: self.finalizer_deadline,
            in_terminating_namespace: self.terminating_namespace_deadline,
        }
    }

    /// Returns the grace period for data of a deleted object, in which another object can request the path.
    pub(crate) fn grace_of_deleted(&self) -> Duration {
        self.deletion_grace.min(DELETED_GRACE)
    }

    /// Returns what the settings leave open to everybody who may annotate an object, as the original does.
    pub(crate) fn open(&self) -> Vec<&'static str> {
        let anywhere = self.allow_path.is_empty().then_some(
            "no --allow-path rule: every namespace may write every path that the operator's token may write; \
             --allow-path='*=secret/data/{namespace}/*' gives each namespace a folder of its own",
        );
        let adopts = (self.existing == ExistingPolicy::Adopt).then_some(
            "--existing=adopt: a path that holds content without a mark of ownership is taken over and overwritten; --existing=refuse leaves it alone",
        );
        anywhere.into_iter().chain(adopts).collect()
    }
}

impl fmt::Display for PushOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Taken apart so that a new setting is not forgotten here.
        let Self {
            cluster_name: _,
            instance,
            namespace,
            kinds,
            allow_path,
            default_deletion_policy,
            deletion_grace,
            allow_deletes,
            deletion_share,
            existing,
            binary,
            finalizer_deadline,
            terminating_namespace_deadline,
            workers,
        } = self;
        let instance = instance.as_deref().unwrap_or("of the cluster");
        write!(formatter, "cluster-name={} instance={instance} ", self.cluster().unwrap_or("none"))?;
        write!(formatter, "namespace={} ", namespace.as_deref().unwrap_or("all"))?;
        write!(formatter, "kinds={} ", list(kinds.iter().map(|kind| kind.plural()), "none"))?;
        write!(formatter, "allow-path={} ", list(allow_path, "everything"))?;
        write!(formatter, "default-deletion-policy={default_deletion_policy} existing={existing} binary={binary} ")?;
        write!(formatter, "deletion-grace={}s ", deletion_grace.as_secs_f64())?;
        write!(formatter, "allow-deletes={allow_deletes} deletion-share={deletion_share} ")?;
        write!(formatter, "finalizer-deadline={}s ", finalizer_deadline.as_secs_f64())?;
        let deadline = terminating_namespace_deadline.as_secs_f64();
        write!(formatter, "terminating-namespace-deadline={deadline}s workers={workers}")
    }
}

fn list<T: fmt::Display>(items: impl IntoIterator<Item = T>, none: &str) -> String {
    let items: Vec<_> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { none.to_owned() } else { items.join(",") }
}
