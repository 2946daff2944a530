//! Remembering in a real API server, under exactly the documented permissions.

use k8s_openapi::api::{
    core::v1::{ConfigMap, Secret},
    rbac::v1::{Role, RoleBinding},
};
use konverge_external::{Change, Entries, Memory, MemoryError, http::HttpSource, memory::ConfigMapMemory, watch};
use konverge_testkit::{ControlPlane, Options, client_for};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::{
    next, options, quiet_until,
    server::{Server, answer},
};

const NAME: &str = "remembered";

/// One for all tests of this binary; it ends with the process.
pub(crate) async fn control_plane() -> &'static ControlPlane {
    static CONTROL_PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    CONTROL_PLANE.get_or_init(|| async { ControlPlane::start(Options::default()).await.unwrap() }).await
}

/// An administrator, and somebody who may do what the memory needs and no more, in a new namespace.
async fn clients() -> (Client, Client, String) {
    let control_plane = control_plane().await;
    let administrator = control_plane.admin_client().await.unwrap();
    let namespace = control_plane.namespace("external").await.unwrap();
    let role: Role = serde_json::from_value(json!({
        "metadata": { "name": "memory" },
        "rules": [
            { "apiGroups": [""], "resources": ["configmaps"], "resourceNames": [NAME], "verbs": ["get", "patch"] },
            { "apiGroups": [""], "resources": ["secrets"], "resourceNames": [NAME], "verbs": ["get"] },
            { "apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["create"] },
        ],
    }))
    .unwrap();
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": { "name": "memory" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "memory" },
        "subjects": [{ "kind": "ServiceAccount", "name": "memory", "namespace": namespace }],
    }))
    .unwrap();
    let parameters = PostParams::default();
    Api::namespaced(administrator.clone(), &namespace).create(&parameters, &role).await.unwrap();
    Api::namespaced(administrator.clone(), &namespace).create(&parameters, &binding).await.unwrap();
    let kubeconfig = control_plane.service_account_kubeconfig(&namespace, "memory").await.unwrap();
    (administrator, client_for(&kubeconfig).await.unwrap(), namespace)
}

fn entries(pairs: &[(&str, &str)]) -> Entries {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn what_was_saved_is_there_for_the_next_process() {
    let (administrator, client, namespace) = clients().await;
    let maps = Api::<ConfigMap>::namespaced(administrator.clone(), &namespace);
    let new = || ConfigMapMemory::new(client.clone(), &namespace, NAME);

    let mut first = new();
    let before = first.load().await.unwrap();
    assert!(before.entries.is_empty());
    first.save(&entries(&[("a", "1"), ("b", "1")])).await.unwrap();
    let mut second = new();
    let after = second.load().await.unwrap();
    assert_eq!(after.entries, entries(&[("a", "1"), ("b", "1")]));
    assert_eq!(after.key.fingerprint(&[b"x"]), before.key.fingerprint(&[b"x"]));

    // An unchanged state is not written, and labels and keys of others stay.
    let theirs = json!({ "metadata": { "labels": { "theirs": "yes" } }, "data": { "theirs": "yes" } });
    let map = maps.patch(NAME, &PatchParams::default(), &Patch::Merge(&theirs)).await.unwrap();
    second.save(&after.entries).await.unwrap();
    assert_eq!(maps.get(NAME).await.unwrap().resource_version(), map.resource_version());
    second.save(&entries(&[("a", "2")])).await.unwrap();
    let map = maps.get(NAME).await.unwrap();
    assert_eq!(map.labels()["theirs"], "yes");
    let data = map.data.clone().unwrap();
    assert_eq!((data["theirs"].as_str(), data["remembered.json"].as_str()), ("yes", r#"{"a":"2"}"#));
    let managers: Vec<_> = map.managed_fields().iter().filter_map(|entry| entry.manager.as_deref()).collect();
    assert!(managers.contains(&"konverge-external"), "{managers:?}");

    // The key is where only those look who may read Secrets.
    let secret = Api::<Secret>::namespaced(administrator, &namespace).get(NAME).await.unwrap();
    assert_eq!(secret.data.unwrap()["fingerprint-key"].0.len(), 32);
}

#[tokio::test]
async fn two_that_start_at_once_agree_on_a_key() {
    let (_, client, namespace) = clients().await;
    let load = || async {
        let mut memory = ConfigMapMemory::new(client.clone(), &namespace, NAME);
        memory.load().await.unwrap().key.fingerprint(&[b"x"])
    };
    let keys = tokio::join!(load(), load(), load(), load());
    assert!(keys.0 == keys.1 && keys.1 == keys.2 && keys.2 == keys.3);
}

#[tokio::test]
async fn too_much_something_else_and_a_refusal_are_clear_errors() {
    let (administrator, client, namespace) = clients().await;
    let mut memory = ConfigMapMemory::new(client.clone(), &namespace, NAME);
    memory.load().await.unwrap();
    let many = (0..30_000).map(|number| (format!("path/{number:06}"), "0".repeat(32))).collect();
    let error = memory.save(&many).await.unwrap_err();
    assert!(matches!(error, MemoryError::TooLarge { entries: 30_000, .. }), "{error}");
    assert!(error.to_string().contains(&format!("ConfigMap {namespace}/{NAME}")), "{error}");

    let maps = Api::<ConfigMap>::namespaced(administrator, &namespace);
    let broken = json!({ "metadata": { "name": NAME }, "data": { "remembered.json": "[1" } });
    maps.create(&PostParams::default(), &serde_json::from_value(broken).unwrap()).await.unwrap();
    let error = memory.load().await.err().unwrap();
    assert!(error.to_string().contains("delete it to start over"), "{error}");

    let error = ConfigMapMemory::new(client, &namespace, "another").load().await.err().unwrap();
    let text = konverge_external::SourceError::new(error).to_string();
    assert!(text.contains(&format!("cannot read Secret {namespace}/another")) && text.contains("forbidden"), "{text}");
}

#[tokio::test]
async fn a_source_goes_on_where_it_was() {
    let (_, client, namespace) = clients().await;
    let server = Server::start(|_| answer(200, &[], "hunter2")).await;
    let start = || {
        let memory = ConfigMapMemory::new(client.clone(), &namespace, NAME);
        watch(HttpSource::new("document", server.endpoint()), options().memory(memory))
    };
    let (mut changes, _) = start();
    assert!(matches!(next(&mut changes).await, Change::Added(_)));
    quiet_until(&mut changes, server.times(2)).await;
    drop(changes);
    server.answers(|_| answer(200, &[], "hunter3"));
    let (mut changes, _) = start();
    assert!(matches!(next(&mut changes).await, Change::Modified(_)));
}

#[tokio::test]
async fn of_several_replicas_the_one_that_read_last_writes() {
    let (_, client, namespace) = clients().await;
    let new = || ConfigMapMemory::new(client.clone(), &namespace, NAME);
    // Neither overwrites what the other has made or changed since it looked.
    let (mut deposed, mut leader) = (new(), new());
    deposed.load().await.unwrap();
    leader.load().await.unwrap();
    leader.save(&entries(&[("a", "1")])).await.unwrap();
    let error = deposed.save(&entries(&[("a", "0")])).await.unwrap_err();
    assert!(matches!(error, MemoryError::Changed { .. }), "{error}");
    assert!(error.to_string().starts_with(&format!("ConfigMap {namespace}/{NAME} is not written")), "{error}");
    assert_eq!(new().load().await.unwrap().entries, entries(&[("a", "1")]));

    leader.save(&entries(&[("a", "2")])).await.unwrap();
    assert!(matches!(deposed.save(&entries(&[("a", "0")])).await, Err(MemoryError::Changed { .. })));
    assert_eq!(deposed.load().await.unwrap().entries, entries(&[("a", "2")]));
    // Having read it, it is the next to write.
    deposed.save(&entries(&[("a", "3")])).await.unwrap();
    assert!(matches!(leader.save(&entries(&[("a", "4")])).await, Err(MemoryError::Changed { .. })));
    assert_eq!(new().load().await.unwrap().entries, entries(&[("a", "3")]));
}

#[tokio::test]
async fn a_memory_that_was_deleted_is_made_again() {
    let (administrator, client, namespace) = clients().await;
    let mut memory = ConfigMapMemory::new(client, &namespace, NAME);
    memory.load().await.unwrap();
    memory.save(&entries(&[("a", "1")])).await.unwrap();
    Api::<ConfigMap>::namespaced(administrator, &namespace).delete(NAME, &DeleteParams::default()).await.unwrap();
    memory.save(&entries(&[("a", "2")])).await.unwrap();
    assert_eq!(memory.load().await.unwrap().entries, entries(&[("a", "2")]));
}
