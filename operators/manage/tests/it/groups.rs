//! `OZGroup` and `Group`: created, adopted, shared, waited for, deleted.

use std::sync::Mutex;

use konverge_manage::api::{
    v1::{OZGroup, OZGroupSpec},
    v1alpha1::{Group, GroupSpec},
};
use konverge_openzro::Collection;
use konverge_testkit_stores::Fault;
use serde_json::{Value, json};

use crate::stage::Stage;

fn oz_group(name: &str, display: &str) -> OZGroup {
    OZGroup::new(name, OZGroupSpec { name: display.to_owned() })
}

fn group(name: &str, display: &str) -> Group {
    Group::new(name, GroupSpec { name: display.to_owned() })
}

#[tokio::test(flavor = "multi_thread")]
async fn w5_a_group_follows_its_object_from_creation_to_deletion() {
    let stage = Stage::set().await;
    let operator = stage.start(&[]).await;
    let (groups, of_alpha) = (stage.api::<OZGroup>(), stage.api::<Group>());
    stage.create(&groups, &oz_group("devs", "Developers")).await;
    let ready = stage.says(&groups, "devs", "Ready", "Reconciled").await;
    let on_server = stage.on_server(&Collection::Groups).await;
    assert_eq!(ready.status.unwrap().group_id.as_deref(), on_server["Developers"]["id"].as_str());
    assert_eq!(stage.finalizers(&groups, "devs").await, ["openzro.io/group-cleanup"]);
    stage.told("devs", "Created").await;

    // A v1alpha1 group can be renamed, and keeps its id.
    stage.create(&of_alpha, &group("ops", "Operations")).await;
    let before = stage.says(&of_alpha, "ops", "Ready", "Reconciled").await.status.unwrap().group_id;
    stage.patch(&of_alpha, "ops", json!({ "spec": { "name": "SRE" } })).await;
    stage.until("the group is renamed", async || stage.on_server(&Collection::Groups).await.contains_key("SRE")).await;
    let after = stage.says(&of_alpha, "ops", "Ready", "Reconciled").await.status.unwrap().group_id;
    assert!(before.is_some() && before == after);

    // A restart writes nothing (W1, W2, W27), and neither do intervals at rest.
    let writes = stage.writes();
    operator.stop().await;
    let operator = stage.start(&[]).await;
    stage.settled(&operator).await;
    assert_eq!(stage.writes(), writes, "{:#?}", stage.calls());

    stage.delete(&groups, "devs").await;
    stage.delete(&of_alpha, "ops").await;
    stage.gone(&groups, "devs").await;
    stage.gone(&of_alpha, "ops").await;
    assert_eq!(stage.on_server(&Collection::Groups).await.into_keys().collect::<Vec<_>>(), ["All"]);
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn w8_w17_a_group_of_others_is_adopted_by_name_loudly_or_on_request_and_survives() {
    let stage = Stage::set().await;
    let _operator = stage.start(&[]).await;
    let (groups, of_alpha) = (stage.api::<OZGroup>(), stage.api::<Group>());
    let theirs = stage.by_hand(&Collection::Groups, json!({ "name": "theirs" })).await;

    stage.create(&groups, &oz_group("theirs", "theirs")).await;
    let adopted = stage.says(&groups, "theirs", "Ready", "Reconciled").await;
    assert_eq!(adopted.status.unwrap().group_id.as_deref(), Some(&*theirs));
    stage.told("theirs", "Adopted").await;
    assert!(stage.finalizers(&groups, "theirs").await.is_empty(), "nothing holds an object that adopts");

    // W17: the newer kind says why it does not take the group, and takes it on request once the other has let it go.
    stage.delete(&groups, "theirs").await;
    stage.gone(&groups, "theirs").await;
    stage.create(&of_alpha, &group("theirs", "theirs")).await;
    stage.says(&of_alpha, "theirs", "Stalled", "NameTaken").await;
    stage.patch(&of_alpha, "theirs", json!({ "metadata": { "annotations": { "konverge.dev/adopt": "true" } } })).await;
    let adopted = stage.says(&of_alpha, "theirs", "Ready", "Reconciled").await;
    assert_eq!(adopted.status.unwrap().group_id.as_deref(), Some(&*theirs));
    stage.delete(&of_alpha, "theirs").await;
    stage.gone(&of_alpha, "theirs").await;
    assert_eq!(stage.on_server(&Collection::Groups).await["theirs"]["id"], *theirs);
    assert_eq!(stage.writes(), 0, "{:#?}", stage.calls());
}

#[tokio::test(flavor = "multi_thread")]
async fn several_oz_groups_of_one_name_share_the_group() {
    let stage = Stage::set().await;
    let _operator = stage.start(&[]).await;
    let groups = stage.api::<OZGroup>();
    stage.create(&groups, &oz_group("first", "shared")).await;
    let first = stage.says(&groups, "first", "Ready", "Reconciled").await;
    stage.create(&groups, &oz_group("second", "shared")).await;
    let second = stage.says(&groups, "second", "Ready", "Shared").await;
    assert_eq!(first.status.unwrap().group_id, second.status.unwrap().group_id);
    // The group stays while the second one needs it.
    stage.delete(&groups, "first").await;
    stage.gone(&groups, "first").await;
    stage.says(&groups, "second", "Ready", "Reconciled").await;
    assert!(stage.on_server(&Collection::Groups).await.contains_key("shared"));
}

#[tokio::test(flavor = "multi_thread")]
async fn w13_w14_w18_a_deletion_names_its_blocker_waits_for_it_and_never_hangs_on_what_is_gone() {
    let stage = Stage::set().await;
    let _operator = stage.start(&[]).await;
    let (groups, of_alpha) = (stage.api::<OZGroup>(), stage.api::<Group>());
    for name in ["linked", "vanished"] {
        stage.create(&groups, &oz_group(name, name)).await;
        stage.create(&of_alpha, &group(name, &format!("{name}-alpha"))).await;
        stage.says(&groups, name, "Ready", "Reconciled").await;
        stage.says(&of_alpha, name, "Ready", "Reconciled").await;
    }
    let ids = stage.on_server(&Collection::Groups).await;
    let id = |name: &str| ids[name]["id"].as_str().unwrap().to_owned();

    // W14: a group that somebody deleted on the server does not hold its object.
    for name in ["vanished", "vanished-alpha"] {
        stage.dashboard.delete(&Collection::Groups.place(id(name))).await.unwrap();
    }
    stage.delete(&groups, "vanished").await;
    stage.delete(&of_alpha, "vanished").await;
    stage.gone(&groups, "vanished").await;
    stage.gone(&of_alpha, "vanished").await;

    // A setup key of somebody else uses the groups.
    let autos = [id("linked"), id("linked-alpha")];
    let key = json!({ "name": "theirs", "type": "reusable", "expires_in": 0, "auto_groups": autos, "usage_limit": 0,
        "ephemeral": false, "allow_extra_dns_labels": false });
    let key = stage.by_hand(&Collection::SetupKeys, key).await;
    stage.delete(&groups, "linked").await;
    stage.delete(&of_alpha, "linked").await;
    let waits = stage.says(&groups, "linked", "Reconciling", "InUse").await;
    let message = waits.status.unwrap().standard.conditions.get("Reconciling").unwrap().message.clone();
    assert!(message.contains("setup key") && message.contains("theirs"), "{message}");
    stage.says(&of_alpha, "linked", "Reconciling", "InUse").await;

    // A user who does not want to wait leaves the group behind.
    let orphan = json!({ "metadata": { "annotations": { "konverge.dev/deletion": "orphan" } } });
    stage.patch(&of_alpha, "linked", orphan).await;
    stage.gone(&of_alpha, "linked").await;
    stage.dashboard.delete(&Collection::SetupKeys.place(key)).await.unwrap();
    stage
        .patch(&groups, "linked", json!({ "metadata": { "annotations": { "konverge.dev/reconcile-at": "1" } } }))
        .await;
    stage.gone(&groups, "linked").await;
    let left: Vec<_> = stage.on_server(&Collection::Groups).await.into_keys().collect();
    assert_eq!(left, ["All", "linked-alpha"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn w35_a_lost_reply_makes_no_second_group_and_a_404_of_a_proxy_releases_nothing() {
    let stage = Stage::set().await;
    let operator = stage.start(&[]).await;
    let of_alpha = stage.api::<Group>();
    stage.front.plan(|seen| (seen.method == "POST").then_some(Fault::DropReply));
    stage.create(&of_alpha, &group("once", "once")).await;
    let created = async || stage.on_server(&Collection::Groups).await.contains_key("once");
    stage.until("the group is there", created).await;
    operator.stop().await;
    stage.front.plan(|_| None);
    let _operator = stage.start(&[]).await;
    stage.says(&of_alpha, "once", "Ready", "Reconciled").await;
    let posts = stage.front.journal().iter().filter(|seen| seen.method == "POST" && seen.status == Some(200)).count();
    assert_eq!(posts, 1, "{:#?}", stage.calls());

    stage.front.plan(|seen| (seen.method == "DELETE").then(Fault::html_404));
    stage.delete(&of_alpha, "once").await;
    stage.says(&of_alpha, "once", "Reconciling", "InvalidAnswer").await;
    assert!(!stage.finalizers(&of_alpha, "once").await.is_empty());
    stage.front.plan(|_| None);
    stage.gone(&of_alpha, "once").await;
    assert!(!stage.on_server(&Collection::Groups).await.contains_key("once"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_originals_finalizers_are_released_and_its_group_survives() {
    let stage = Stage::set().await;
    let groups = stage.api::<OZGroup>();
    let id = stage.by_hand(&Collection::Groups, json!({ "name": "old" })).await;
    let mut old = oz_group("old", "old");
    old.metadata.finalizers =
        Some(["openzro.io/group-cleanup", "openzro.io/resource-cleanup"].map(str::to_owned).to_vec());
    stage.create(&groups, &old).await;
    let status = json!({ "status": { "groupID": id, "conditions": [{ "type": "Ready", "status": "True" }] } });
    let patch = konverge::kube::api::Patch::Merge(status);
    groups.patch_status("old", &konverge::kube::api::PatchParams::default(), &patch).await.unwrap();
    let _operator = stage.start(&[]).await;
    stage.says(&groups, "old", "Ready", "Reconciled").await;
    stage.delete(&groups, "old").await;
    stage.gone(&groups, "old").await;
    assert_eq!(stage.on_server(&Collection::Groups).await["old"]["id"], *id);
    assert_eq!(stage.writes(), 0);
}

/// No peer can join in a test, so the proxy shows one in each group that a person has put it into.
#[tokio::test(flavor = "multi_thread")]
async fn w1_a_group_with_peers_keeps_them_when_it_is_adopted_renamed_and_deleted() {
    let stage = Stage::set().await;
    let operator = stage.start(&[]).await;
    let (groups, of_alpha) = (stage.api::<OZGroup>(), stage.api::<Group>());
    stage.by_hand(&Collection::Groups, json!({ "name": "shared" })).await;
    stage.by_hand(&Collection::Groups, json!({ "name": "theirs" })).await;
    stage.create(&of_alpha, &group("made", "made")).await;
    stage.says(&of_alpha, "made", "Ready", "Reconciled").await;

    let with_peer = |group: &Value| {
        let mut group = group.clone();
        group["peers"] = json!([{ "id": "peer1", "name": "laptop" }]);
        group["peers_count"] = json!(1);
        group
    };
    let shown: Vec<Value> = stage.on_server(&Collection::Groups).await.values().map(with_peer).collect();
    let shown = Mutex::new(shown);
    stage.front.plan(move |seen| {
        let (_, id) = seen.path.split_once("/groups")?;
        let mut shown = shown.lock().unwrap();
        let found = shown.iter_mut().find(|group| id.strip_prefix('/') == group["id"].as_str());
        let body = match (seen.method.as_str(), found) {
            ("GET", None) if id.is_empty() => json!(*shown),
            ("GET", Some(group)) => group.clone(),
            // The only write of this test is a new name.
            ("PUT", Some(group)) => {
                group["name"] = json!("renamed");
                group.clone()
            }
            _ => return None,
        };
        let headers = vec![("content-type", "application/json".to_owned())];
        Some(Fault::Answer { status: 200, headers, body: body.to_string() })
    });
    let calls = stage.front.journal().len();
    stage.until("the peers are seen", async || stage.front.journal().len() > calls + 16).await;
    let writes = stage.writes();

    // Adopted by name: nothing is written, also after a restart.
    stage.create(&groups, &oz_group("shared", "shared")).await;
    stage.says(&groups, "shared", "Ready", "Reconciled").await;
    operator.stop().await;
    let _operator = stage.start(&[]).await;
    stage.says(&groups, "shared", "Ready", "Reconciled").await;
    stage.delete(&groups, "shared").await;
    stage.gone(&groups, "shared").await;
    assert_eq!(stage.writes(), writes, "{:#?}", stage.calls());

    // Adopted and renamed: the peers are in the request.
    let mut adopting = group("theirs", "theirs");
    adopting.metadata.annotations = Some([("konverge.dev/adopt".to_owned(), "true".to_owned())].into());
    stage.create(&of_alpha, &adopting).await;
    stage.says(&of_alpha, "theirs", "Ready", "Reconciled").await;
    stage.patch(&of_alpha, "theirs", json!({ "spec": { "name": "renamed" } })).await;
    stage.says(&of_alpha, "theirs", "Ready", "Reconciled").await;
    let puts = || stage.front.journal().into_iter().filter(|seen| seen.method == "PUT").collect::<Vec<_>>();
    stage.until("the group is renamed", async || !puts().is_empty()).await;
    for put in puts() {
        let body: Value = serde_json::from_slice(&put.body).unwrap();
        assert_eq!((&body["name"], &body["peers"]), (&json!("renamed"), &json!(["peer1"])), "{body}");
    }

    // A group that was made for its object stays for its peers.
    stage.delete(&of_alpha, "made").await;
    stage.gone(&of_alpha, "made").await;
    stage.told("made", "LeftBehind").await;
    assert!(stage.front.journal().iter().all(|seen| seen.method != "DELETE"), "{:#?}", stage.calls());
}

#[tokio::test(flavor = "multi_thread")]
async fn w27_a_group_that_a_person_renames_or_deletes_is_as_its_object_says_within_an_interval() {
    let stage = Stage::set().await;
    let _operator = stage.start(&[]).await;
    let of_alpha = stage.api::<Group>();
    stage.create(&of_alpha, &group("devs", "Developers")).await;
    let status = stage.says(&of_alpha, "devs", "Ready", "Reconciled").await.status.unwrap();
    let place = Collection::Groups.place(status.group_id.unwrap());
    stage.dashboard.modify(&place, |body| body["name"] = json!("Nobody")).await.unwrap();
    let names = async || stage.on_server(&Collection::Groups).await.into_keys().collect::<Vec<_>>();
    stage.until("the group has its name again", async || names().await == ["All", "Developers"]).await;
    stage.dashboard.delete(&place).await.unwrap();
    stage.until("the group is there again", async || names().await == ["All", "Developers"]).await;
    stage.says(&of_alpha, "devs", "Ready", "Reconciled").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_says_that_openzro_is_away_and_releases_at_once_what_is_to_stay() {
    let stage = Stage::set().await;
    let _operator = stage.start(&[]).await;
    let (groups, of_alpha) = (stage.api::<OZGroup>(), stage.api::<Group>());
    stage.create(&groups, &oz_group("devs", "Developers")).await;
    stage.create(&of_alpha, &group("ops", "Operations")).await;
    stage.says(&groups, "devs", "Ready", "Reconciled").await;
    stage.says(&of_alpha, "ops", "Ready", "Reconciled").await;
    stage.front.plan(|_| Some(Fault::DropRequest));
    stage.delete(&groups, "devs").await;
    stage.delete(&of_alpha, "ops").await;
    let says_why = async || {
        let object = of_alpha.get("ops").await.unwrap();
        let ready = object.status.unwrap_or_default().standard.conditions.get("Ready").cloned();
        ready.is_some_and(|ready| {
            ready.status == "False" && ["OpenZroUnreachable", "OpenZroPaused"].contains(&&*ready.reason)
        })
    };
    stage.until("the object says that openZro is away", says_why).await;
    let orphan = json!({ "metadata": { "annotations": { "konverge.dev/deletion": "orphan" } } });
    stage.patch(&groups, "devs", orphan.clone()).await;
    stage.patch(&of_alpha, "ops", orphan).await;
    stage.gone(&groups, "devs").await;
    stage.gone(&of_alpha, "ops").await;
    let left: Vec<_> = stage.on_server(&Collection::Groups).await.into_keys().collect();
    assert_eq!(left, ["All", "Developers", "Operations"]);
}
