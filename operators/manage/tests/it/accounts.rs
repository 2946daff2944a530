//! An account with several clusters on it, with tokens that are replaced, refused or too weak, and with objects that come out of a backup.

use std::time::Duration;

use konverge::{
    Object, RECORD,
    apply::Writable,
    kube::{
        Api, Resource, ResourceExt,
        api::{Patch, PatchParams},
    },
};
use konverge_manage::api::{
    v1::{OZGroup, OZGroupSpec, OZPolicy, OZPolicySpec, OZResource, OZResourceSpec},
    v1alpha1::{Group, GroupSpec, SetupKey, SetupKeySpec},
};
use konverge_openzro::Collection;
use konverge_testkit_stores::Fault;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::stage::Stage;

/// Requests of an operator whose token is refused.
const PROBES: usize = 4;

fn group(name: &str, display: &str) -> Group {
    Group::new(name, GroupSpec { name: display.to_owned() })
}

fn policy(name: &str) -> OZPolicy {
    let spec = json!({ "name": name, "sourceGroups": ["All"], "destinationGroups": ["All"], "protocols": ["tcp"], "ports": [80] });
    OZPolicy::new(name, serde_json::from_value::<OZPolicySpec>(spec).unwrap())
}

fn resource(name: &str, network: &str, address: &str) -> OZResource {
    let spec = json!({ "name": name, "networkID": network, "address": address, "groups": ["All"] });
    OZResource::new(name, serde_json::from_value::<OZResourceSpec>(spec).unwrap())
}

fn setup_key(name: &str) -> SetupKey {
    let spec = json!({ "name": name, "ephemeral": false });
    SetupKey::new(name, serde_json::from_value::<SetupKeySpec>(spec).unwrap())
}

/// Leaves out the fields that the server computes of other items: numbers, and the policies that concern a network.
fn without_computed(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(without_computed),
        Value::Object(fields) => {
            fields.retain(|name, _| !name.ends_with("_count") && name != "policies");
            fields.values_mut().for_each(without_computed);
        }
        _ => {}
    }
}

/// All items of the account, as the server shows them.
async fn account(stage: &Stage) -> Vec<Value> {
    let collections = [
        Collection::Groups,
        Collection::Policies,
        Collection::SetupKeys,
        Collection::Networks,
        Collection::AllResources,
        Collection::AllRouters,
    ];
    let mut items = Vec::new();
    for collection in collections {
        let listed = stage.dashboard.list(&collection).await.unwrap();
        let mut listed: Vec<_> = listed.iter().map(|item| Value::Object(item.raw().clone())).collect();
        listed.iter_mut().for_each(without_computed);
        listed.sort_by_key(|item| item["id"].as_str().unwrap_or_default().to_owned());
        items.extend(listed);
    }
    items
}

/// A cluster with one object of each of these kinds, all in sync.
struct Objects {
    policies: Api<OZPolicy>,
    groups: Api<Group>,
    resources: Api<OZResource>,
    keys: Api<SetupKey>,
}

impl Objects {
    fn of(stage: &Stage) -> Self {
        let policies = Api::all(stage.client.clone());
        Self { policies, groups: stage.api(), resources: stage.api(), keys: stage.api() }
    }

    async fn create(&self, stage: &Stage, network: &str) {
        stage.create(&self.policies, &policy("web")).await;
        stage.create(&self.groups, &group("devs", "Developers")).await;
        stage.create(&self.resources, &resource("db", network, "10.0.0.1")).await;
        stage.create(&self.keys, &setup_key("pods")).await;
    }

    async fn are_ready(&self, stage: &Stage) {
        stage.says(&self.policies, "web", "Ready", "Reconciled").await;
        stage.says(&self.groups, "devs", "Ready", "Reconciled").await;
        stage.says(&self.resources, "db", "Ready", "Reconciled").await;
        stage.says(&self.keys, "pods", "Ready", "Reconciled").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn w8_two_clusters_on_one_account_leave_each_others_items_alone() {
    let first = Stage::set().await;
    let operator_of_first = first.start(&[]).await;
    let network = first.by_hand(&Collection::Networks, json!({ "name": "n", "description": "" })).await;
    let of_first = Objects::of(&first);
    of_first.create(&first, &network).await;
    of_first.are_ready(&first).await;
    let before = account(&first).await;

    // The other cluster has objects with the same names. It asks for adoption, and for the deletion of all that it adopts.
    let second = first.beside().await;
    let operator = second.start(&["--delete-adopted"]).await;
    let of_second = Objects::of(&second);
    of_second.create(&second, &network).await;
    second.says(&of_second.policies, "web", "Ready", "Reconciled").await;
    second.says(&of_second.keys, "pods", "Ready", "Reconciled").await;
    second.says(&of_second.resources, "db", "Stalled", "NotOurs").await;
    let refused = second.says(&of_second.groups, "devs", "Stalled", "NameTaken").await.status.unwrap();
    let message = &refused.standard.conditions.get("Stalled").unwrap().message;
    assert!(message.contains("Developers"), "{message}");
    let adopt =
        json!({ "metadata": { "annotations": { "konverge.dev/adopt": "true", "konverge.dev/deletion": "delete" } } });
    second.patch(&of_second.resources, "db", adopt).await;
    // It says so already, so only a settled operator has answered the request.
    second.settled(&operator).await;
    let refused = second.says(&of_second.resources, "db", "Stalled", "NotOurs").await.status.unwrap();
    let message = &refused.standard.conditions.get("Stalled").unwrap().message;
    assert!(message.contains("belongs to the cluster"), "{message}");
    let both = account(&first).await;
    let changed: Vec<_> = before.iter().filter(|item| !both.contains(item)).collect();
    assert!(changed.is_empty(), "{changed:#?} {both:#?}");
    assert_eq!(both.len(), before.len() + 2, "a policy and a setup key of its own: {both:#?}");

    // All of it goes, also after a restart, and the items of the first cluster are as before.
    operator.stop().await;
    let _operator = second.start(&["--delete-adopted"]).await;
    second.delete(&of_second.policies, "web").await;
    second.delete(&of_second.groups, "devs").await;
    second.delete(&of_second.resources, "db").await;
    second.delete(&of_second.keys, "pods").await;
    second.gone(&of_second.policies, "web").await;
    second.gone(&of_second.groups, "devs").await;
    second.gone(&of_second.resources, "db").await;
    second.gone(&of_second.keys, "pods").await;
    first.settled(&operator_of_first).await;
    assert_eq!(account(&first).await, before);
    of_first.are_ready(&first).await;
}

/// Removes the status, as a backup without statuses restores the object.
async fn lose_status<K: Object + Writable>(api: &Api<K>, name: &str) {
    let patch = Patch::Merge(json!({ "status": null }));
    let after = api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    let after = serde_json::to_value(after).unwrap();
    let conditions = after.get("status").and_then(|status| status["conditions"].as_array());
    assert!(conditions.is_none_or(Vec::is_empty), "{after}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_without_statuses_is_restored_without_a_write_to_openzro() {
    let stage = Stage::set().await;
    let operator = stage.start(&[]).await;
    let network = stage.by_hand(&Collection::Networks, json!({ "name": "n", "description": "" })).await;
    let (objects, oz_groups) = (Objects::of(&stage), stage.api::<OZGroup>());
    objects.create(&stage, &network).await;
    stage.create(&oz_groups, &OZGroup::new("ops", OZGroupSpec { name: "Ops".to_owned() })).await;
    objects.are_ready(&stage).await;
    stage.says(&oz_groups, "ops", "Ready", "Reconciled").await;
    operator.stop().await;
    let (before, writes) = (account(&stage).await, stage.writes());
    let id_of_group = stage.on_server(&Collection::Groups).await["Developers"]["id"].clone();
    lose_status(&objects.policies, "web").await;
    lose_status(&objects.groups, "devs").await;
    lose_status(&objects.resources, "db").await;
    lose_status(&objects.keys, "pods").await;
    lose_status(&oz_groups, "ops").await;

    let operator = stage.start(&[]).await;
    objects.are_ready(&stage).await;
    stage.says(&oz_groups, "ops", "Ready", "Reconciled").await;
    stage.settled(&operator).await;
    let status = objects.groups.get("devs").await.unwrap().status.unwrap();
    assert_eq!(status.group_id.as_deref(), id_of_group.as_str());
    assert_eq!((account(&stage).await, stage.writes()), (before, writes), "{:#?}", stage.calls());
}

/// Copies an object with its labels, annotations, finalizers and status under another name.
async fn copy<K>(stage: &Stage, api: &Api<K>, from: &str, to: &str)
where
    K: Object + Writable + Resource<DynamicType = ()>,
{
    let original = api.get(from).await.unwrap();
    let mut copy = serde_json::to_value(&original).unwrap();
    copy["metadata"] = json!({ "name": to, "namespace": original.namespace(), "annotations": original.annotations(),
        "labels": original.labels(), "finalizers": original.finalizers() });
    assert!(original.annotations().contains_key(RECORD), "{from} has no record to copy");
    stage.create(api, &serde_json::from_value::<K>(copy.clone()).unwrap()).await;
    let status = Patch::Merge(json!({ "status": copy["status"] }));
    api.patch_status(to, &PatchParams::default(), &status).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_copied_with_its_annotations_and_status_has_no_claim_on_the_item() {
    let stage = Stage::set().await;
    let operator = stage.start(&[]).await;
    let network = stage.by_hand(&Collection::Networks, json!({ "name": "n", "description": "" })).await;
    let objects = Objects::of(&stage);
    objects.create(&stage, &network).await;
    objects.are_ready(&stage).await;
    operator.stop().await;
    let before = account(&stage).await;
    copy(&stage, &objects.groups, "devs", "copy").await;
    copy(&stage, &objects.resources, "db", "copy").await;
    copy(&stage, &objects.policies, "web", "copy").await;

    let operator = stage.start(&[]).await;
    // The older object stands for the item.
    stage.says(&objects.resources, "copy", "Stalled", "Claimed").await;
    stage.says(&objects.groups, "copy", "Stalled", "Claimed").await;
    // Policies may have one name twice, so the copy has one of its own, or none.
    stage.delete(&objects.groups, "copy").await;
    stage.delete(&objects.resources, "copy").await;
    stage.delete(&objects.policies, "copy").await;
    stage.gone(&objects.groups, "copy").await;
    stage.gone(&objects.resources, "copy").await;
    stage.gone(&objects.policies, "copy").await;
    stage.settled(&operator).await;
    assert_eq!(account(&stage).await, before);
    objects.are_ready(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_replaced_without_a_restart_and_a_refused_one_loses_nothing() {
    let stage = Stage::set().await;
    let file = stage.write_token(stage.token("admin"));
    let _operator = stage.start(&["--allow=*=*", "--openzro-api-key-file", &file]).await;
    let groups = stage.api::<Group>();
    stage.create(&groups, &group("before", "before")).await;
    stage.says(&groups, "before", "Ready", "Reconciled").await;
    let before = account(&stage).await;

    // The token is revoked: every object that needs openZro says so, and nothing is lost.
    stage.write_token("nobody's");
    stage
        .until("the new token is refused", async || stage.calls().iter().any(|call| call.ends_with("Some(401)")))
        .await;
    stage.create(&groups, &group("during", "during")).await;
    stage
        .until("the refusal is told", async || {
            let status = groups.get("during").await.unwrap().status.unwrap_or_default();
            let told = status.standard.conditions.get("Ready");
            told.is_some_and(|told| {
                told.status == "False" && ["TokenRefused", "OpenZroPaused"].contains(&&*told.reason)
            })
        })
        .await;
    stage.delete(&groups, "before").await;
    // One probe per interval of the breaker, however many objects and lists there are: four of them take a second at the least.
    let calls = stage.front.journal().len();
    stage.until("probes are sent", async || stage.front.journal().len() > calls + PROBES).await;
    let journal = stage.front.journal();
    let took = journal[calls + PROBES].at.duration_since(journal[calls].at);
    assert!(took >= Duration::from_secs(1), "{PROBES} calls with a refused token in {took:?}");
    assert_eq!(account(&stage).await, before);
    assert!(!stage.finalizers(&groups, "before").await.is_empty(), "released without an answer of openZro");

    // A new one is used at once.
    stage.write_token(stage.token("owner"));
    stage.says(&groups, "during", "Ready", "Reconciled").await;
    stage.gone(&groups, "before").await;
    let names: Vec<_> = stage.on_server(&Collection::Groups).await.into_keys().collect();
    assert_eq!(names, ["All", "during"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_too_low_a_role_changes_nothing_and_each_object_says_so() {
    let stage = Stage::set().await;
    let network = stage.by_hand(&Collection::Networks, json!({ "name": "n", "description": "" })).await;
    let file = stage.write_token(stage.token("user"));
    let _operator = stage.start(&["--allow=*=*", "--openzro-api-key-file", &file]).await;
    let before = account(&stage).await;
    let objects = Objects::of(&stage);
    objects.create(&stage, &network).await;
    stage.says(&objects.policies, "web", "Stalled", "PermissionDenied").await;
    stage.says(&objects.groups, "devs", "Stalled", "PermissionDenied").await;
    stage.says(&objects.resources, "db", "Stalled", "PermissionDenied").await;
    stage.says(&objects.keys, "pods", "Stalled", "PermissionDenied").await;
    assert_eq!(account(&stage).await, before);
    // With a better role, the same objects come into sync.
    stage.write_token(stage.token("admin"));
    let again = json!({ "metadata": { "annotations": { "konverge.dev/reconcile-at": "1" } } });
    stage.patch(&objects.policies, "web", again.clone()).await;
    stage.patch(&objects.groups, "devs", again.clone()).await;
    stage.patch(&objects.resources, "db", again.clone()).await;
    stage.patch(&objects.keys, "pods", again).await;
    objects.are_ready(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn w26_a_list_that_hangs_delays_only_objects_that_need_it_and_a_429_is_obeyed() {
    let stage = Stage::set().await;
    let _operator = stage.start(&[]).await;
    let (groups, policies) = (stage.api::<Group>(), Api::<OZPolicy>::all(stage.client.clone()));
    stage.front.plan(|seen| seen.path.ends_with("/policies").then_some(Fault::Hang));
    stage.create(&policies, &policy("web")).await;
    stage.until("a list hangs", async || stage.calls().iter().any(|call| call.contains("/policies"))).await;
    stage.create(&groups, &group("devs", "Developers")).await;
    stage.says(&groups, "devs", "Ready", "Reconciled").await;
    assert!(stage.on_server(&Collection::Groups).await.contains_key("Developers"));
    assert!(stage.front.journal().iter().all(|seen| !seen.path.ends_with("/policies") || seen.status.is_none()));
    stage.front.plan(|_| None);
    stage.says(&policies, "web", "Ready", "Reconciled").await;

    // The server asks to be left alone: nothing is sent in the meantime, and nothing is lost.
    stage.front.plan(|seen| (seen.method == "POST").then(|| Fault::too_many_requests(3)));
    stage.create(&groups, &group("ops", "Operators")).await;
    let is_refused = async || stage.front.journal().iter().any(|seen| seen.method == "POST" && seen.status.is_none());
    stage.until("the server asks for a pause", is_refused).await;
    stage.front.plan(|_| None);
    stage.says(&groups, "ops", "Ready", "Reconciled").await;
    let journal = stage.front.journal();
    let refused = journal.iter().find(|seen| seen.method == "POST" && seen.status.is_none()).unwrap().at;
    let in_pause = |at: Instant| at > refused && at < refused + Duration::from_millis(1500);
    let ignored: Vec<_> = journal.iter().filter(|seen| in_pause(seen.at)).collect();
    // Up to two requests were under way when the answer came.
    assert!(ignored.len() <= 2, "{ignored:#?}");
}
