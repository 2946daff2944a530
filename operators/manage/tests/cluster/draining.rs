//! `drain` before an uninstall (W19).

use k8s_openapi::api::core::v1::Service;
use konverge::{
    Options, RECORD,
    kube::{
        Api, Client, Error, Resource, ResourceExt,
        api::{DeleteParams, DynamicObject, PostParams},
        core::ApiResource,
    },
};
use konverge_manage::{
    api::{
        definitions,
        v1::{OZGroup, OZPolicy},
        v1alpha1::NetworkRouter,
    },
    program,
};
use konverge_testkit::{ControlPlane, eventually};
use serde_json::{Value, from_value, json};

use crate::stage::LIMIT;

/// A kind, a spec of it, and a finalizer that the operator sets on it.
struct Kind {
    resource: ApiResource,
    is_namespaced: bool,
    spec: Value,
    finalizer: &'static str,
}

impl Kind {
    fn new<K: Resource<DynamicType = ()>>(is_namespaced: bool, spec: Value, finalizer: &'static str) -> Self {
        Self { resource: ApiResource::erase::<K>(&()), is_namespaced, spec, finalizer }
    }

    fn api(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        if self.is_namespaced {
            Api::namespaced_with(client.clone(), namespace, &self.resource)
        } else {
            Api::all_with(client.clone(), &self.resource)
        }
    }

    async fn create(&self, api: &Api<DynamicObject>, name: &str, finalizers: &[&str]) {
        let metadata = json!({ "name": name, "finalizers": finalizers, "annotations": { RECORD: "{}" } });
        let object = json!({ "apiVersion": self.resource.api_version, "kind": self.resource.kind, "metadata": metadata,
            "spec": self.spec });
        let object: DynamicObject = from_value(object).unwrap();
        // The API server serves a new definition after a moment.
        let create = async || match api.create(&PostParams::default(), &object).await {
            Ok(created) => Some(created),
            Err(Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("{} {name}: {error}", self.resource.kind),
        };
        eventually(LIMIT, create).await.unwrap();
    }
}

/// It drains a whole cluster, which is its own therefore.
#[tokio::test(flavor = "multi_thread")]
async fn w19_drained_objects_keep_their_records_and_the_finalizers_of_others() {
    let plane = ControlPlane::start(konverge_testkit::Options::ours()).await.unwrap();
    let definitions: Vec<_> = definitions().iter().map(|crd| serde_json::to_string(crd).unwrap()).collect();
    plane.apply(&definitions.join("\n---\n")).await.unwrap();
    let (client, namespace) = (plane.admin_client().await.unwrap(), plane.namespace("drained").await.unwrap());
    let policy = json!({ "name": "p", "sourceGroups": ["a"], "destinationGroups": ["b"] });
    let kinds = [
        Kind::new::<NetworkRouter>(
            true,
            json!({ "dnsZoneRef": { "name": "z" } }),
            "finalizers.openzro.io/networkrouter",
        ),
        Kind::new::<OZGroup>(true, json!({ "name": "g" }), "openzro.io/group-cleanup"),
        Kind::new::<OZPolicy>(false, policy, "openzro.io/cleanup"),
        Kind::new::<Service>(true, json!({ "ports": [{ "port": 80 }] }), "openzro.io/cleanup"),
    ];
    let other = "example.com/other";
    for kind in &kinds {
        let api = kind.api(&client, &namespace);
        kind.create(&api, "kept", &[kind.finalizer, other]).await;
        kind.create(&api, "deleted", &[kind.finalizer]).await;
        // As after an operator was taken away.
        api.delete("deleted", &DeleteParams::default()).await.unwrap();
    }
    let drain = async |dry_run: bool| {
        let options = Options::default().with(|options| options.dry_run = dry_run);
        program::everything().unwrap().drain(&client, &options).await.unwrap();
    };
    for (dry_run, is_released) in [(true, false), (false, true), (false, true)] {
        drain(dry_run).await;
        for kind in &kinds {
            let (api, name) = (kind.api(&client, &namespace), &kind.resource.kind);
            let kept = api.get("kept").await.unwrap();
            let expected = if is_released { vec![other] } else { vec![kind.finalizer, other] };
            assert_eq!(kept.finalizers(), expected, "{name}");
            assert!(kept.annotations().contains_key(RECORD), "{name}");
            assert_eq!(api.get_opt("deleted").await.unwrap().is_none(), is_released, "{name}");
        }
    }
}
