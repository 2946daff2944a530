//! From the original to ours and back, on objects and content as the original leaves them (X5).

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use konverge_push::object::Kind;
use konverge_testkit::settles_at;
use konverge_vault::Deletion;
use kube::{
    Api, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::world::{QUIET, World, until};

const LEASE: &str = "vault-sync-operator.io";
const FINALIZER: &str = "vault-sync.io/finalizer";
const VERSIONS: &str = "vault-sync.io/secret-versions";

/// The original as it is seen from outside: what it writes on objects and in Vault.
struct Original<'a>(&'a World);

impl Original<'_> {
    /// It has seen these Secrets, and noted that with a full update.
    async fn noted(&self, kind: Kind, name: &str, secrets: &[&str]) -> String {
        let mut versions = serde_json::Map::new();
        for secret in secrets {
            let version = self.0.api(Kind::Secret).get_metadata(secret).await.unwrap().resource_version();
            versions.insert((*secret).to_owned(), version.into());
        }
        let versions = serde_json::Value::Object(versions).to_string();
        let mut object = self.0.api(kind).get(name).await.unwrap();
        object.annotations_mut().insert(VERSIONS.to_owned(), versions.clone());
        if !object.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
            object.finalizers_mut().push(FINALIZER.to_owned());
        }
        self.0.api(kind).replace(name, &PostParams::default(), &object).await.unwrap();
        versions
    }

    /// It deletes the content of the path softly, also that of another owner, and takes its finalizer off with a full update.
    async fn lets_go(&self, kind: Kind, name: &str, path: &str) {
        self.0.vault.delete(&self.0.locate(path).await, konverge_vault::Expected::Any, Deletion::Soft).await.unwrap();
        let mut object = self.0.api(kind).get(name).await.unwrap();
        object.finalizers_mut().retain(|finalizer| finalizer != FINALIZER);
        self.0.api(kind).replace(name, &PostParams::default(), &object).await.unwrap();
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.0.client.clone(), &self.0.home)
    }

    /// It leads, as controller-runtime notes it.
    async fn leads(&self) {
        let now = Some(MicroTime(Timestamp::now()));
        let spec = LeaseSpec {
            holder_identity: Some("the-original_1234".to_owned()),
            lease_duration_seconds: Some(15),
            acquire_time: now.clone(),
            renew_time: now,
            lease_transitions: Some(0),
            ..LeaseSpec::default()
        };
        let metadata = ObjectMeta { name: Some(LEASE.to_owned()), ..ObjectMeta::default() };
        self.leases().create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await.unwrap();
    }

    async fn renews(&self) {
        let change = json!({ "spec": { "renewTime": MicroTime(Timestamp::now()) } });
        self.leases().patch(LEASE, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    }

    async fn holder(&self) -> String {
        self.leases().get(LEASE).await.unwrap().spec.and_then(|spec| spec.holder_identity).unwrap_or_default()
    }
}

/// The requests of users, and the results of the original. Gives what it noted on one of the objects.
async fn worked(original: &Original<'_>, flat: &str) -> String {
    let world = original.0;
    let path = |rest: &str| world.path(rest);
    let asks = |path: &str| json!({ "vault-sync.io/path": path });
    for (name, value) in [("a", "1"), ("b", "2")] {
        world.secret(name, &[("k", value)], json!({})).await;
    }
    for name in ["plain", "stale", "going"] {
        world.secret(name, &[("k", name)], asks(&path(name))).await;
    }
    world.secret("flat", &[("k", "flat")], asks(flat)).await;
    world.workload(Kind::Deployment, "auto", &["a", "b"], asks(&path("auto"))).await;
    let list = json!([{ "name": "a", "keys": ["k"], "prefix": "a_" }, { "name": "b", "keys": ["k"] }]).to_string();
    let annotations = json!({ "vault-sync.io/path": path("custom"), "vault-sync.io/secrets": list });
    world.workload(Kind::Deployment, "custom", &[], annotations).await;
    world.workload(Kind::Deployment, "released", &["a"], asks(&path("released"))).await;

    // The results of the original: many versions of one, no rotation of another, and the content of a Secret that its Deployment no longer
    // uses.
    for _ in 0..3 {
        world.write(&path("plain"), &[("k", "plain")]).await;
    }
    world.write(&path("stale"), &[("k", "before the rotation")]).await;
    world.write(&path("going"), &[("k", "going")]).await;
    world.write(flat, &[("k", "flat")]).await;
    for (rest, value) in [("auto/a", "1"), ("auto/b", "2"), ("auto/dropped", "3"), ("released/a", "1")] {
        world.write(&path(rest), &[("k", value)]).await;
    }
    world.write(&path("custom"), &[("a_k", "1"), ("k", "2")]).await;
    let noted = original.noted(Kind::Secret, "plain", &["plain"]).await;
    for name in ["stale", "going", "flat"] {
        original.noted(Kind::Secret, name, &[name]).await;
    }
    for (name, secrets) in [("auto", &["a", "b"][..]), ("custom", &["a", "b"]), ("released", &["a"])] {
        original.noted(Kind::Deployment, name, secrets).await;
    }
    noted
}

#[tokio::test]
async fn x5_objects_of_the_original_are_taken_over_as_they_are_and_can_be_given_back() {
    let world = World::new().await;
    let original = Original(&world);
    let path = |rest: &str| world.path(rest);
    let asks = |path: &str| json!({ "vault-sync.io/path": path });
    let flat = format!("old/{}/flat", world.namespace);

    let noted = worked(&original, &flat).await;

    // While it leads, ours stands by.
    original.leads().await;
    let ours = world.operator(&["-leader-elect"]).await;
    let depth = async || ours.metric("workqueue_depth", "name=\"push\"");
    let written = world
        .writes_during(async {
            for _ in 0..3 {
                original.renews().await;
                settles_at("ours knows all objects and works on none", 7.0, QUIET, depth).await;
            }
        })
        .await;
    assert!(written.is_empty(), "{written:?}");
    assert_eq!(original.holder().await, "the-original_1234");
    // It is stopped. One object is deleted before ours works, and from one the annotation is taken.
    world.delete(Kind::Secret, "going").await;
    world.annotate(Kind::Deployment, "released", json!({ "vault-sync.io/path": null })).await;
    let taken = konverge_testkit::eventually(Duration::from_mins(1), || async {
        (original.holder().await != "the-original_1234").then_some(())
    });
    taken.await.expect("the lease runs out");

    for (kind, name) in
        [(Kind::Secret, "plain"), (Kind::Secret, "stale"), (Kind::Secret, "flat"), (Kind::Deployment, "auto")]
    {
        world.says(kind, name, "Synced").await;
    }
    world.says(Kind::Deployment, "custom", "Synced").await;
    for (rest, versions, owner) in [
        ("plain", 3, "Secret/plain"),
        ("auto/a", 1, "Deployment/auto"),
        ("auto/b", 1, "Deployment/auto"),
        ("custom", 1, "Deployment/custom"),
        ("stale", 2, "Secret/stale"),
    ] {
        assert_eq!(world.versions(&path(rest)).await, versions, "{rest}");
        let owner = format!("{}/{owner}", world.namespace);
        assert_eq!(world.marks(&path(rest)).await["vault-sync.io/owner"], owner, "{rest}");
    }
    world.holds(&path("stale"), &[("k", "stale")]).await;
    assert!(world.event("stale", "Adopted").await.contains(&path("stale")));
    let adopted = world.notes("plain").await;
    assert!(!adopted.iter().any(|note| note.contains("replaced")), "{adopted:?}");
    world.holds(&flat, &[("k", "flat")]).await;
    world.gone(Kind::Secret, "going").await;
    assert_eq!(world.read(&path("going")).await, None);
    until("what asks for nothing any more is let go", async || {
        let held = world.api(Kind::Deployment).get_metadata("released").await.unwrap().finalizers().to_vec();
        if held.is_empty() { Ok(()) } else { Err(format!("{held:?}")) }
    })
    .await;
    // A path that no object requests has no known owner, and stays.
    world.holds(&path("released/a"), &[("k", "1")]).await;
    world.holds(&path("auto/dropped"), &[("k", "3")]).await;
    assert_eq!(world.api(Kind::Secret).get_metadata("plain").await.unwrap().annotations()[VERSIONS], noted);
    // From now on nothing is left behind.
    world.workload(Kind::Deployment, "auto", &["a"], asks(&path("auto"))).await;
    world.is_deleted(&path("auto/b")).await;

    // Back: the original writes everything once, and what ours has left does not keep it from anything.
    ours.stop().await;
    world.write(&path("auto/a"), &[("k", "1")]).await;
    original.noted(Kind::Deployment, "auto", &["a"]).await;
    world.delete(Kind::Secret, "plain").await;
    original.lets_go(Kind::Secret, "plain", &path("plain")).await;
    world.gone(Kind::Secret, "plain").await;
    assert_eq!(world.read(&path("plain")).await, None);

    // And to ours again: its own is its own still.
    let ours = world.operator(&[]).await;
    world.annotate(Kind::Deployment, "auto", json!({ "vault-sync.io/sync-now": "now" })).await;
    world.rotate("b", &[("k", "4")]).await;
    world.holds(&path("custom"), &[("a_k", "1"), ("k", "4")]).await;
    ours.settled().await;
    world.says(Kind::Deployment, "auto", "Synced").await;
    assert_eq!(world.versions(&path("auto/a")).await, 2, "that of the original and no other");
}
