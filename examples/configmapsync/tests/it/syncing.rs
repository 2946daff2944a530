//! From a `ConfigMapSync` to its copy and back to nothing.

use std::{collections::BTreeMap, time::Duration};

use configmapsync_operator::{ConfigMapSync, ConfigMapSyncSpec};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace},
    events::v1::Event,
};
use konverge_testkit::{AuditEntry, AuditLog, ControlPlane, InstalledOperator, Options, Process, RoleUse, eventually};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};

const PROGRAM: &str = "configmapsync-operator";
const LIMIT: Duration = Duration::from_mins(1);

/// A control plane with the operator installed but not running.
struct Stage {
    plane: ControlPlane,
    client: Client,
    operator: InstalledOperator,
    /// Where the objects are.
    home: String,
    /// Where the copies are.
    target: String,
}

impl Stage {
    async fn set() -> Self {
        let plane = ControlPlane::start(Options::ours()).await.unwrap();
        let client = plane.admin_client().await.unwrap();
        let operator_namespace = plane.namespace("operator").await.unwrap();
        let files = configmapsync_operator::operator().generate(&operator_namespace).unwrap();
        let operator = plane.install(PROGRAM, &operator_namespace, &files.manifest()).await.unwrap();
        let (home, target) = (plane.namespace("home").await.unwrap(), plane.namespace("target").await.unwrap());
        Self { plane, client, operator, home, target }
    }

    async fn operator(&self, name: &str) -> Process {
        let binary = env!("CARGO_BIN_EXE_configmapsync-operator");
        self.operator.start(name, binary, &["--leader-election"]).await.unwrap()
    }

    /// The audit log from here on.
    async fn audit_from_now(&self) -> AuditLog {
        let log = self.plane.audit_log().unwrap();
        log.catch_up(&self.client).await.unwrap();
        log.from_now().unwrap()
    }

    /// The operator's requests to the API server in this log, also the newest.
    async fn requests(&self, log: &AuditLog) -> Vec<AuditEntry> {
        log.catch_up(&self.client).await.unwrap();
        self.operator.requests(log).unwrap()
    }

    fn syncs(&self) -> Api<ConfigMapSync> {
        Api::namespaced(self.client.clone(), &self.home)
    }

    fn copies(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.target)
    }

    async fn create(&self, name: &str, data: &[(&str, &str)]) {
        let spec = ConfigMapSyncSpec { target_namespace: self.target.clone(), data: map(data) };
        self.syncs().create(&PostParams::default(), &ConfigMapSync::new(name, spec)).await.unwrap();
    }

    /// Waits until the copy has this data.
    async fn copied(&self, name: &str, data: &[(&str, &str)]) {
        let (copies, data) = (self.copies(), map(data));
        let found = eventually(LIMIT, || async {
            copies.get_opt(name).await.unwrap().filter(|copy| copy.data.as_ref() == Some(&data))
        });
        assert!(found.await.is_ok(), "{name} is {:?}", copies.get_opt(name).await);
    }

    /// Waits until the object says this of itself.
    async fn says(&self, name: &str, condition: &str, status: &str, reason: &str) -> ConfigMapSync {
        let syncs = self.syncs();
        let found = eventually(LIMIT, || async {
            syncs.get(name).await.ok().filter(|sync| {
                let standard = sync.status.as_ref().map(|status| &status.standard);
                standard.and_then(|status| status.conditions.get(condition)).is_some_and(|found| {
                    found.status == status
                        && found.reason == reason
                        && found.observed_generation == sync.metadata.generation
                })
            })
        });
        if let Ok(sync) = found.await {
            return sync;
        }
        panic!("{name} says {:?}", syncs.get(name).await.unwrap().status)
    }
}

fn map(data: &[(&str, &str)]) -> BTreeMap<String, String> {
    data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn merge(patch: serde_json::Value) -> Patch<serde_json::Value> {
    Patch::Merge(patch)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_follows_its_object_from_beginning_to_end() {
    let stage = Stage::set().await;
    let mut operator = stage.operator("operator").await;
    let parameters = PatchParams::default();

    // Made, with status, label and event.
    stage.create("app", &[("LOG_LEVEL", "info")]).await;
    stage.copied("cms-app", &[("LOG_LEVEL", "info")]).await;
    let sync = stage.says("app", "Ready", "True", "ConfigMapSynced").await;
    assert!(sync.status.as_ref().unwrap().ready);
    assert_eq!(sync.labels()["configmapsync.example.io/synced-to"], stage.target);
    assert_eq!(sync.finalizers(), ["configmapsync.example.io/cleanup"]);
    let events = Api::<Event>::namespaced(stage.client.clone(), &stage.home);
    let told = eventually(LIMIT, || async {
        let events = events.list(&ListParams::default()).await.unwrap().items;
        events.into_iter().find(|event| event.reason.as_deref() == Some("ConfigMapCreated"))
    });
    assert_eq!(told.await.unwrap().action.as_deref(), Some("Sync"));

    // Follows a change, and keys that go.
    let change = merge(serde_json::json!({"spec": {"data": {"LOG_LEVEL": null, "MAX": "100"}}}));
    stage.syncs().patch("app", &parameters, &change).await.unwrap();
    stage.copied("cms-app", &[("MAX", "100")]).await;

    // Row 10: drift is corrected across namespaces, and what others add stays theirs.
    let drift = merge(serde_json::json!({"data": {"MAX": "7", "THEIRS": "x"}}));
    stage.copies().patch("cms-app", &parameters, &drift).await.unwrap();
    stage.copied("cms-app", &[("MAX", "100"), ("THEIRS", "x")]).await;
    stage.copies().delete("cms-app", &DeleteParams::default()).await.unwrap();
    stage.copied("cms-app", &[("MAX", "100")]).await;

    // Row 9: a neighbour with the same target is no orphan, and the old copy goes when the target changes.
    stage.create("other", &[("a", "b")]).await;
    stage.copied("cms-other", &[("a", "b")]).await;
    stage.copied("cms-app", &[("MAX", "100")]).await;
    let elsewhere = stage.plane.namespace("elsewhere").await.unwrap();
    let change = merge(serde_json::json!({"spec": {"targetNamespace": elsewhere}}));
    stage.syncs().patch("other", &parameters, &change).await.unwrap();
    let gone =
        eventually(LIMIT, || async { stage.copies().get_opt("cms-other").await.unwrap().is_none().then_some(()) });
    gone.await.unwrap();

    // Deleted, with its copy.
    stage.syncs().delete("app", &DeleteParams::default()).await.unwrap();
    let gone = eventually(LIMIT, || async {
        let (sync, copy) = (stage.syncs().get_opt("app").await, stage.copies().get_opt("cms-app").await);
        (sync.unwrap().is_none() && copy.unwrap().is_none()).then_some(())
    });
    gone.await.unwrap();

    operator.terminate(Duration::from_secs(40)).await.unwrap();
    let requests = stage.requests(&stage.plane.audit_log().unwrap()).await;
    let rules = configmapsync_operator::operator().grant("default").rules();
    assert_eq!(RoleUse::of(&requests, &rules), RoleUse::default(), "no 403 and no verb unused");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_explained_and_nothing_is_lost() {
    let stage = Stage::set().await;
    let _operator = stage.operator("operator").await;

    // Row 18: a failure is in the status.
    let spec = ConfigMapSyncSpec { target_namespace: "nowhere".to_owned(), data: map(&[]) };
    stage.syncs().create(&PostParams::default(), &ConfigMapSync::new("lost", spec)).await.unwrap();
    let sync = stage.says("lost", "Reconciling", "True", "NotFound").await;
    assert!(sync.status.as_ref().unwrap().message.contains("nowhere"), "{:?}", sync.status);
    let namespace = Namespace {
        metadata: ObjectMeta { name: Some("nowhere".to_owned()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    Api::<Namespace>::all(stage.client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    stage.says("lost", "Ready", "True", "ConfigMapSynced").await;

    // Objects that are not ours are left alone.
    let foreign = ConfigMap {
        metadata: ObjectMeta { name: Some("cms-taken".to_owned()), ..ObjectMeta::default() },
        data: Some(map(&[("theirs", "1")])),
        ..ConfigMap::default()
    };
    stage.copies().create(&PostParams::default(), &foreign).await.unwrap();
    stage.create("taken", &[("ours", "2")]).await;
    stage.says("taken", "Stalled", "True", "NotOurs").await;
    stage.copied("cms-taken", &[("theirs", "1")]).await;
    // Others are not held up, and deleting the one that failed deletes nothing of others.
    stage.create("fine", &[("a", "b")]).await;
    stage.copied("cms-fine", &[("a", "b")]).await;
    stage.syncs().delete("taken", &DeleteParams::default()).await.unwrap();
    let gone = eventually(LIMIT, || async { stage.syncs().get_opt("taken").await.unwrap().is_none().then_some(()) });
    gone.await.unwrap();
    stage.copied("cms-taken", &[("theirs", "1")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_rest_and_after_a_restart_nothing_is_written() {
    let stage = Stage::set().await;
    let mut operator = stage.operator("first").await;
    for number in 0..20 {
        stage.create(&format!("app-{number}"), &[("number", &number.to_string())]).await;
    }
    for number in 0..20 {
        stage.says(&format!("app-{number}"), "Ready", "True", "ConfigMapSynced").await;
    }
    operator.terminate(Duration::from_secs(40)).await.unwrap();
    let audit = stage.audit_from_now().await;
    let _again = stage.operator("second").await;
    // The second operator reports everything that it finds before it follows this change.
    stage.create("last", &[("a", "b")]).await;
    stage.says("last", "Ready", "True", "ConfigMapSynced").await;
    let requests = stage.requests(&audit).await.into_iter();
    let (events, writes): (Vec<_>, Vec<_>) = requests
        .filter(AuditEntry::is_mutating)
        .filter(|entry| entry.object_ref.resource != "leases" && !entry.object_ref.name.ends_with("last"))
        .map(|entry| entry.request_uri)
        .partition(|uri| uri.contains("/events"));
    assert!(writes.is_empty(), "{writes:#?}");
    assert!(events.len() <= 1, "one about the last, but {events:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_object_of_the_readme_comes_true() {
    let stage = Stage::set().await;
    let _operator = stage.operator("operator").await;
    let objects = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/objects/app-config.yaml")).unwrap();
    // In namespaces of this test alone.
    let objects = objects
        .replace("production", &stage.target)
        .replace("namespace: default", &format!("namespace: {}", stage.home));
    stage.plane.apply(&objects).await.unwrap();
    let data = [("LOG_LEVEL", "info"), ("FEATURE_FLAGS", "dark-mode,new-dashboard"), ("MAX_CONNECTIONS", "100")];
    stage.copied("cms-app-config", &data).await;
}
