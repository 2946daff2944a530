//! The demo on a cluster that goes on after it: nothing that is there is touched, and nothing of the demo is left.

use std::{collections::BTreeMap, path::Path, time::Duration};

use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use konverge_testkit::{ControlPlane, Options, eventually};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::demo::Demo;

/// A cluster that is not the demo's. Its controller manager ends namespaces that were deleted.
async fn cluster() -> (ControlPlane, Client) {
    let options = Options::ours().with(|options| options.controller_manager = true);
    let control_plane = ControlPlane::start(options).await.unwrap();
    let client = control_plane.admin_client().await.unwrap();
    (control_plane, client)
}

/// All objects of a kind with their versions, by namespace and name.
async fn versions<K>(client: &Client) -> BTreeMap<String, String>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let list = Api::<K>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    let name =
        |object: &K| format!("{} {}/{}", K::kind(&()), object.namespace().unwrap_or_default(), object.name_any());
    list.items.iter().map(|object| (name(object), object.resource_version().unwrap_or_default())).collect()
}

/// All that the demo could touch, with versions, which change with every change.
async fn contents(client: &Client) -> BTreeMap<String, String> {
    let mut all = versions::<Namespace>(client).await;
    all.extend(versions::<ServiceAccount>(client).await);
    all.extend(versions::<ConfigMap>(client).await);
    all.extend(versions::<ClusterRole>(client).await);
    // The controller manager fills these in its own time.
    all.retain(|name, _| !["admin", "edit", "view"].iter().any(|role| *name == format!("ClusterRole /{role}")));
    all.extend(versions::<ClusterRoleBinding>(client).await);
    all.extend(versions::<Role>(client).await);
    all.extend(versions::<RoleBinding>(client).await);
    all
}

/// Waits until the cluster is as it was before.
async fn is_as_before(client: &Client, before: &BTreeMap<String, String>) {
    let clean = async || (contents(client).await == *before).then_some(());
    if eventually(Duration::from_mins(1), clean).await.is_err() {
        assert_eq!(contents(client).await, *before);
    }
}

/// Installs the operator as its manifest's head says.
async fn install(client: &Client) {
    let namespace: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "konverge-system" }
    }))
    .unwrap();
    let manifest = include_str!("../../deploy/rbac/zopp-operator.yaml");
    let documents = manifest.split("\n---\n").map(|text| serde_saphyr::from_str(text).unwrap());
    for document in std::iter::once(namespace).chain(documents) {
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(document.types.as_ref().unwrap()).unwrap());
        let api: Api<DynamicObject> = match document.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let parameters = PatchParams::apply("kubectl");
        api.patch(&document.name_any(), &parameters, &Patch::Apply(&document)).await.unwrap();
    }
    // The controller manager's objects in every namespace exist before the test counts.
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "konverge-system");
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "konverge-system");
    let settled = async || {
        let both = (accounts.get_opt("default").await.unwrap(), maps.get_opt("kube-root-ca.crt").await.unwrap());
        matches!(both, (Some(_), Some(_))).then_some(())
    };
    eventually(Duration::from_mins(1), settled).await.unwrap();
}

#[tokio::test]
async fn an_installed_operator_survives_the_demo_and_the_demo_leaves_nothing() {
    let (control_plane, client) = cluster().await;
    install(&client).await;
    let before = contents(&client).await;
    let temporary = tempfile::tempdir().unwrap();
    let (succeeded, said) = Demo::start(temporary.path(), Some(control_plane.kubeconfig()), &[]).ends().await;
    assert!(succeeded, "{said}");
    assert!(said.contains("exactly the environment's keys: DATABASE_URL"), "{said}");
    is_as_before(&client, &before).await;
}

#[tokio::test]
async fn an_interrupted_demo_leaves_nothing() {
    let (control_plane, client) = cluster().await;
    install(&client).await;
    let before = contents(&client).await;
    let demo = |temporary: &Path| Demo::start(temporary, Some(control_plane.kubeconfig()), &[]);
    for (signal, moment) in [
        ("INT", "Setting the stage"),
        ("INT", "the stage is set"),
        ("TERM", "environment acme/backend/production"),
        ("TERM", "zopp secret set DATABASE_URL"),
        ("HUP", "is ready, under"),
        // By then there is an object with a finalizer, and nobody else who would take it off.
        ("INT", "Deployment applied"),
    ] {
        let temporary = tempfile::tempdir().unwrap();
        let mut demo = demo(temporary.path());
        demo.says(moment).await;
        demo.signal(signal).await;
        let (_, said) = demo.ends().await;
        assert!(said.contains("Interrupted. Everything is taken down."), "{signal} at {moment}: {said}");
        is_as_before(&client, &before).await;
    }
    // Its next line finds nobody who reads it, and it breaks off in panic.
    let temporary = tempfile::tempdir().unwrap();
    let mut demo = demo(temporary.path());
    demo.says("the stage is set").await;
    demo.loses_its_listener().await;
    is_as_before(&client, &before).await;
}

#[tokio::test]
async fn a_stage_that_cannot_be_set_is_taken_down_as_far_as_it_was() {
    let (control_plane, client) = cluster().await;
    let limited = control_plane.namespace("limited").await.unwrap();
    // May make namespaces, but no roles, of which the stage needs one.
    let rules = json!([
        { "apiGroups": [""], "resources": ["namespaces", "serviceaccounts"], "verbs": ["*"] },
        { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["list", "delete"] },
    ]);
    let metadata = json!({ "name": "limited" });
    let role = serde_json::from_value(json!({ "metadata": metadata, "rules": rules })).unwrap();
    Api::<ClusterRole>::all(client.clone()).create(&PostParams::default(), &role).await.unwrap();
    let binding = serde_json::from_value(json!({
        "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "limited" },
        "subjects": [{ "kind": "ServiceAccount", "name": "limited", "namespace": limited }],
    }))
    .unwrap();
    Api::<ClusterRoleBinding>::all(client.clone()).create(&PostParams::default(), &binding).await.unwrap();
    let kubeconfig = control_plane.service_account_kubeconfig(&limited, "limited").await.unwrap();
    let namespaces = async || versions::<Namespace>(&client).await.into_keys().collect::<Vec<_>>();
    let before = namespaces().await;

    let temporary = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(temporary.path(), Some(&kubeconfig), &[]);
    demo.says("Setting the stage").await;
    let (succeeded, said) = demo.ends().await;
    assert!(!succeeded, "{said}");
    let clean = async || (namespaces().await == before).then_some(());
    eventually(Duration::from_mins(1), clean).await.unwrap();
}
