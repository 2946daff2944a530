//! The decisions of the platform for all objects.

use konverge_apply::ledger::DeletionDeadline;
use konverge_vault::{
    Location,
    boundaries::{Place, Rule, is_allowed},
};

use crate::{
    object::ObjectRef,
    spec::{BinaryPolicy, DeletionPolicy, ExistingPolicy},
};

/// The decisions of the platform, from the flags of the program.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The name of the cluster. If there is one, each path begins with `clusters/NAME/`.
    pub cluster: Option<String>,
    /// Which namespaces may write where. Without a rule, each may write everywhere.
    pub rules: Vec<Rule>,
    /// How the operator deletes paths unless the object says.
    pub deletion: DeletionPolicy,
    /// How the operator treats existing content without an owner, unless the object says.
    pub existing: ExistingPolicy,
    /// How the operator writes values that are not UTF-8, unless the object says.
    pub binary: BinaryPolicy,
    /// How long an object that is being deleted waits for Vault.
    pub deadline: DeletionDeadline,
}

impl Policy {
    /// The prefix of every path.
    pub fn prefix(&self) -> String {
        cluster_prefix(self.cluster.as_deref())
    }

    /// Returns what the settings leave open to everybody who may annotate an object, as the original does.
    pub fn open(&self) -> Vec<&'static str> {
        let anywhere = self.rules.is_empty().then_some(
            "no --allow-path rule: every namespace may write every path that the operator's token may write; \
             --allow-path='*=secret/data/{namespace}/*' gives each namespace a folder of its own",
        );
        let adopts = (self.existing == ExistingPolicy::Adopt).then_some(
            "--existing=adopt: a path that holds content without a mark of ownership is taken over and overwritten; --existing=refuse leaves it alone",
        );
        anywhere.into_iter().chain(adopts).collect()
    }

    /// Whether the rules let the object write the location.
    pub fn allows(&self, key: &ObjectRef, location: &Location) -> bool {
        let place = Place { namespace: &key.namespace, name: &key.name, cluster: self.cluster.as_deref() };
        is_allowed(&self.rules, &place, location)
    }
}

/// The prefix of every path in a cluster with this name.
pub fn cluster_prefix(cluster: Option<&str>) -> String {
    cluster.map(|cluster| format!("clusters/{cluster}/")).unwrap_or_default()
}
