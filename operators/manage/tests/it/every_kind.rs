//! Promises that hold for each kind to which they apply.

use k8s_openapi::api::core::v1::{Secret, Service};
use konverge::{
    CustomStatus, Object,
    apply::Writable,
    kube::{
        Api, Resource, ResourceExt,
        api::{ListParams, PostParams},
        core::{NamespaceResourceScope, object::HasStatus},
    },
};
use konverge_manage::api::{
    v1::{OZGroup, OZPolicy, OZResource, OZRoutingPeer, OZSetupKey},
    v1alpha1::{Group, NetworkResource, NetworkRouter, SetupKey},
};
use konverge_openzro::Collection;
use konverge_testkit::DenyingPolicy;
use serde_json::{Value, from_value, json};

use crate::stage::Stage;

/// The conditions of an object that is served. No test cluster runs the pods of routing peers.
const READY: (&str, &str) = ("Ready", "Reconciled");
const WITHOUT_PODS: (&str, &str) = ("Reconciling", "WaitingForPods");

/// A kind with objects in a namespace, whose conditions the operator writes.
trait Kind:
    Object + Writable + Resource<DynamicType = (), Scope = NamespaceResourceScope> + HasStatus<Status: CustomStatus>
{
}

impl<K> Kind for K where
    K: Object + Writable + Resource<DynamicType = (), Scope = NamespaceResourceScope> + HasStatus<Status: CustomStatus>
{
}

async fn create<K: Kind>(stage: &Stage, name: &str, annotations: Value, spec: Value) -> K {
    let object = json!({ "metadata": { "name": name, "annotations": annotations }, "spec": spec });
    stage.create(&stage.api::<K>(), &from_value(object).unwrap()).await
}

/// Has an object adopt an item, and deletes the object, which asks for the deletion of the item.
async fn adopt_and_delete<K: Kind>(
    stage: &Stage,
    name: &str,
    adopt: &str,
    spec: Value,
    (condition, reason): (&str, &str),
) {
    let annotations = json!({ "konverge.dev/adopt": adopt, "konverge.dev/deletion": "delete" });
    create::<K>(stage, name, annotations, spec).await;
    stage.says(&stage.api::<K>(), name, condition, reason).await;
    stage.delete(&stage.api::<K>(), name).await;
    stage.gone(&stage.api::<K>(), name).await;
}

/// The kinds that are not here adopt nothing: policies, setup keys and DNS records.
#[tokio::test(flavor = "multi_thread")]
async fn an_adopted_item_survives_its_object_whatever_the_object_says_of_itself() {
    let stage = Stage::set().await;
    let mut groups = Vec::new();
    for name in ["adopted-by-name", "adopted-by-request"] {
        groups.push(stage.by_hand(&Collection::Groups, json!({ "name": name })).await);
    }
    let mut networks = Vec::new();
    for name in ["prod", "edge", "services", "of-resources"] {
        let fields = json!({ "name": name, "description": "hand-made" });
        networks.push(stage.by_hand(&Collection::Networks, fields).await);
    }
    let (services, of_resources) = (networks[2].as_str(), networks[3].as_str());
    let zone = json!({ "name": "prod.example", "domain": "prod.example", "enabled": true, "enable_search_domain": false,
        "distribution_groups": [stage.on_server(&Collection::Groups).await["All"]["id"]] });
    stage.by_hand(&Collection::Zones, zone).await;
    let _operator = stage.start(&["--cluster-name=prod"]).await;

    adopt_and_delete::<OZGroup>(&stage, "g", "", json!({ "name": "adopted-by-name" }), READY).await;
    adopt_and_delete::<Group>(&stage, "g", "true", json!({ "name": "adopted-by-request" }), READY).await;
    let spec = json!({ "exemptFromAdmission": false });
    adopt_and_delete::<OZRoutingPeer>(&stage, "peer", "", spec, WITHOUT_PODS).await;
    let of_router = json!({ "dnsZoneRef": { "name": "prod.example" } });
    adopt_and_delete::<NetworkRouter>(&stage, "edge", "true", of_router.clone(), WITHOUT_PODS).await;

    // The resource of a Service is in the network of a router, so it comes last.
    create::<NetworkRouter>(&stage, "services", json!({ "konverge.dev/adopt": "true" }), of_router).await;
    stage.says(&stage.api::<NetworkRouter>(), "services", WITHOUT_PODS.0, WITHOUT_PODS.1).await;
    let service = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
    stage.create(&stage.api(), &from_value::<Service>(service).unwrap()).await;
    let mut resources = Vec::new();
    for (network, name, address) in [(of_resources, "db", "10.9.0.1"), (services, "web", "10.9.0.2")] {
        let collection = Collection::Resources { network: network.to_owned() };
        let fields = json!({ "name": name, "description": "", "address": address, "enabled": true, "groups": [] });
        resources.push(stage.by_hand(&collection, fields).await);
    }
    let spec = json!({ "name": "db", "networkID": of_resources, "address": "10.9.0.1", "groups": ["All"] });
    adopt_and_delete::<OZResource>(&stage, "db", "true", spec, READY).await;
    let reference = json!({ "name": "services", "namespace": stage.namespace });
    let spec = json!({ "networkRouterRef": reference, "serviceRef": { "name": "web" } });
    adopt_and_delete::<NetworkResource>(&stage, "web", &resources[1], spec, READY).await;

    for (collection, expected) in
        [(Collection::Groups, groups), (Collection::Networks, networks), (Collection::AllResources, resources)]
    {
        let listed = stage.dashboard.list(&collection).await.unwrap();
        let ids: Vec<_> = listed.iter().map(konverge_openzro::Object::id).collect();
        assert!(
            expected.iter().all(|id| ids.contains(&id.as_str())),
            "{collection:?}: {ids:?}, not all of {expected:?}"
        );
    }
}

/// Waits until an object says that the API server refuses its child.
async fn refused<K: Kind>(stage: &Stage, name: &str) {
    let is_refused = async || {
        let object = stage.api::<K>().get(name).await.unwrap();
        let conditions = object.status().map(|status| status.standard().conditions.clone()).unwrap_or_default();
        conditions.get("Stalled").is_some_and(|stalled| stalled.message.contains("not this one"))
    };
    stage.until(&format!("{} {name} says who refuses its child", K::kind(&())), is_refused).await;
}

/// The object is served once the API server accepts its child.
async fn served<K: Kind>(stage: &Stage, name: &str, (condition, reason): (&str, &str)) {
    let again = json!({ "metadata": { "annotations": { "konverge.dev/reconcile-at": "1" } } });
    stage.patch(&stage.api::<K>(), name, again).await;
    stage.says(&stage.api::<K>(), name, condition, reason).await;
}

/// The kinds that are not here have no children in the cluster.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_the_api_server_refuses_makes_nothing_in_openzro() {
    let stage = Stage::set().await;
    let network = stage.by_hand(&Collection::Networks, json!({ "name": "n", "description": "" })).await;
    let policy = format!("web-{}-db", stage.namespace);
    let denied = [
        ("deployments", "pods"),
        ("secrets", "key"),
        ("ozgroups", "group"),
        ("deployments", "networkrouter-pods"),
        ("groups", "networkrouter-group"),
        ("secrets", "setup-key-k"),
        ("secrets", "k-key"),
        ("ozpolicies", policy.as_str()),
    ];
    let denied = DenyingPolicy::create(&stage.client, &stage.namespace, &denied).await.unwrap();
    // The API server heeds a policy a moment after it was made.
    let mut secret = Secret::default();
    secret.metadata.name = Some("setup-key-k".to_owned());
    let secrets = stage.api::<Secret>();
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let is_accepted = async || secrets.create(&dry_run, &secret).await.is_ok();
    stage.until("the policy is heeded", async || !is_accepted().await).await;
    let operator = stage.start(&["--allow-automatic-policy-creation"]).await;

    let none = || json!({});
    for name in ["pods", "key", "group"] {
        create::<OZRoutingPeer>(&stage, name, none(), json!({ "exemptFromAdmission": false })).await;
    }
    for name in ["pods", "group"] {
        create::<NetworkRouter>(&stage, name, none(), json!({ "dnsZoneRef": { "name": "prod.example" } })).await;
    }
    create::<SetupKey>(&stage, "k", none(), json!({ "name": "k", "ephemeral": false })).await;
    create::<OZSetupKey>(&stage, "k", none(), json!({ "name": "k" })).await;
    let spec = json!({ "name": "db", "networkID": network, "address": "10.9.0.1", "groups": ["All"], "policyName": "web",
        "policySourceGroups": ["All"], "tcpPorts": [5432] });
    create::<OZResource>(&stage, "db", none(), spec).await;
    for name in ["pods", "key", "group"] {
        refused::<OZRoutingPeer>(&stage, name).await;
    }
    for name in ["pods", "group"] {
        refused::<NetworkRouter>(&stage, name).await;
    }
    refused::<SetupKey>(&stage, "k").await;
    refused::<OZSetupKey>(&stage, "k").await;
    refused::<OZResource>(&stage, "db").await;
    stage.settled(&operator).await;
    assert_eq!(stage.writes(), 0, "{:#?}", stage.calls());
    let policies = Api::<OZPolicy>::all(stage.client.clone()).list(&ListParams::default()).await.unwrap();
    assert!(policies.items.iter().all(|found| found.name_any() != policy));

    denied.lift().await.unwrap();
    stage.until("the policy is gone", is_accepted).await;
    for name in ["pods", "key", "group"] {
        served::<OZRoutingPeer>(&stage, name, WITHOUT_PODS).await;
    }
    for name in ["pods", "group"] {
        served::<NetworkRouter>(&stage, name, WITHOUT_PODS).await;
    }
    served::<SetupKey>(&stage, "k", READY).await;
    served::<OZSetupKey>(&stage, "k", READY).await;
    served::<OZResource>(&stage, "db", READY).await;
}
