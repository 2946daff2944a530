use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace},
    api::rbac::v1::ClusterRole,
};
use proptest::prelude::*;

use super::*;

fn metadata(namespace: Option<&str>, name: &str) -> ObjectMeta {
    ObjectMeta {
        namespace: namespace.map(ToOwned::to_owned),
        name: Some(name.to_owned()),
        uid: Some("u-1".to_owned()),
        ..ObjectMeta::default()
    }
}

fn namespaced(name: &str) -> Owner {
    Owner::of(&ConfigMap { metadata: metadata(Some("shop"), name), ..ConfigMap::default() }).expect("an owner")
}

fn cluster_scoped(name: &str) -> Owner {
    Owner::of(&ClusterRole { metadata: metadata(None, name), ..ClusterRole::default() }).expect("an owner")
}

#[test]
fn references_name_the_owner() {
    let object = ConfigMap { metadata: metadata(Some("shop"), "app"), ..ConfigMap::default() };
    let plain = owner_ref(&object).expect("a reference");
    assert_eq!((&*plain.api_version, &*plain.kind, &*plain.name, &*plain.uid), ("v1", "ConfigMap", "app", "u-1"));
    assert_eq!((plain.controller, plain.block_owner_deletion), (Some(false), Some(false)));
    let controller = controller_ref(&object).expect("a reference");
    assert_eq!((controller.controller, controller.block_owner_deletion), (Some(true), Some(false)));
    let mut unread = object;
    unread.metadata.uid = None;
    assert!(owner_ref(&unread).expect_err("no uid").to_string().contains("metadata.uid"));
}

#[test]
fn references_do_not_cross_namespaces() {
    let table = [
        (namespaced("app"), Some("shop"), true),
        (namespaced("app"), Some("till"), false),
        (namespaced("app"), None, false),
        (cluster_scoped("app"), Some("shop"), true),
        (cluster_scoped("app"), None, true),
    ];
    for (owner, child, allowed) in table {
        assert_eq!(owner.may_be_referred_to_from(child), allowed, "{owner:?} {child:?}");
        let mut adopted = metadata(child, "child");
        owner.adopt(&mut adopted);
        assert_eq!(adopted.owner_references.is_some(), allowed);
        assert_eq!(adopted.labels.expect("labels").get(OWNER_UID).map(String::as_str), Some("u-1"));
    }
}

#[test]
fn a_reference_of_another_kind_is_not_the_owner() {
    let mut child = metadata(Some("shop"), "child");
    namespaced("app").adopt(&mut child);
    assert!(owner_of::<ConfigMap>(&child, &()).is_some());
    assert!(owner_of::<Namespace>(&child, &()).is_none());
    assert!(owner_of::<ConfigMap>(&metadata(Some("shop"), "orphan"), &()).is_none());
    let mut empty = metadata(Some("shop"), "child");
    empty.labels = Some(BTreeMap::from([(OWNER_NAME.to_owned(), String::new())]));
    assert!(labelled_owner::<ConfigMap>(&empty, &()).is_none());
}

#[test]
fn names_that_are_no_label_values_go_into_an_annotation() {
    let long = "a".repeat(64);
    for name in [&*long, "system:admin"] {
        let owner = cluster_scoped(name);
        assert!(is_label_value(&owner.labels()[OWNER_NAME]), "{name}");
        assert_eq!(owner.annotations()[OWNER_NAME], name);
    }
    assert!(cluster_scoped("plain").annotations().is_empty());
    assert_ne!(digest(&long), digest(&"a".repeat(65)));
}

proptest! {
    #[test]
    fn every_child_leads_back_to_its_owner(name in "[a-z0-9]([a-z0-9.:-]{0,250}[a-z0-9])?", child in prop_oneof![Just("shop"), Just("till")]) {
        let mut adopted = metadata(Some(child), "child");
        namespaced(&name).adopt(&mut adopted);
        prop_assert_eq!(owner_of::<ConfigMap>(&adopted, &()), Some(ObjectRef::new(&name).within("shop")));
        let mut adopted = metadata(Some(child), "child");
        cluster_scoped(&name).adopt(&mut adopted);
        prop_assert_eq!(owner_of::<ClusterRole>(&adopted, &()), Some(ObjectRef::new(&name)));
    }
}
