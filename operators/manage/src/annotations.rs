//! Every annotation that this job reads or writes, and the meaning of those that decide what may happen to an item on the server.

use std::collections::BTreeMap;

use konverge::remote::{Adoption, DeletionPolicy};

/// The objects that stand for items.
const ANY: &str = "any kind of openZro";
const POLICY: &str = "`OZPolicy`";
const POD: &str = "pod";
const CONFIG_MAP: &str = "the ConfigMap `openzro-operator-deletions`";
const POD_WITH_KEY: &str = "pod with `openzro.io/setup-key`";
const EXPOSED: &str = "Service with `openzro.io/expose`";

/// The effect of a value that has none.
const ABSENT: &str = "counts as absent";
const INVALID: &str = "Reason `InvalidAnnotation`";

konverge_jobs::annotations! {
    /// `true`: adopt an item of the name. `false`: never. Any other value: adopt the item with this id.
    ADOPT = "konverge.dev/adopt" on ANY;
    /// `orphan`: when the object is deleted, the item stays and the object goes at once. `delete`: the item is deleted even if it was adopted. It counts
    /// in the operator's own namespace, in a namespace with an account of its own, and on an `OZPolicy`.
    DELETION = "konverge.dev/deletion" on ANY, otherwise: ABSENT;
    /// The namespace whose account the policy is for.
    ACCOUNT = "konverge.dev/account" on POLICY, otherwise: "Reason `NoAccount`";
    /// `true`: the object is left alone, except for its deletion.
    PAUSED = (konverge::PAUSED) on ANY, otherwise: ABSENT;
    /// Each new value makes the operator look at the object at once.
    RECONCILE_AT = (konverge::RECONCILE_AT) on ANY;
    /// Written by the operator: why it has stopped deletions in openZro.
    DELETIONS_STOPPED = "konverge.dev/deletions-stopped" on CONFIG_MAP;
    /// Any value: the deletions that wait are approved. `kubectl konverge approve` writes it, and the operator removes it.
    APPROVE_DELETIONS = "konverge.dev/approve-deletions" on CONFIG_MAP;
    /// Written by the operator: its record of the item in openZro.
    RECORD = (konverge::RECORD) on ANY;
    /// Written by the operator: the ids of networks that the object had before, separated by commas. Resources that name one of them follow to the
    /// current network.
    FORMER_NETWORKS = "konverge.dev/former-networks" on "`OZRoutingPeer`";
    /// Written by the operator: the namespace and name of the `OZResource` for which it generated the policy.
    GENERATED_BY = "openzro.io/generated-by" on POLICY;
    /// The `OZSetupKey` with which a sidecar of the pod joins openZro.
    SETUP_KEY = "openzro.io/setup-key" on POD, otherwise: "the pod is refused";
    /// `true`: the sidecar is an init container that keeps running.
    INIT_SIDECAR = "openzro.io/init-sidecar" on POD_WITH_KEY, otherwise: ABSENT;
    /// Further DNS labels of the peer, separated by commas.
    EXTRA_DNS_LABELS = "openzro.io/extra-dns-labels" on POD_WITH_KEY;
    /// Written by the operator: the `SidecarProfile` from which the pod has its sidecar.
    SIDECAR_PROFILE = "openzro.io/sidecar-profile" on POD;
    /// Exposes the Service, unless the value is `false`, `no`, `off` or `0`.
    EXPOSE = "openzro.io/expose" on "Service";
    /// Groups of the resource, separated by commas.
    EXPOSED_GROUPS = "openzro.io/groups" on EXPOSED, otherwise: INVALID;
    /// The display name of the resource.
    RESOURCE_NAME = "openzro.io/resource-name" on EXPOSED, otherwise: INVALID;
    /// Names of `OZPolicy` objects, separated by commas.
    POLICIES = "openzro.io/policy" on EXPOSED, otherwise: INVALID;
    /// Ports of the Service that the policies allow, separated by commas.
    POLICY_PORTS = "openzro.io/policy-ports" on EXPOSED, otherwise: INVALID;
    /// `tcp` or `udp`; both if absent.
    POLICY_PROTOCOL = "openzro.io/policy-protocol" on EXPOSED, otherwise: INVALID;
    /// Source groups of generated policies, separated by commas.
    POLICY_SOURCE_GROUPS = "openzro.io/policy-source-groups" on EXPOSED, otherwise: INVALID;
    /// Display names of generated policies, as `policy:Display name`, separated by commas.
    POLICY_NAMES = "openzro.io/policy-name" on EXPOSED, otherwise: INVALID;
}

/// The value of [`DELETION`] that leaves the item on the server.
pub const ORPHAN: &str = "orphan";

/// Returns the adoption that the annotations ask for, or `unless_said`.
pub fn adoption(annotations: &BTreeMap<String, String>, unless_said: Adoption) -> Adoption {
    match annotations.get(ADOPT).map(String::as_str) {
        None | Some("") => unless_said,
        Some("true") => Adoption::ByName,
        Some("false") => Adoption::Never,
        Some(id) => Adoption::ById(id.to_owned()),
    }
}

/// Returns the fate of the item that the annotations ask for. `deletes_adopted` is the behaviour of the original, which a flag restores.
/// `may_delete_adopted` is whether the platform lets the object ask for the deletion of an adopted item.
pub fn deletion(
    annotations: &BTreeMap<String, String>,
    deletes_adopted: bool,
    may_delete_adopted: bool,
) -> DeletionPolicy {
    match annotations.get(DELETION).map(String::as_str) {
        Some(ORPHAN) => DeletionPolicy::Orphan,
        Some("delete") if may_delete_adopted => DeletionPolicy::DeleteAdopted,
        _ if deletes_adopted => DeletionPolicy::DeleteAdopted,
        _ => DeletionPolicy::Delete,
    }
}

/// The annotations that an object gives to those that it makes: the fate of its item is that of theirs.
pub fn inherited(annotations: &BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    annotations.get(DELETION).map(|fate| BTreeMap::from([(DELETION.to_owned(), fate.clone())]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotated(name: &str, value: &str) -> BTreeMap<String, String> {
        [(name.to_owned(), value.to_owned())].into()
    }

    #[test]
    fn an_annotation_decides_about_adoption_before_the_default() {
        for (value, expected) in [
            ("true", Adoption::ByName),
            ("false", Adoption::Never),
            ("cq3v2", Adoption::ById("cq3v2".to_owned())),
            ("", Adoption::ByName),
        ] {
            assert_eq!(adoption(&annotated(ADOPT, value), Adoption::ByName), expected, "{value}");
        }
        assert_eq!(adoption(&BTreeMap::new(), Adoption::Never), Adoption::Never);
    }

    #[test]
    fn an_adopted_item_is_deleted_only_where_the_platform_lets_the_object_ask_for_it_or_the_flag_says_so() {
        for (value, deletes_adopted, may_delete_adopted, expected) in [
            ("", false, true, DeletionPolicy::Delete),
            ("", true, false, DeletionPolicy::DeleteAdopted),
            ("delete", false, true, DeletionPolicy::DeleteAdopted),
            ("delete", false, false, DeletionPolicy::Delete),
            ("orphan", true, true, DeletionPolicy::Orphan),
            ("nonsense", false, true, DeletionPolicy::Delete),
        ] {
            let found = deletion(&annotated(DELETION, value), deletes_adopted, may_delete_adopted);
            assert_eq!(found, expected, "{value}");
        }
    }
}
