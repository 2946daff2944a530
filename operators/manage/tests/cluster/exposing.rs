//! Exposed Services on a real API server, without openZro: the resources that they ask for.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use konverge::{
    Operator,
    kube::{
        ResourceExt,
        api::{Patch, PatchParams, PostParams},
    },
};
use konverge_manage::{
    api::v1::{OZResource, OZRoutingPeer},
    expose,
};
use konverge_testkit::eventually;
use serde_json::{Value, from_value, json};

use crate::stage::{LIMIT, Place, Running, control_plane};

impl Place {
    async fn expose(&self) -> Running {
        let operator = Operator::new("openzro-operator", "0").controller(expose::services(&Arc::new(self.settings())));
        self.run(operator, |_| ()).await
    }

    async fn create_service(&self, name: &str, annotations: Value) -> Service {
        let service = json!({
            "metadata": { "name": name, "annotations": annotations },
            "spec": { "ports": [{ "name": "http", "port": 80 }, { "name": "https", "port": 443 }] },
        });
        self.api().create(&PostParams::default(), &from_value(service).unwrap()).await.unwrap()
    }

    async fn merge_service(&self, name: &str, change: Value) {
        self.api::<Service>().patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    }

    /// Does the part of openZro: the routing peer gets a network.
    async fn give_network(&self, id: &str) {
        let status = json!({ "status": { "networkID": id } });
        let peers = self.api::<OZRoutingPeer>();
        eventually(LIMIT, async || peers.get_opt("router").await.unwrap()).await.unwrap();
        peers.patch_status("router", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    /// Waits for a resource that this holds of.
    async fn resource(&self, name: &str, expected: impl Fn(&OZResource) -> bool) -> OZResource {
        let resources = self.api::<OZResource>();
        let found = eventually(LIMIT, async || resources.get_opt(name).await.unwrap().filter(|found| expected(found)));
        if let Ok(resource) = found.await {
            return resource;
        }
        panic!("{:#?}", resources.get_opt(name).await.unwrap())
    }

    async fn resource_is_gone(&self, name: &str) {
        let resources = self.api::<OZResource>();
        let gone = eventually(LIMIT, async || resources.get_opt(name).await.unwrap().is_none().then_some(()));
        gone.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn w7_an_exposed_service_has_a_resource_that_follows_it_exactly() {
    let place = Place::new().await;
    let running = place.expose().await;
    place.create_service("web", json!({ "openzro.io/expose": "true", "openzro.io/policy": "web" })).await;
    place.give_network("n1").await;
    let resource = place.resource("web", |_| true).await;
    assert_eq!((resource.spec.network_id.as_str(), &resource.spec.tcp_ports[..]), ("n1", &[80, 443][..]));
    assert_eq!(resource.spec.address, format!("web.{}.svc.cluster.local", place.namespace));

    // A port that goes, an edit by hand, and the policy that goes.
    place.merge_service("web", json!({ "spec": { "ports": [{ "name": "https", "port": 443 }] } })).await;
    place.resource("web", |resource| resource.spec.tcp_ports == [443]).await;
    let by_hand = json!({ "spec": { "tcpPorts": [22, 443], "groups": ["Everybody"] } });
    place.api::<OZResource>().patch("web", &PatchParams::default(), &Patch::Merge(by_hand)).await.unwrap();
    let expected = resource.spec.groups.clone();
    place.resource("web", |resource| resource.spec.tcp_ports == [443] && resource.spec.groups == expected).await;
    place.merge_service("web", json!({ "metadata": { "annotations": { "openzro.io/policy": null } } })).await;
    place.resource("web", |resource| resource.spec.policy_name.is_empty() && resource.spec.tcp_ports.is_empty()).await;

    // A change that concerns no resource is looked at, and nothing is written.
    let log = control_plane().await.audit_log().unwrap();
    log.catch_up(&place.client).await.unwrap();
    let log = log.from_now().unwrap();
    place.merge_service("web", json!({ "metadata": { "labels": { "any": "thing" } } })).await;
    place.create_service("later", json!({ "openzro.io/expose": "true" })).await;
    place.resource("later", |_| true).await;
    running.settled().await;
    log.catch_up(&place.client).await.unwrap();
    let entries = log.entries().unwrap();
    let of_namespace =
        entries.iter().filter(|entry| entry.object_ref.namespace == place.namespace && entry.is_mutating());
    let written: Vec<_> = of_namespace.filter(|entry| entry.object_ref.resource == "ozresources").collect();
    assert!(written.len() == 1 && written[0].object_ref.name == "later", "{written:?}");

    place.merge_service("web", json!({ "metadata": { "annotations": { "openzro.io/expose": "false" } } })).await;
    place.resource_is_gone("web").await;
    running.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_openzro_operator_left_is_taken_over_and_its_finalizer_released() {
    let place = Place::new().await;
    let service = place.create_service("web", json!({ "openzro.io/expose": "", "openzro.io/policy": "web" })).await;
    place.merge_service("web", json!({ "metadata": { "finalizers": ["openzro.io/cleanup"] } })).await;
    let left = json!({
        "metadata": { "name": "web", "finalizers": ["openzro.io/cleanup"] },
        "spec": {
            "name": "old", "networkID": "n1", "address": format!("web.{}.svc.cluster.local", place.namespace), "groups": ["g"],
            "policyName": "web", "tcpPorts": [80, 443, 8443], "udpPorts": [53], "policyFriendlyName": { "web": "Old" },
        },
    });
    place.api::<OZResource>().create(&PostParams::default(), &from_value(left).unwrap()).await.unwrap();
    let peer = json!({ "metadata": { "name": "router" } });
    place.api::<OZRoutingPeer>().create(&PostParams::default(), &from_value(peer).unwrap()).await.unwrap();
    place.give_network("n1").await;
    let running = place.expose().await;
    let after = place.resource("web", |resource| !resource.owner_references().is_empty()).await;
    assert_eq!(after.owner_references()[0].uid, service.uid().unwrap());
    assert_eq!((&after.spec.tcp_ports[..], after.spec.udp_ports.len()), (&[80, 443][..], 0));
    assert!(after.spec.policy_friendly_name.is_empty());
    let services = place.api::<Service>();
    let released = eventually(LIMIT, async || services.get("web").await.unwrap().finalizers().is_empty().then_some(()));
    released.await.unwrap();
    running.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_with_the_finalizer_of_openzro_operator_is_released_when_it_is_deleted() {
    let place = Place::new().await;
    place.create_service("web", json!({})).await;
    place.merge_service("web", json!({ "metadata": { "finalizers": ["openzro.io/cleanup"] } })).await;
    let services = place.api::<Service>();
    services.delete("web", &konverge::kube::api::DeleteParams::default()).await.unwrap();
    let running = place.expose().await;
    let gone = eventually(LIMIT, async || services.get_opt("web").await.unwrap().is_none().then_some(()));
    gone.await.unwrap();
    running.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn w6_a_resource_of_a_person_survives_a_service_of_its_name() {
    let place = Place::new().await;
    let by_hand = json!({
        "metadata": { "name": "web" },
        "spec": { "name": "mine", "networkID": "n1", "address": "10.0.0.1", "groups": ["g"] },
    });
    let resources = place.api::<OZResource>();
    let made = resources.create(&PostParams::default(), &from_value(by_hand).unwrap()).await.unwrap();
    let running = place.expose().await;
    // One Service that is not exposed, and then is; another one tells that the operator has been at it.
    place.create_service("web", json!({})).await;
    place.create_service("other", json!({ "openzro.io/expose": "true" })).await;
    place.give_network("n1").await;
    place.resource("other", |_| true).await;
    place.merge_service("web", json!({ "metadata": { "annotations": { "openzro.io/expose": "true" } } })).await;
    place.create_service("last", json!({ "openzro.io/expose": "true" })).await;
    place.resource("last", |_| true).await;
    running.settled().await;
    let after = resources.get("web").await.unwrap();
    assert_eq!((after.uid(), after.resource_version()), (made.uid(), made.resource_version()));
    // It is exposed as soon as the name is free.
    resources.delete("web", &konverge::kube::api::DeleteParams::default()).await.unwrap();
    place.resource("web", |resource| resource.uid() != made.uid() && resource.spec.network_id == "n1").await;
    running.end().await;
}
