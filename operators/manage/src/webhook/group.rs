//! The decision about the deletion of an `OZGroup`. Pure.

use konverge::kube::{Resource, ResourceExt};

use crate::api::{
    GROUP,
    v1::{OZGroup, OZResource, OZRoutingPeer},
};

/// Returns why the group must stay: a resource or a routing peer that owns it exists and is not being deleted.
///
/// `resource` and `routing_peer` find an object of the group's namespace by its name. An object with another uid than the owner reference is not the
/// owner.
pub fn blocker<R, P>(
    group: &OZGroup,
    resource: impl Fn(&str) -> Option<R>,
    routing_peer: impl Fn(&str) -> Option<P>,
) -> Option<String>
where
    R: AsRef<OZResource>,
    P: AsRef<OZRoutingPeer>,
{
    let namespace = group.namespace().unwrap_or_default();
    let owners = group.owner_references().iter().filter(|owner| owner.api_version.starts_with(&format!("{GROUP}/")));
    for owner in owners {
        let holds = match owner.kind.as_str() {
            "OZResource" => resource(&owner.name).is_some_and(|found| is_holder(found.as_ref(), &owner.uid)),
            "OZRoutingPeer" => routing_peer(&owner.name).is_some_and(|found| is_holder(found.as_ref(), &owner.uid)),
            _ => false,
        };
        if holds {
            return Some(format!(
                "OZGroup {namespace}/{} is in use by {} {namespace}/{}; delete that, or remove the group from it, and the operator deletes the group",
                group.name_any(),
                owner.kind,
                owner.name
            ));
        }
    }
    None
}

fn is_holder<K: Resource>(object: &K, uid: &str) -> bool {
    let metadata = object.meta();
    metadata.uid.as_deref() == Some(uid) && metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_group_stays_while_an_owner_needs_it() {
        let group = |kind: &str, api_version: &str| -> OZGroup {
            serde_json::from_value(json!({
                "metadata": {
                    "name": "g", "namespace": "shop",
                    "ownerReferences": [{ "apiVersion": api_version, "kind": kind, "name": "db", "uid": "1" }],
                },
                "spec": { "name": "G" },
            }))
            .unwrap()
        };
        let metadata = |uid: &str, deleted: Option<&str>| json!({ "metadata": { "name": "db", "namespace": "shop", "uid": uid, "deletionTimestamp": deleted } });
        let now = Some("2026-01-02T03:04:05Z");
        for (kind, api_version, owner, expected) in [
            ("OZResource", "openzro.io/v1", Some(metadata("1", None)), true),
            ("OZRoutingPeer", "openzro.io/v1", Some(metadata("1", None)), true),
            ("OZResource", "openzro.io/v1", Some(metadata("1", now)), false),
            ("OZRoutingPeer", "openzro.io/v1", Some(metadata("1", now)), false),
            // An object of that name that was made later.
            ("OZResource", "openzro.io/v1", Some(metadata("2", None)), false),
            ("OZResource", "openzro.io/v1", None, false),
            ("OZResource", "example.com/v1", Some(metadata("1", None)), false),
            ("Deployment", "openzro.io/v1", Some(metadata("1", None)), false),
        ] {
            let found = |name: &str| owner.clone().filter(|_| name == "db");
            let resource =
                |name: &str| found(name).map(|owner| Arc::<OZResource>::new(serde_json::from_value(owner).unwrap()));
            let peer =
                |name: &str| found(name).map(|owner| Arc::<OZRoutingPeer>::new(serde_json::from_value(owner).unwrap()));
            let blocker = blocker(&group(kind, api_version), resource, peer);
            assert_eq!(blocker.is_some(), expected, "{kind} {api_version} {owner:?}");
            if let Some(why) = blocker {
                assert!(why.starts_with(&format!("OZGroup shop/g is in use by {kind} shop/db; delete that")), "{why}");
            }
        }
        let free = OZGroup::default();
        assert_eq!(blocker(&free, |_| None::<Arc<OZResource>>, |_| None::<Arc<OZRoutingPeer>>), None);
    }
}
