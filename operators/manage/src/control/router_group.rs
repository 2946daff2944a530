//! The group that a `NetworkRouter` creates for its peers. No rule names it, because its name is generated.

use std::sync::Arc;

use konverge::kube::{Resource, api::ObjectMeta};
use konverge_core::allow::Pattern;

use super::short_digest;
use crate::api::v1alpha1::NetworkRouter;

/// Returns the name of the group and the setup key of a router in openZro, as the original has it.
pub(super) fn display_name(network: &str, uid: &str) -> String {
    format!("networkrouter-{network}-{}", short_digest(uid))
}

/// Returns the names of the group of the router that owns an object. Returns `None` if the owner is not among these routers: every user can write an
/// owner reference, but only the API server gives uids.
pub(crate) fn router_group(object: &ObjectMeta, routers: &[Arc<NetworkRouter>]) -> Option<Pattern> {
    let is_owner = |router: &&Arc<NetworkRouter>| {
        let NetworkRouter { metadata: router, .. } = &***router;
        router.namespace == object.namespace
            && object.owner_references.iter().flatten().any(|owner| {
                owner.kind == NetworkRouter::kind(&())
                    && router.name.as_ref() == Some(&owner.name)
                    && router.uid.as_ref() == Some(&owner.uid)
            })
    };
    let uid = routers.iter().find(is_owner)?.metadata.uid.as_deref()?;
    Some(Pattern::new(display_name("*", uid)))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;

    #[test]
    fn only_an_existing_router_of_the_namespace_opens_its_group() {
        let mut router = NetworkRouter::default();
        router.metadata.namespace = Some("shop".to_owned());
        router.metadata.name = Some("edge".to_owned());
        router.metadata.uid = Some("u".to_owned());
        let routers = [Arc::new(router)];
        let theirs = display_name("n1", "u");
        for (namespace, kind, name, uid, group, expected) in [
            ("shop", "NetworkRouter", "edge", "u", theirs.as_str(), true),
            ("shop", "NetworkRouter", "edge", "u", "prod-ops", false),
            ("shop", "NetworkRouter", "edge", "v", &display_name("n1", "v"), false),
            ("shop", "NetworkRouter", "core", "u", &theirs, false),
            ("shop", "Group", "edge", "u", &theirs, false),
            ("team", "NetworkRouter", "edge", "u", &theirs, false),
        ] {
            let (kind, name, uid) = (kind.to_owned(), name.to_owned(), uid.to_owned());
            let owner = OwnerReference { kind, name, uid, ..OwnerReference::default() };
            let object = ObjectMeta {
                namespace: Some(namespace.to_owned()),
                owner_references: Some(vec![owner.clone()]),
                ..ObjectMeta::default()
            };
            let found = router_group(&object, &routers).is_some_and(|names| names.matches(group));
            assert_eq!(found, expected, "{namespace} {owner:?} {group}");
        }
    }
}
