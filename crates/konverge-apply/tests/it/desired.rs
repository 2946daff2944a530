//! Children of an owner: written, pruned, left alone.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, PersistentVolumeClaim},
};
use konverge_apply::{
    Applier, ApplyError, ApplyOutcome, ChildOptions, DeleteBudget, DesiredSet, Owner, SetError, SetReport,
    desired::APPLY_ORDER,
    owners::{OWNER_UID, OwnerKey, owner_of},
};
use konverge_core::error::{Classify, ErrorClass};
use kube::{
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::reflector::ObjectRef,
};
use serde_json::json;

use super::status::{Sample, sample, samples};
use super::*;

fn config_map(namespace: Option<&str>, name: &str, data: &[(&str, &str)]) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            namespace: namespace.map(ToOwned::to_owned),
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()),
        ..ConfigMap::default()
    }
}

struct Stage {
    client: Client,
    namespace: String,
    children: Api<ConfigMap>,
    applier: Applier,
}

async fn stage() -> Stage {
    let (client, namespace) = namespace().await;
    let children = Api::namespaced(client.clone(), &namespace);
    Stage { applier: Applier::new(client.clone(), "ours"), client, namespace, children }
}

impl Stage {
    async fn owner(&self, name: &str) -> Sample {
        let api = samples(&self.client, &self.namespace).await;
        api.create(&PostParams::default(), &sample(&self.namespace, name)).await.unwrap()
    }

    /// The children, as an index by owner would return them.
    async fn seen(&self, api: &Api<ConfigMap>, owner: &Sample) -> Vec<ConfigMap> {
        let selector = format!("{OWNER_UID}={}", owner.uid().unwrap());
        api.list(&ListParams::default().labels(&selector)).await.unwrap().items
    }

    async fn apply(&self, owner: &Sample, children: Vec<ConfigMap>) -> Result<SetReport, SetError> {
        let seen = self.seen(&self.children, owner).await;
        let set = DesiredSet::new(Owner::of(owner).unwrap()).observe(&seen);
        children.into_iter().fold(set, DesiredSet::add).apply(&self.applier).await
    }

    async fn names(&self) -> Vec<String> {
        let objects = self.children.list(&ListParams::default()).await.unwrap().items;
        objects.iter().map(ResourceExt::name_any).filter(|name| name != "kube-root-ca.crt").collect()
    }
}

#[tokio::test]
async fn children_are_made_kept_in_sync_and_pruned() {
    let stage = stage().await;
    let owner = stage.owner("owner").await;
    let child = |name: &str| config_map(None, name, &[("a", "1")]);
    let made = stage.apply(&owner, vec![child("one"), child("two")]).await.unwrap();
    assert!(made.is_change() && made.children.iter().all(|child| child.outcome == ApplyOutcome::Created));
    let one = stage.children.get("one").await.unwrap();
    assert_eq!(one.owner_references()[0].uid, owner.uid().unwrap());
    assert_eq!(one.labels()["app.kubernetes.io/managed-by"], "ours");
    assert_eq!(serde_json::to_value(&one).unwrap(), made.children[0].state);

    let again = stage.apply(&owner, vec![child("one"), child("two")]).await.unwrap();
    assert!(!again.is_change());
    let fewer = stage.apply(&owner, vec![child("two")]).await.unwrap();
    assert_eq!(
        fewer.pruned.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [format!("ConfigMap {}/one", stage.namespace)]
    );
    assert_eq!(stage.names().await, ["two"]);
    assert_eq!(writes_in(&stage.namespace, 4).await, 4, "the owner, two children, one deletion");
}

#[tokio::test]
async fn row_06_gc_never_deletes_in_another_namespace() {
    let stage = stage().await;
    let elsewhere = control_plane().await.namespace("elsewhere").await.unwrap();
    let there: Api<ConfigMap> = Api::namespaced(stage.client.clone(), &elsewhere);
    let owner = stage.owner("owner").await;
    // The same name in both namespaces, and only the one there is a child that is not wanted any more.
    let bystander = stage.children.create(&PostParams::default(), &config_map(None, "x", &[])).await.unwrap();
    let set = || DesiredSet::new(Owner::of(&owner).unwrap());
    let made = set().add(config_map(Some(&elsewhere), "x", &[])).apply(&stage.applier).await.unwrap();
    assert!(made.is_change());
    let everything: Api<ConfigMap> = Api::all(stage.client.clone());
    let seen = stage.seen(&everything, &owner).await;
    assert_eq!(seen.len(), 1);
    let gone = set().observe(&seen).apply(&stage.applier).await.unwrap();
    assert_eq!(gone.pruned[0].to_string(), format!("ConfigMap {elsewhere}/x"));
    assert!(there.get_opt("x").await.unwrap().is_none());
    assert_eq!(stage.children.get("x").await.unwrap(), bystander);
}

#[tokio::test]
async fn row_07_pruning_leaves_the_finalizers_of_others() {
    let stage = stage().await;
    let owner = stage.owner("owner").await;
    let made = stage.apply(&owner, vec![config_map(None, "held", &[])]).await.unwrap();
    assert!(made.is_change());
    let finalizer = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    stage.children.patch("held", &PatchParams::default(), &Patch::Merge(&finalizer)).await.unwrap();
    let pruned = stage.apply(&owner, vec![]).await.unwrap();
    assert_eq!(pruned.pruned.len(), 1);
    let held = stage.children.get("held").await.unwrap();
    assert!(held.metadata.deletion_timestamp.is_some());
    assert_eq!(held.finalizers(), ["example.com/hold"]);
    let again = stage.apply(&owner, vec![]).await.unwrap();
    assert!(!again.is_change(), "it is not deleted twice");
}

#[tokio::test]
async fn row_09_neighbours_keep_their_children_and_a_moved_child_leaves_nothing_behind() {
    let stage = stage().await;
    let (first, second) = (stage.owner("first").await, stage.owner("second").await);
    for round in 0..3 {
        for (owner, child) in [(&first, "of-first"), (&second, "of-second")] {
            let report = stage.apply(owner, vec![config_map(None, child, &[])]).await.unwrap();
            assert_eq!(report.is_change(), round == 0, "{child} in round {round}");
        }
    }
    assert_eq!(stage.names().await, ["of-first", "of-second"]);

    // The child moves into another namespace.
    let elsewhere = control_plane().await.namespace("elsewhere").await.unwrap();
    let seen = stage.seen(&Api::all(stage.client.clone()), &first).await;
    let set = DesiredSet::new(Owner::of(&first).unwrap()).observe(&seen);
    let moved = set.add(config_map(Some(&elsewhere), "of-first", &[])).apply(&stage.applier).await.unwrap();
    assert_eq!(moved.pruned.len(), 1);
    assert_eq!(stage.names().await, ["of-second"]);

    // Two owners want the same name.
    let seen = stage.seen(&stage.children, &second).await;
    let set = DesiredSet::new(Owner::of(&first).unwrap()).observe(&seen);
    let error =
        set.add(config_map(None, "of-second", &[("a", "mine")])).apply(&stage.applier).await.expect_err("taken");
    assert_eq!(error.reason(), "OwnedByAnother", "{error}");
    assert!(stage.children.get("of-second").await.unwrap().data.is_none());
}

#[tokio::test]
async fn row_10_a_child_in_another_namespace_leads_back_to_its_owner() {
    let stage = stage().await;
    let elsewhere = control_plane().await.namespace("elsewhere").await.unwrap();
    let there: Api<ConfigMap> = Api::namespaced(stage.client.clone(), &elsewhere);
    for name in ["owner", &"long".repeat(20)] {
        let owner = stage.owner(name).await;
        let set = DesiredSet::new(Owner::of(&owner).unwrap()).add(config_map(Some(&elsewhere), "child", &[("a", "1")]));
        assert!(set.apply(&stage.applier).await.unwrap().is_change());
        let child = there.get("child").await.unwrap();
        assert!(child.owner_references().is_empty());
        let found: ObjectRef<Sample> = owner_of(&child.metadata, &()).unwrap();
        assert_eq!(found, ObjectRef::from_obj(&owner));
        // Drift there is mended.
        let drift = json!({"data": {"a": "2"}});
        there.patch("child", &PatchParams::default(), &Patch::Merge(&drift)).await.unwrap();
        let seen = stage.seen(&there, &owner).await;
        let set = DesiredSet::new(Owner::of(&owner).unwrap()).observe(&seen);
        let mended = set.add(config_map(Some(&elsewhere), "child", &[("a", "1")])).apply(&stage.applier).await.unwrap();
        assert_eq!(mended.children[0].outcome, ApplyOutcome::Changed);
        there.delete("child", &DeleteParams::default()).await.unwrap();
    }
}

#[tokio::test]
async fn what_others_made_is_not_taken_over_in_silence() {
    let stage = stage().await;
    let owner = stage.owner("owner").await;
    let by_hand = PostParams { field_manager: Some("kubectl".to_owned()), ..PostParams::default() };
    let theirs = stage.children.create(&by_hand, &config_map(None, "app", &[("a", "theirs")])).await.unwrap();
    let error = stage.apply(&owner, vec![config_map(None, "app", &[("a", "ours")])]).await.expect_err("a conflict");
    let SetError::Children { failed, .. } = &error else { panic!("{error}") };
    assert!(matches!(failed[0], ApplyError::Conflict { .. }) && error.to_string().contains("kubectl"), "{error}");
    assert_eq!(stage.children.get("app").await.unwrap(), theirs);
    // Where nobody disagrees, it becomes a child.
    let joined = stage.apply(&owner, vec![config_map(None, "app", &[("a", "theirs"), ("b", "ours")])]).await.unwrap();
    assert!(joined.is_change());
}

#[tokio::test]
async fn one_bad_child_stops_no_other_and_nothing_is_pruned() {
    let stage = stage().await;
    let owner = stage.owner("owner").await;
    assert!(stage.apply(&owner, vec![config_map(None, "old", &[])]).await.unwrap().is_change());
    let children = vec![config_map(None, "Bad Name", &[]), config_map(None, "new", &[])];
    let error = stage.apply(&owner, children).await.expect_err("a bad name");
    assert!(error.to_string().contains("Bad Name"), "{error}");
    assert_eq!(error.done().children.len(), 1);
    assert_eq!(stage.names().await, ["new", "old"]);
    let repaired = stage.apply(&owner, vec![config_map(None, "new", &[])]).await.unwrap();
    assert_eq!(repaired.pruned.len(), 1);
}

#[tokio::test]
async fn an_object_that_changed_since_it_was_seen_is_not_pruned() {
    let stage = stage().await;
    let owner = stage.owner("owner").await;
    assert!(stage.apply(&owner, vec![config_map(None, "old", &[])]).await.unwrap().is_change());
    let seen = stage.seen(&stage.children, &owner).await;
    let change = json!({"metadata": {"labels": {OWNER_UID: "another"}}});
    stage.children.patch("old", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    let set = DesiredSet::new(Owner::of(&owner).unwrap()).observe(&seen);
    let error = set.apply(&stage.applier).await.expect_err("out of date");
    assert_eq!(error.reason(), "Conflict", "{error}");
    assert_eq!(stage.names().await, ["old"]);
}

#[tokio::test]
async fn beyond_the_budget_nothing_is_deleted_until_it_is_allowed() {
    let stage = stage().await;
    let owner = stage.owner("owner").await;
    let children: Vec<_> = (0..4).map(|number| config_map(None, &format!("c{number}"), &[])).collect();
    assert!(stage.apply(&owner, children.clone()).await.unwrap().is_change());
    let tight = DeleteBudget { at_most: 1, percent: 50 };
    let prune = async |owner: &Sample| {
        let seen = stage.seen(&stage.children, owner).await;
        let set = DesiredSet::new(Owner::of(owner).unwrap()).budget(tight).observe(&seen);
        set.add(config_map(None, "c0", &[("applied", "yes")])).apply(&stage.applier).await
    };
    let error = prune(&owner).await.expect_err("three of four");
    let text = error.to_string();
    assert!(text.contains(&format!("3 of the 4 children of Sample {}/owner", stage.namespace)), "{text}");
    assert!(text.contains("only 2") && text.contains("konverge.dev/allow-deletes=3"), "{text}");
    assert_eq!((error.class(), error.reason()), (ErrorClass::Permanent, "TooManyDeletions"));
    assert!(error.done().is_change());
    assert_eq!(stage.names().await.len(), 4);
    assert!(stage.children.get("c0").await.unwrap().data.is_some(), "what is wanted is applied");
    let api = samples(&stage.client, &stage.namespace).await;
    let allow = json!({"metadata": {"annotations": {"konverge.dev/allow-deletes": "3"}}});
    let owner = api.patch("owner", &PatchParams::default(), &Patch::Merge(&allow)).await.unwrap();
    assert_eq!(prune(&owner).await.unwrap().pruned.len(), 3);
    assert_eq!(stage.names().await, ["c0"]);
}

#[tokio::test]
async fn a_dry_run_of_a_set_writes_and_deletes_nothing() {
    let stage = stage().await;
    let owner = stage.owner("owner").await;
    assert!(stage.apply(&owner, vec![config_map(None, "old", &[("a", "1")])]).await.unwrap().is_change());
    let dry = Stage { applier: stage.applier.clone().with_dry_run(true), ..stage };
    let before = dry.children.get("old").await.unwrap();
    let report =
        dry.apply(&owner, vec![config_map(None, "old", &[("a", "2")]), config_map(None, "new", &[])]).await.unwrap();
    assert_eq!(report.children[0].differences[0].to_string(), r#"~ .data.a: "1" -> "2""#);
    assert_eq!(report.children[1].outcome, ApplyOutcome::Created);
    let report = dry.apply(&owner, vec![]).await.unwrap();
    assert_eq!(report.pruned.len(), 1);
    assert_eq!(dry.names().await, ["old"]);
    assert_eq!(dry.children.get("old").await.unwrap(), before);
}

#[tokio::test]
async fn row_34_a_set_tells_which_children_are_not_ready() {
    let stage = stage().await;
    let owner = stage.owner("owner").await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    }))
    .unwrap();
    let set = || DesiredSet::new(Owner::of(&owner).unwrap()).add(deployment.clone()).add(config_map(None, "app", &[]));
    let report = set().apply(&stage.applier).await.unwrap();
    let waiting: Vec<_> = report.not_ready().map(|(object, why)| format!("{object}: {why}")).collect();
    assert_eq!(waiting, [format!("Deployment {}/web: in progress: replicas: 0 of 1", stage.namespace)]);
    let api: Api<Deployment> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let status = json!({"status": {
        "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "readyReplicas": 1, "observedGeneration": 1,
        "conditions": [{"type": "Available", "status": "True", "reason": "R", "message": ""}],
    }});
    api.patch_status("web", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let seen = api.get("web").await.unwrap();
    let app = stage.children.get("app").await.unwrap();
    let report = set().observe([&seen]).observe([&app]).apply(&stage.applier).await.unwrap();
    assert_eq!(report.not_ready().count(), 0);
    assert!(!report.is_change());
}

#[tokio::test]
async fn row_34_children_wait_for_those_before_them() {
    let stage = stage().await;
    let owner = stage.owner("owner").await;
    assert!(stage.apply(&owner, vec![config_map(None, "old", &[])]).await.unwrap().is_change());
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": "disk"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    }))
    .unwrap();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let apply = async || {
        let (seen, disks) =
            (stage.seen(&stage.children, &owner).await, claims.list(&ListParams::default()).await.unwrap());
        let set = DesiredSet::new(Owner::of(&owner).unwrap()).observe(&seen).observe(&disks.items);
        let set = set.add(config_map(None, "first", &[])).add(claim.clone()).when_ready();
        set.add(config_map(None, "second", &[]))
            .add(config_map(None, "third", &[]))
            .apply(&stage.applier)
            .await
            .unwrap()
    };
    for _ in 0..2 {
        let report = apply().await;
        let waiting: Vec<_> = report.waiting.iter().map(|object| &*object.name).collect();
        assert_eq!((waiting, report.not_ready().count()), (vec!["second", "third"], 1));
        assert_eq!(stage.names().await, ["first", "old"]);
    }
    let bound = json!({"status": {"phase": "Bound"}});
    claims.patch_status("disk", &PatchParams::default(), &Patch::Merge(&bound)).await.unwrap();
    let report = apply().await;
    assert!(report.waiting.is_empty() && report.pruned.len() == 1);
    assert_eq!(stage.names().await, ["first", "second", "third"]);
}

/// A config map that says in its data whether it is ready.
fn says_ready(config_map: &ConfigMap) -> bool {
    config_map.data.as_ref().is_some_and(|data| data.get("ready").is_some_and(|ready| ready == "yes"))
}

#[tokio::test]
async fn children_wait_for_those_that_their_edges_name_and_for_no_others() {
    let stage = stage().await;
    let owner = stage.owner("redis").await;
    let set = async |database: &str| {
        let seen = stage.seen(&stage.children, &owner).await;
        let child = |name: &str| config_map(None, name, &[]);
        DesiredSet::new(Owner::of(&owner).unwrap())
            .observe(&seen)
            // Added before what it waits for.
            .add_with_options(child("app"), &(), ChildOptions::default().after::<ConfigMap>("database"))
            .add_with_options(
                config_map(None, "database", &[("ready", database)]),
                &(),
                ChildOptions::default().ready_when(says_ready),
            )
            .add(child("metrics"))
            .apply(&stage.applier)
            .await
            .unwrap()
    };
    let waiting = set("no").await;
    assert_eq!(stage.names().await, ["database", "metrics"]);
    assert_eq!(waiting.waiting.iter().map(|child| child.name.as_str()).collect::<Vec<_>>(), ["app"]);
    let lacking: Vec<_> = waiting.not_ready().map(|(child, _)| child.name.clone()).collect();
    assert_eq!(lacking, ["database"]);
    let done = set("yes").await;
    assert!(done.waiting.is_empty() && done.not_ready().next().is_none());
    assert_eq!(stage.names().await, ["app", "database", "metrics"]);
    assert_eq!(stage.children.get("app").await.unwrap().annotations()[APPLY_ORDER], "1");
    assert!(!stage.children.get("metrics").await.unwrap().annotations().contains_key(APPLY_ORDER));
    // Existing children stay while the set waits again, and nothing is written.
    let again = set("no").await;
    assert_eq!((again.waiting.len(), stage.names().await.len()), (1, 3));
}

#[tokio::test]
async fn an_order_that_cannot_be_kept_writes_nothing() {
    let stage = stage().await;
    let owner = stage.owner("owner").await;
    let set = || DesiredSet::new(Owner::of(&owner).unwrap());
    let child = |name: &str| config_map(None, name, &[]);
    let after = |name: &str| ChildOptions::default().after::<ConfigMap>(name);
    let circle = set().add_with_options(child("a"), &(), after("b")).add_with_options(child("b"), &(), after("a"));
    let missing = set().add(child("a")).add_with_options(child("b"), &(), after("typo"));
    for (set, problem) in [(circle, "in a circle"), (missing, "after ConfigMap typo, which is not in the set")] {
        let error = set.apply(&stage.applier).await.expect_err("no order");
        assert!(error.to_string().contains(problem), "{error}");
        assert_eq!((error.class(), error.reason()), (ErrorClass::Permanent, "ChildOrder"));
    }
    assert!(stage.names().await.is_empty());
}

#[tokio::test]
async fn children_are_deleted_in_the_reverse_order_each_when_those_above_it_are_gone() {
    let stage = stage().await;
    let owner = stage.owner("owner").await;
    let child = |name: &str| config_map(None, name, &[]);
    let set = || DesiredSet::new(Owner::of(&owner).unwrap());
    let made = set().add(child("database")).when_ready().add(child("app")).when_ready().add(child("proxy"));
    assert_eq!(made.apply(&stage.applier).await.unwrap().children.len(), 3);
    let prune = async || set().observe(&stage.seen(&stage.children, &owner).await).apply(&stage.applier).await.unwrap();
    let names =
        |objects: &[konverge_apply::ObjectName]| objects.iter().map(|object| object.name.clone()).collect::<Vec<_>>();

    // There is no garbage collector here, so what is deleted in the foreground stays until its finalizer is removed.
    for (going, later) in [("proxy", vec!["app", "database"]), ("app", vec!["database"])] {
        let report = prune().await;
        assert_eq!(
            (names(&report.pruned), names(&report.prune_later)),
            (vec![going.to_owned()], later.iter().map(ToString::to_string).collect())
        );
        let report = prune().await;
        assert!(
            report.pruned.is_empty() && report.prune_later.len() == later.len(),
            "{going} is still going: {report:?}"
        );
        let collected = json!({"metadata": {"finalizers": null}});
        stage.children.patch(going, &PatchParams::default(), &Patch::Merge(&collected)).await.unwrap();
    }
    assert_eq!(names(&prune().await.pruned), ["database"]);
    assert!(stage.names().await.is_empty());
}

#[tokio::test]
async fn a_retained_child_outlives_its_owner_and_is_taken_over_by_the_next() {
    let stage = stage().await;
    let owner = stage.owner("redis").await;
    let key = || OwnerKey::new(konverge_core::digest::DigestKey::new([7; 32]));
    let volume = |content: &str| config_map(None, "volume", &[("content", content)]);
    let set = async |owner: &Sample, is_keyed: bool| {
        let seen = stage.children.get_opt("volume").await.unwrap();
        let set = DesiredSet::new(Owner::of(owner).unwrap()).observe(&seen);
        if is_keyed { set.key(key()) } else { set }
    };
    let retained = || ChildOptions::default().retain();
    set(&owner, true).await.add_with_options(volume("old"), &(), retained()).apply(&stage.applier).await.unwrap();
    let made = stage.children.get("volume").await.unwrap();
    assert!(made.owner_references().is_empty(), "the garbage collector would delete it");
    // Not wanted any more, it stays.
    assert!(set(&owner, true).await.apply(&stage.applier).await.unwrap().pruned.is_empty());

    let samples = samples(&stage.client, &stage.namespace).await;
    samples.delete("redis", &DeleteParams::default()).await.unwrap();
    // Another owner does not get it, nor one that cannot tell it from a forged one.
    let other = stage.owner("another").await;
    let refused =
        set(&other, true).await.add_with_options(volume("other"), &(), retained()).apply(&stage.applier).await;
    assert!(refused.is_err_and(|error| error.reason() == "OwnedByAnother"));
    let next = stage.owner("redis").await;
    let forged = set(&next, false).await.key(OwnerKey::new(konverge_core::digest::DigestKey::new([8; 32])));
    let refused = forged.add_with_options(volume("forged"), &(), retained()).apply(&stage.applier).await;
    assert!(refused.is_err_and(|error| error.reason() == "OwnedByAnother"));

    let taken =
        set(&next, true).await.add_with_options(volume("new"), &(), retained()).apply(&stage.applier).await.unwrap();
    assert_eq!(taken.children[0].outcome, ApplyOutcome::Changed);
    let now = stage.children.get("volume").await.unwrap();
    assert_eq!((now.uid(), &now.labels()[OWNER_UID]), (made.uid(), &next.uid().unwrap()));
    // Once it is a child like others, it goes like others.
    let plain = set(&next, true).await.add(volume("new")).apply(&stage.applier).await.unwrap();
    assert!(plain.is_change() && !stage.children.get("volume").await.unwrap().owner_references().is_empty());
    assert_eq!(set(&next, true).await.apply(&stage.applier).await.unwrap().pruned.len(), 1);
}
