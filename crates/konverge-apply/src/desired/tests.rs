use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::ObjectMeta;
use proptest::prelude::*;
use serde_json::json;

use super::{recognition::labelled_owner, *};
use crate::owners::OWNER_UID;

fn owner(annotations: &[(&str, &str)], terminating: bool) -> Owner {
    let object: ConfigMap = serde_json::from_value(json!({"metadata": {
        "namespace": "shop", "name": "owner", "uid": "u-1",
        "annotations": annotations.iter().copied().collect::<BTreeMap<_, _>>(),
        "deletionTimestamp": terminating.then_some("2026-01-01T00:00:00Z"),
    }}))
    .expect("an object");
    Owner::of(&object).expect("an owner")
}

fn config_map(namespace: Option<&str>, name: &str) -> ConfigMap {
    let (namespace, name) = (namespace.map(ToOwned::to_owned), Some(name.to_owned()));
    ConfigMap { metadata: ObjectMeta { namespace, name, ..ObjectMeta::default() }, ..ConfigMap::default() }
}

fn observed(name: &str, owner: Option<&str>, terminating: bool) -> Observed {
    let target = Target::named::<ConfigMap>(&(), Some("shop"), name.to_owned());
    let labels = owner.map(|owner| json!({OWNER_UID: owner}));
    let deletion = terminating.then_some("2026-01-01T00:00:00Z");
    let state = json!({"metadata": {"name": name, "uid": name, "labels": labels, "deletionTimestamp": deletion}});
    Observed { target, state }
}

fn pruned(owner: &Owner, seen: &[Observed], wanted: &[&str], budget: DeleteBudget) -> Result<Vec<String>, TooMany> {
    let key = |name: &&str| Target::named::<ConfigMap>(&(), Some("shop"), (*name).to_owned()).key();
    let recognizer = Recognizer { owner, key: None, manager: "ours" };
    let pruned = children_to_prune(&recognizer, seen.iter(), &wanted.iter().map(key).collect(), budget)?;
    Ok(pruned.unwanted.into_iter().map(|observed| observed.target.object.name.clone()).collect())
}

#[test]
fn only_unwanted_children_of_this_owner_go() {
    let seen = [
        observed("wanted", Some("u-1"), false),
        observed("unwanted", Some("u-1"), false),
        observed("going", Some("u-1"), true),
        observed("foreign", Some("u-2"), false),
        observed("nobodys", None, false),
    ];
    let pruned = pruned(&owner(&[], false), &seen, &["wanted"], DeleteBudget::default()).expect("within the budget");
    assert_eq!(pruned, ["unwanted"]);
}

fn owner_key(byte: u8) -> OwnerKey {
    OwnerKey::new(konverge_core::digest::DigestKey::new([byte; 32]))
}

/// An observed object with these members in its metadata.
fn observed_with(name: &str, more: &Value) -> Observed {
    let mut observed = observed(name, Some("u-1"), false);
    for (member, value) in more.as_object().expect("a map") {
        observed.state["metadata"][member] = value.clone();
    }
    observed
}

#[test]
fn a_label_that_anyone_may_write_proves_nothing() {
    let (owner, key) = (owner(&[], false), owner_key(1));
    let recognizer = Recognizer { owner: &owner, key: Some(&key), manager: "ours" };
    let target = |name: &str| observed(name, None, false).target;
    let proof =
        |key: &OwnerKey, uid: &str, name: &str| json!({"annotations": {OWNER_PROOF: key.proof(uid, &target(name))}});
    let applied = |manager: &str, operation: &str| json!({"managedFields": [{"manager": manager, "operation": operation, "fieldsV1": {"f:metadata": {"f:labels": {format!("f:{OWNER_UID}"): {}}}}}]});
    let table = [
        (json!({}), Recognition::Unproven),
        (proof(&key, "u-1", "a"), Recognition::Proven),
        // Copied from another child, of another owner, or made with another key.
        (proof(&key, "u-1", "b"), Recognition::Unproven),
        (proof(&key, "u-2", "a"), Recognition::Unproven),
        (proof(&owner_key(2), "u-1", "a"), Recognition::Unproven),
        (applied("ours", "Apply"), Recognition::Earlier),
        (applied("ours", "Update"), Recognition::Unproven),
        (applied("theirs", "Apply"), Recognition::Unproven),
        (json!({"labels": {OWNER_UID: "u-2"}}), Recognition::OfAnother("u-2".to_owned())),
        (json!({"labels": {}}), Recognition::Nobodys),
        (json!({"labels": {}, "ownerReferences": [{"uid": "u-1", "controller": true}]}), Recognition::Unproven),
        (json!({"labels": {}, "ownerReferences": [{"uid": "u-1"}]}), Recognition::Nobodys),
    ];
    for (more, expected) in table {
        let observed = observed_with("a", &more);
        assert_eq!(recognizer.recognize(&observed.target, &observed.state), expected, "{more}");
    }
    // The proof outlives a label that was taken away.
    let mut bare = observed_with("a", &proof(&key, "u-1", "a"));
    bare.state["metadata"]["labels"] = json!({});
    assert_eq!(recognizer.recognize(&bare.target, &bare.state), Recognition::Proven);
}

#[test]
fn forged_children_are_neither_pruned_nor_counted() {
    let (owner, key) = (owner(&[], false), owner_key(1));
    let recognizer = Recognizer { owner: &owner, key: Some(&key), manager: "ours" };
    let mut seen: Vec<_> = (0..25).map(|number| observed(&format!("forged-{number}"), Some("u-1"), false)).collect();
    let target = observed("child", None, false).target;
    seen.push(observed_with("child", &json!({"annotations": {OWNER_PROOF: key.proof("u-1", &target)}})));
    let tight = DeleteBudget { at_most: 1, percent: 0 };
    let pruning = children_to_prune(&recognizer, seen.iter(), &BTreeSet::new(), tight).expect("one child");
    let names =
        |observed: Vec<&Observed>| observed.iter().map(|one| one.target.object.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(pruning.unwanted), ["child"]);
    assert_eq!(pruning.unproven.len(), 25);
    // Without a key, the label is all there is.
    let trusting = Recognizer { key: None, ..recognizer };
    let error = children_to_prune(&trusting, seen.iter(), &BTreeSet::new(), tight).err().expect("too many");
    assert_eq!(error, TooMany { count: 26, existing: 26, allowed: 1 });
}

#[test]
fn beyond_the_budget_nothing_goes_unless_it_is_meant() {
    let seen: Vec<_> = (0..5).map(|number| observed(&number.to_string(), Some("u-1"), false)).collect();
    let tight = DeleteBudget { at_most: 2, percent: 50 };
    let error = pruned(&owner(&[], false), &seen, &["0", "1"], tight).expect_err("three of five");
    assert_eq!(error, TooMany { count: 3, existing: 5, allowed: 2 });
    assert_eq!(pruned(&owner(&[], false), &seen, &["0", "1", "2"], tight).expect("two").len(), 2);
    let meant = owner(&[(ALLOW_DELETES, "3")], false);
    assert_eq!(pruned(&meant, &seen, &["0", "1"], tight).expect("allowed").len(), 3);
    assert!(pruned(&meant, &seen, &["0"], tight).is_err(), "four were not meant");
    assert!(pruned(&owner(&[(ALLOW_DELETES, "all")], false), &seen, &[], tight).is_err(), "not a number");
    assert_eq!(pruned(&owner(&[], true), &seen, &[], tight).expect("the owner goes").len(), 5);
}

#[test]
fn children_are_adopted_when_they_are_added() {
    let set = DesiredSet::new(owner(&[], false))
        .add(config_map(None, "here"))
        .add(config_map(Some("till"), "there"))
        .add(Namespace { metadata: config_map(None, "top").metadata, ..Namespace::default() });
    assert!(set.faults.is_empty());
    let metadata = |number: usize| &set.children[number].wanted["metadata"];
    assert_eq!((&metadata(0)["namespace"], &metadata(0)["labels"]), (&json!("shop"), &json!({OWNER_UID: "u-1"})));
    assert_eq!(metadata(0)["ownerReferences"][0]["uid"], "u-1");
    for number in [1, 2] {
        assert_eq!(metadata(number).get("ownerReferences"), None);
        assert_eq!(metadata(number)["labels"]["konverge.dev/owner-name"], "owner");
        assert_eq!(metadata(number)["labels"]["konverge.dev/owner-namespace"], "shop");
    }
}

#[test]
fn one_name_has_one_content() {
    let other = ConfigMap { data: Some(BTreeMap::new()), ..config_map(None, "a") };
    let set = DesiredSet::new(owner(&[], false)).add(config_map(None, "a")).add(config_map(Some("shop"), "a"));
    assert!(set.faults.is_empty() && set.children.len() == 1, "the same twice is the same");
    let set = set.add(other).add(config_map(None, ""));
    let reasons: Vec<_> = set.faults.iter().map(Classify::reason).collect();
    assert_eq!(reasons, ["WantedTwice", "MissingField"]);
}

#[test]
fn the_class_of_many_failures_is_the_most_hopeful() {
    let object = || Box::new(Target::named::<Namespace>(&(), None, "a".to_owned()).object);
    let permanent = || ApplyError::WantedTwice { object: object() };
    let later = |seconds| ApplyError::Refused {
        object: object(),
        code: 429,
        status_reason: String::new(),
        message: String::new(),
        retry_after: Some(std::time::Duration::from_secs(seconds)),
    };
    let error = |failed| SetError::Children { failed, done: Box::default() };
    let class = |failed| error(failed).class();
    assert_eq!(class(vec![permanent(), permanent()]), ErrorClass::Permanent);
    assert_eq!(class(vec![permanent(), later(7), later(5)]), ErrorClass::After(std::time::Duration::from_secs(5)));
    assert_eq!(class(vec![later(7), ApplyError::Gone { object: object() }]), ErrorClass::Transient);
    let unreadable = serde_json::from_str::<Value>("?").expect_err("no JSON");
    let text = error(vec![ApplyError::Answer { object: object(), source: unreadable }, permanent()]).to_string();
    assert!(text.contains("Namespace a: expected value at line 1") && text.ends_with("(and 1 more failed)"), "{text}");
}

proptest! {
    #[test]
    fn labels_can_hold_every_manager(manager in "\\PC{1,128}") {
        let value = managed_by(&manager);
        prop_assert!(value.len() <= 63);
        prop_assert!(value.chars().all(|character| character.is_ascii_alphanumeric() || "-_.".contains(character)));
        prop_assert!(value.is_empty() || value.ends_with(|last: char| last.is_ascii_alphanumeric()));
    }

    #[test]
    fn pruning_is_all_or_nothing_and_never_touches_others(
        seen in proptest::collection::vec((0..3_u8, any::<bool>(), any::<bool>()), 0..20),
        at_most in 0..10_usize,
    ) {
        let seen: Vec<_> = seen.into_iter().enumerate().map(|(number, (owner, wanted, terminating))| {
            (observed(&number.to_string(), ["u-1", "u-2", ""].get(usize::from(owner)).copied().filter(|uid| !uid.is_empty()), terminating), wanted)
        }).collect();
        let wanted = seen.iter().filter(|(_, wanted)| *wanted).map(|(observed, _)| observed.target.key()).collect();
        let due: Vec<_> = seen.iter()
            .filter(|(observed, wanted)| !wanted && labelled_owner(&observed.state["metadata"]) == Some("u-1") && observed.metadata("deletionTimestamp").is_none())
            .collect();
        let owner = owner(&[], false);
        let recognizer = Recognizer { owner: &owner, key: None, manager: "ours" };
        match children_to_prune(&recognizer, seen.iter().map(|(observed, _)| observed), &wanted, DeleteBudget { at_most, percent: 0 }) {
            Ok(pruning) => {
                let pruned = pruning.unwanted;
                prop_assert!(pruned.len() <= at_most);
                prop_assert_eq!(pruned.len(), due.len());
                prop_assert!(pruned.iter().all(|observed| labelled_owner(&observed.state["metadata"]) == Some("u-1")));
            }
            Err(_) => prop_assert!(due.len() > at_most),
        }
    }
}
