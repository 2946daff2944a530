//! `--dry-run`: nothing is written, neither to openZro nor to the cluster, whatever there is to do.

use std::collections::BTreeMap;

use konverge::kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams},
    core::ApiResource,
};
use konverge_manage::api::{
    v1::{OZGroup, OZGroupSpec, OZPolicy, OZResource, OZResourceSpec, OZRoutingPeer, OZRoutingPeerSpec},
    v1alpha1::{Group, GroupSpec, SetupKey, SetupKeySpec},
};
use konverge_openzro::Collection;
use serde_json::{Value, from_value, json};

use crate::stage::Stage;

const FLAGS: [&str; 2] = ["--cluster-name=prod", "--allow-automatic-policy-creation"];

fn resource(name: &str, address: &str, change: &Value) -> OZResource {
    let mut spec = json!({ "name": name, "networkRef": { "name": "router" }, "address": address, "groups": [name],
        "policySourceGroups": ["All"], "tcpPorts": [80] });
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    OZResource::new(name, from_value::<OZResourceSpec>(spec).unwrap())
}

fn group(name: &str) -> Group {
    Group::new(name, GroupSpec { name: name.to_owned() })
}

/// The version of each object that the operator may write.
async fn versions(stage: &Stage) -> BTreeMap<String, Option<String>> {
    let kinds = [
        ApiResource::erase::<OZGroup>(&()),
        ApiResource::erase::<OZPolicy>(&()),
        ApiResource::erase::<OZResource>(&()),
        ApiResource::erase::<OZRoutingPeer>(&()),
        ApiResource::erase::<Group>(&()),
        ApiResource::erase::<SetupKey>(&()),
        ApiResource::erase::<k8s_openapi::api::apps::v1::Deployment>(&()),
        ApiResource::erase::<k8s_openapi::api::core::v1::Secret>(&()),
    ];
    let mut versions = BTreeMap::new();
    for kind in kinds {
        let api = Api::<DynamicObject>::all_with(stage.client.clone(), &kind);
        let found = api.list(&ListParams::default()).await.unwrap().items;
        let named =
            found.iter().map(|object| (format!("{} {}", kind.plural, object.name_any()), object.resource_version()));
        versions.extend(named);
    }
    versions
}

async fn exempt(stage: &Stage) -> usize {
    let account = stage.dashboard.list(&Collection::Accounts).await.unwrap().remove(0);
    account.raw()["settings"]["admission_exempt_groups"].as_array().map_or(0, Vec::len)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_writes_nothing_whatever_there_is_to_do() {
    let stage = Stage::set().await;
    let operator = stage.start(&FLAGS).await;
    let (peers, resources) = (stage.api::<OZRoutingPeer>(), stage.api::<OZResource>());
    let (oz_groups, groups, keys) = (stage.api::<OZGroup>(), stage.api::<Group>(), stage.api::<SetupKey>());
    let peer = OZRoutingPeer::new("router", from_value::<OZRoutingPeerSpec>(json!({ "replicas": 1 })).unwrap());
    stage.create(&peers, &peer).await;
    stage.says(&peers, "router", "Reconciling", "WaitingForPods").await;
    stage.create(&resources, &resource("web", "10.0.0.1", &json!({ "policyName": "web" }))).await;
    stage.create(&resources, &resource("db", "10.0.0.2", &json!({}))).await;
    stage.create(&resources, &resource("old", "10.0.0.3", &json!({ "policyName": "old" }))).await;
    stage.create(&groups, &group("old")).await;
    for name in ["web", "db", "old"] {
        stage.says(&resources, name, "Ready", "Reconciled").await;
    }
    operator.stop().await;

    // There is something to do for each write that the operator knows.
    let account = stage.dashboard.list(&Collection::Accounts).await.unwrap().remove(0);
    let no_exemption = |body: &mut konverge_openzro::Fields| {
        body["settings"]["admission_exempt_groups"] = json!([]);
        body.retain(|key, _| key == "settings");
    };
    stage.dashboard.modify(&account.place(), no_exemption).await.unwrap();
    let db = resources.get("db").await.unwrap().status.unwrap().network_resource_id.unwrap();
    let network = peers.get("router").await.unwrap().status.unwrap().network_id.unwrap();
    let place = Collection::Resources { network }.place(db);
    stage.dashboard.modify(&place, |body| body["address"] = json!("10.9.9.9")).await.unwrap();
    let web = stage.patch(&resources, "web", json!({ "spec": { "policyName": null } })).await;
    let mut stray = OZGroup::new("stray", OZGroupSpec { name: "Stray".to_owned() });
    stray.metadata.owner_references = Some(vec![
        from_value(json!({ "apiVersion": "openzro.io/v1", "kind": "OZResource", "name": "web", "uid": web.uid() }))
            .unwrap(),
    ]);
    stage.create(&oz_groups, &stray).await;
    stage.delete(&resources, "old").await;
    stage.create(&groups, &group("new")).await;
    let key = json!({ "name": "new", "ephemeral": true });
    stage.create(&keys, &SetupKey::new("new", from_value::<SetupKeySpec>(key).unwrap())).await;
    let (before, writes, exempt_before) = (versions(&stage).await, stage.writes(), exempt(&stage).await);
    assert_eq!(exempt_before, 0);

    let log = stage.audit_log();
    let operator = stage.start(&[&FLAGS[..], &["--dry-run"]].concat()).await;
    let lists = stage.front.journal().len();
    let generated = |name: &str| format!("{name}-{}-{name}", stage.namespace);
    stage
        .until("all that is to be done was tried", async || {
            let asked = stage.requests(&log).await;
            let would_delete = |kind: &str, name: &str| {
                let path = format!("/{kind}/{name}");
                asked.iter().any(|(verb, uri)| verb == "delete" && uri.trim_end_matches('?').ends_with(&path))
            };
            let journal = stage.front.journal();
            journal[lists..].iter().any(|seen| seen.path.ends_with("/accounts"))
                && journal.len() > lists + 24
                && would_delete("ozpolicies", &generated("web"))
                && would_delete("ozpolicies", &generated("old"))
                && would_delete("ozgroups", "stray")
        })
        .await;
    operator.stop().await;
    // A deletion says in its body that it is none, which the log does not have; the versions below tell.
    let is_in_earnest = |(verb, uri): &(String, String)| verb != "delete" && !uri.contains("dryRun=All");
    let in_earnest: Vec<_> = stage.requests(&log).await.into_iter().filter(is_in_earnest).collect();
    assert!(in_earnest.is_empty(), "{in_earnest:#?}");
    assert_eq!(stage.writes(), writes, "{:#?}", stage.calls());
    assert_eq!((versions(&stage).await, exempt(&stage).await), (before, 0));

    // Without the flag all of it is done.
    let _operator = stage.start(&FLAGS).await;
    stage.gone(&resources, "old").await;
    stage.gone(&oz_groups, "stray").await;
    stage.gone(&Api::<OZPolicy>::all(stage.client.clone()), &generated("web")).await;
    stage.says(&groups, "new", "Ready", "Reconciled").await;
    stage.until("the group is exempt again", async || exempt(&stage).await == 1).await;
}
