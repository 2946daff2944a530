//! F31: ids, names and texts that look like something else. Each object says what is wrong, or means what it says; no call leaves its collection; others
//! go on.

use konverge::kube::{Api, ResourceExt};
use konverge_manage::api::{
    v1::{OZPolicy, OZPolicySpec, OZResource, OZResourceSpec},
    v1alpha1::{Group, GroupSpec, SetupKey, SetupKeySpec},
};
use konverge_openzro::Collection;
use serde_json::{Value, from_value, json};

use crate::stage::Stage;

fn resource(name: &str, spec: Value) -> OZResource {
    OZResource::new(name, from_value::<OZResourceSpec>(spec).unwrap())
}

fn setup_key(name: &str, spec: Value) -> SetupKey {
    SetupKey::new(name, from_value::<SetupKeySpec>(spec).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn f31_an_id_never_leads_to_another_place() {
    let stage = Stage::set().await;
    let operator = stage.start(&[]).await;
    let (resources, groups, keys) = (stage.api::<OZResource>(), stage.api::<Group>(), stage.api::<SetupKey>());
    let theirs = stage.by_hand(&Collection::Groups, json!({ "name": "theirs" })).await;
    let long = "x".repeat(200_000);
    let ids = [
        ("long", long.as_str(), "Stalled"),
        ("parent", "..", "Stalled"),
        ("lines", "a\r\nHost: elsewhere", "Stalled"),
        ("path", "../groups", "Stalled"),
        ("encoded", "%2e%2e%2fgroups", "Reconciling"),
        ("query", "a?b#c", "Reconciling"),
        ("other", theirs.as_str(), "Reconciling"),
    ];
    for (name, id, _) in ids {
        let spec = json!({ "name": name, "networkID": id, "address": "10.0.0.1", "groups": ["All"] });
        stage.create(&resources, &resource(name, spec)).await;
        let spec =
            json!({ "name": name, "ephemeral": false, "autoGroups": [{ "id": if id == theirs { ".." } else { id } }] });
        stage.create(&keys, &setup_key(name, spec)).await;
        let mut adopting = Group::new(name, GroupSpec { name: name.to_owned() });
        let id = if id == theirs { "networks/x" } else { id };
        adopting.annotations_mut().insert("konverge.dev/adopt".to_owned(), id.to_owned());
        stage.create(&groups, &adopting).await;
    }
    for (name, _, condition) in ids {
        let reason = if condition == "Stalled" { "InvalidId" } else { "Dependency" };
        stage.says(&resources, name, condition, reason).await;
    }
    // Others go on.
    stage.create(&groups, &Group::new("fine", GroupSpec { name: "fine".to_owned() })).await;
    stage.says(&groups, "fine", "Ready", "Reconciled").await;
    stage.settled(&operator).await;
    for seen in stage.front.journal() {
        let (path, parts) = (seen.path.as_str(), seen.path.split('/').collect::<Vec<_>>());
        assert!(!parts.contains(&"..") && !path.contains('?') && !path.contains('#'), "{path}");
        let is_known = ["groups", "policies", "setup-keys", "networks", "dns", "accounts"].contains(&parts[2]);
        assert!(is_known && parts.len() <= 6, "{path}");
        assert!(
            seen.method == "GET" || path == "/api/groups",
            "nothing but the good group was made: {} {path}",
            seen.method
        );
    }

    // Each of them can be deleted.
    for (name, ..) in ids {
        stage.delete(&resources, name).await;
        stage.delete(&keys, name).await;
        stage.delete(&groups, name).await;
        stage.gone(&resources, name).await;
        stage.gone(&keys, name).await;
        stage.gone(&groups, name).await;
    }
    assert!(stage.on_server(&Collection::Groups).await.contains_key("theirs"));
}

#[tokio::test(flavor = "multi_thread")]
async fn f31_texts_with_marks_lines_and_much_content_stay_texts() {
    let stage = Stage::set().await;
    let operator = stage.start(&[]).await;
    let (resources, groups, keys) = (stage.api::<OZResource>(), stage.api::<Group>(), stage.api::<SetupKey>());
    let policies = Api::<OZPolicy>::all(stage.client.clone());
    let network = stage.by_hand(&Collection::Networks, json!({ "name": "n", "description": "" })).await;
    // Copied from the dashboard with the mark of another object.
    let text = "db\r\n<b>konverge=another/cluster;stays</b> {{ x }} $(id)";
    let spec =
        json!({ "name": text, "networkID": network, "address": "10.0.0.1", "groups": ["All"], "description": text });
    stage.create(&resources, &resource("db", spec)).await;
    let rule = json!({ "name": text, "description": text, "sources": ["All"], "destinations": ["All"], "protocol": "tcp", "ports": ["80"] });
    let spec = json!({ "name": text, "description": text, "rules": [rule] });
    stage.create(&policies, &OZPolicy::new("web", from_value::<OZPolicySpec>(spec).unwrap())).await;
    stage
        .create(&keys, &setup_key("pods", json!({ "name": format!("{text} konverge=a/b"), "ephemeral": false })))
        .await;
    let mut group = Group::new("large", GroupSpec { name: "x".repeat(10_000) });
    group.annotations_mut().insert("example.com/large".to_owned(), "x".repeat(250_000));
    stage.create(&groups, &group).await;
    let are_ready = async || {
        stage.says(&resources, "db", "Ready", "Reconciled").await;
        stage.says(&policies, "web", "Ready", "Reconciled").await;
        stage.says(&keys, "pods", "Ready", "Reconciled").await;
        stage.says(&groups, "large", "Ready", "Reconciled").await;
    };
    are_ready().await;
    let item = stage.on_server(&Collection::AllResources).await[text].clone();
    assert!(item["description"].as_str().unwrap().starts_with(text), "{item}");

    // They are known again: nothing is written at rest or after a restart, and all of them go with their objects.
    let writes = stage.writes();
    operator.stop().await;
    let operator = stage.start(&[]).await;
    stage.settled(&operator).await;
    are_ready().await;
    assert_eq!(stage.writes(), writes, "{:#?}", stage.calls());
    stage.delete(&resources, "db").await;
    stage.delete(&policies, "web").await;
    stage.delete(&keys, "pods").await;
    stage.delete(&groups, "large").await;
    stage.gone(&resources, "db").await;
    stage.gone(&policies, "web").await;
    stage.gone(&keys, "pods").await;
    stage.gone(&groups, "large").await;
    for collection in [Collection::AllResources, Collection::Policies, Collection::SetupKeys] {
        assert!(stage.dashboard.list(&collection).await.unwrap().is_empty(), "{collection:?}");
    }
    assert_eq!(stage.on_server(&Collection::Groups).await.into_keys().collect::<Vec<_>>(), ["All"]);
}
