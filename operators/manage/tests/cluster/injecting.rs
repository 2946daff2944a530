//! Sidecars and protected groups, through the API server.

use std::{path::PathBuf, sync::Arc};

use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    core::v1::{ConfigMap, Namespace, Pod},
};
use konverge::{
    Operator,
    kube::{
        Api, ResourceExt,
        api::{DeleteParams, Patch, PatchParams, PostParams},
    },
};
use konverge_manage::{
    api::{
        v1::{OZGroup, OZResource, OZSetupKey},
        v1alpha1::{SetupKey, SidecarProfile},
    },
    webhook::{Callers, webhooks},
};
use konverge_testkit::{eventually, free_port};
use serde_json::{Value, from_value, json};

use crate::stage::{LIMIT, Place, Running, control_plane};

/// Configurations are for the whole cluster, so this one program answers for all tests; they run one after the other within one test.
const PROGRAM: &str = "openzro-operator";

impl Place {
    /// The authority of the certificate that the API server shows, in a file.
    async fn client_ca(&self) -> PathBuf {
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), "kube-system");
        let map = maps.get("extension-apiserver-authentication").await.unwrap();
        let path = control_plane().await.run_directory().path().join("client-ca.pem");
        std::fs::write(&path, &map.data.unwrap()["requestheader-client-ca-file"]).unwrap();
        path
    }

    async fn inject(&self, callers: Callers) -> Running {
        let operator = Operator::new(PROGRAM, "0").webhooks(webhooks(Arc::new(self.settings()), callers));
        let client_ca = if callers == Callers::ApiServer { Some(self.client_ca().await) } else { None };
        let port = free_port().unwrap();
        let running = self
            .run(operator, |options| {
                options.webhook.address = ([127, 0, 0, 1], port).into();
                options.webhook.url = Some(format!("https://127.0.0.1:{port}"));
                options.webhook.drain = 0;
                options.webhook.client_ca = client_ca;
            })
            .await;
        let mutating = Api::<MutatingWebhookConfiguration>::all(self.client.clone());
        let validating = Api::<ValidatingWebhookConfiguration>::all(self.client.clone());
        let told = eventually(LIMIT, async || {
            let mutating = mutating.get_opt(PROGRAM).await.unwrap()?.webhooks?;
            let validating = validating.get_opt(PROGRAM).await.unwrap()?.webhooks?;
            let mut configs = mutating.into_iter().map(|hook| hook.client_config);
            let mut others = validating.into_iter().map(|hook| hook.client_config);
            (configs.all(|config| config.ca_bundle.is_some()) && others.all(|config| config.ca_bundle.is_some()))
                .then_some(())
        });
        told.await.unwrap();
        running
    }

    async fn create_pod(&self, name: &str, annotations: Value) -> Result<Pod, String> {
        let pod = json!({
            "metadata": { "name": name, "labels": { "app": "web" }, "annotations": annotations },
            "spec": { "containers": [{ "name": "web", "image": "web:1" }], "automountServiceAccountToken": false },
        });
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        self.api::<Pod>().create(&dry_run, &from_value(pod).unwrap()).await.map_err(|error| error.to_string())
    }
}

fn names(pod: &Pod) -> Vec<String> {
    let spec = pod.spec.as_ref().unwrap();
    let init = spec.init_containers.iter().flatten();
    init.chain(&spec.containers).map(|container| container.name.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn w29_pods_get_their_sidecars_and_only_those_that_ask_for_one_can_be_refused() {
    let place = Place::new().await;
    // The API server admits pods only with this account.
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
    let accounts = place.api::<k8s_openapi::api::core::v1::ServiceAccount>();
    drop(accounts.create(&PostParams::default(), &from_value(account).unwrap()).await);
    let running = place.inject(Callers::ApiServer).await;

    let annotation = || json!({ "openzro.io/setup-key": "web" });
    let refused = eventually(LIMIT, async || place.create_pod("a", annotation()).await.err()).await.unwrap();
    assert!(refused.contains("names OZSetupKey web, and namespace"), "{refused}");
    assert!(refused.contains("mpod-v1.openzro.io"), "{refused}");
    assert_eq!(names(&place.create_pod("a", json!({})).await.unwrap()), ["web"]);

    let key = json!({ "metadata": { "name": "web" }, "spec": { "secretKeyRef": { "name": "s", "key": "k" } } });
    place.api::<OZSetupKey>().create(&PostParams::default(), &from_value(key).unwrap()).await.unwrap();
    let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    place.api::<OZSetupKey>().patch_status("web", &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
    let served = eventually(LIMIT, async || place.create_pod("a", annotation()).await.ok()).await.unwrap();
    assert_eq!(names(&served), ["web", "openzro"]);
    let init = json!({ "openzro.io/setup-key": "web", "openzro.io/init-sidecar": "true" });
    assert_eq!(names(&place.create_pod("a", init).await.unwrap()), ["openzro", "web"]);

    // Where Pod Security refuses the sidecar, the answer is about the sidecar.
    let namespaces = Api::<Namespace>::all(place.client.clone());
    let enforce = async |value: Value| {
        let label = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": value } } });
        namespaces.patch(&place.namespace, &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    };
    enforce(json!("baseline")).await;
    let refused = eventually(LIMIT, async || {
        place.create_pod("a", annotation()).await.err().filter(|why| why.contains("mpod-confined-v1.openzro.io"))
    });
    let refused = refused.await.unwrap();
    assert!(refused.contains("needs NET_ADMIN, which the label pod-security.kubernetes.io/enforce"), "{refused}");
    assert_eq!(names(&place.create_pod("a", json!({})).await.unwrap()), ["web"]);

    // A profile whose setup key is missing stops no pod, unless the namespace asks for that.
    let profile = json!({ "metadata": { "name": "p" }, "spec": { "setupKeyRef": { "name": "k" }, "podSelector": { "matchLabels": { "app": "web" } } } });
    place.api::<SidecarProfile>().create(&PostParams::default(), &from_value(profile).unwrap()).await.unwrap();
    enforce(Value::Null).await;
    let label = async |value: Value| {
        let label = json!({ "metadata": { "labels": { "konverge.dev/sidecar-profiles": value } } });
        namespaces.patch(&place.namespace, &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    };
    label(json!("required")).await;
    let refused = eventually(LIMIT, async || place.create_pod("b", json!({})).await.err()).await.unwrap();
    assert!(refused.contains("names SetupKey k, and the namespace has none of that name"), "{refused}");
    running.end().await;

    // If every caller is answered, no caller learns the names of a profile and its key.
    let running = place.inject(Callers::Anybody).await;
    let refused = eventually(LIMIT, async || {
        place.create_pod("b", json!({})).await.err().filter(|why| why.contains("The operator's log has the cause"))
    });
    let refused = refused.await.unwrap();
    assert!(!refused.contains("SetupKey k") && !refused.contains("SidecarProfile manage"), "{refused}");
    label(Value::Null).await;
    let admitted = eventually(LIMIT, async || place.create_pod("b", json!({})).await.ok()).await.unwrap();
    assert_eq!(names(&admitted), ["web"]);
    let key = json!({ "metadata": { "name": "k" }, "spec": { "name": "K", "ephemeral": true } });
    place.api::<SetupKey>().create(&PostParams::default(), &from_value(key).unwrap()).await.unwrap();
    let served = eventually(LIMIT, async || {
        place.create_pod("b", json!({})).await.ok().filter(|pod| names(pod) == ["openzro", "web"])
    });
    assert_eq!(served.await.unwrap().annotations()["openzro.io/sidecar-profile"], "p");
    enforce(json!("restricted")).await;
    let hardened = json!({
        "metadata": { "name": "b", "labels": { "app": "web" } },
        "spec": {
            "containers": [{
                "name": "web", "image": "web:1",
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            }],
            "securityContext": { "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": { "type": "RuntimeDefault" } },
        },
    });
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let admitted = eventually(LIMIT, async || {
        place.api::<Pod>().create(&dry_run, &from_value(hardened.clone()).unwrap()).await.ok()
    });
    assert_eq!(names(&admitted.await.unwrap()), ["web"], "the pod runs without what would have it refused");
    restricted_overrides(&place, &hardened).await;
    enforce(Value::Null).await;

    protected_group(&place).await;
    running.end().await;

    // Without the operator, annotated pods wait, and others do not.
    assert!(place.create_pod("c", annotation()).await.unwrap_err().contains("mpod-v1.openzro.io"));
    assert_eq!(names(&place.create_pod("c", json!({})).await.unwrap()), ["web"]);
}

/// Under Pod Security `restricted`, a profile without the capability has to meet the rest of the standard.
async fn restricted_overrides(place: &Place, hardened: &Value) {
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let profiles = place.api::<SidecarProfile>();
    let overridden = async |security_context: Value| {
        let change = json!({ "spec": { "containerOverride": { "securityContext": security_context } } });
        profiles.patch("p", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    };
    let create = async || place.api::<Pod>().create(&dry_run, &from_value(hardened.clone()).unwrap()).await;
    overridden(json!({ "capabilities": { "add": [], "drop": ["ALL"] } })).await;
    let refused = eventually(LIMIT, async || create().await.err()).await.unwrap().to_string();
    assert!(refused.contains("violates PodSecurity \"restricted"), "{refused}");
    assert!(refused.contains("allowPrivilegeEscalation != false (container \"openzro\""), "{refused}");
    overridden(json!({ "allowPrivilegeEscalation": false })).await;
    let served = eventually(LIMIT, async || create().await.ok().filter(|pod| names(pod) == ["openzro", "web"]));
    assert!(served.await.is_ok(), "{:?}", create().await);
}

async fn protected_group(place: &Place) {
    let resource = json!({ "metadata": { "name": "db" }, "spec": { "name": "R", "networkID": "n", "address": "a", "groups": ["G"] } });
    let resources = place.api::<OZResource>();
    let resource = resources.create(&PostParams::default(), &from_value(resource).unwrap()).await.unwrap();
    let owner = json!({ "apiVersion": "openzro.io/v1", "kind": "OZResource", "name": "db", "uid": resource.uid() });
    let group = json!({ "metadata": { "name": "g", "ownerReferences": [owner] }, "spec": { "name": "G" } });
    let groups = place.api::<OZGroup>();
    groups.create(&PostParams::default(), &from_value(group).unwrap()).await.unwrap();
    let dry_run = DeleteParams { dry_run: true, ..DeleteParams::default() };
    let refused = eventually(LIMIT, async || groups.delete("g", &dry_run).await.err()).await.unwrap().to_string();
    assert!(refused.contains("is in use by OZResource"), "{refused}");
    resources.delete("db", &DeleteParams::default()).await.unwrap();
    eventually(LIMIT, async || groups.delete("g", &dry_run).await.ok()).await.unwrap();
}
