//! Objects of the original's kind that this operator does not follow.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_testkit::until;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::json;

use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_zopp_secret_sync_gets_an_event_that_says_it_is_not_supported() {
    let world = World::new().await;
    let definitions = Api::<CustomResourceDefinition>::all(world.kubernetes.clone());
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "zoppsecretsyncs.zopp.dev" },
        "spec": {
            "group": "zopp.dev",
            "scope": "Namespaced",
            "names": { "kind": "ZoppSecretSync", "plural": "zoppsecretsyncs", "singular": "zoppsecretsync" },
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    });
    let parameters = PatchParams::apply("user").force();
    definitions.patch("zoppsecretsyncs.zopp.dev", &parameters, &Patch::Apply(&definition)).await.unwrap();
    let kind = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("zopp.dev", "v1alpha1", "ZoppSecretSync"),
        "zoppsecretsyncs",
    );
    let syncs = Api::<DynamicObject>::namespaced_with(world.kubernetes.clone(), &world.namespace, &kind);
    let object = DynamicObject::new("web", &kind).data(json!({ "spec": { "suspend": false } }));
    until("the kind is served", async || {
        syncs.create(&PostParams::default(), &object).await.map_err(|error| error.to_string())
    })
    .await;
    let _operator = world.operator(&[]).await;
    let text = world.told("web", "FeatureMissing").await;
    assert!(text.contains("ZoppSecretSync is not supported") && text.contains("zopp.dev/sync"), "{text}");
    // The object stays as it was created.
    assert_eq!(syncs.get("web").await.unwrap().metadata.generation, Some(1));
}
