//! A control plane with the operator installed, and a cloud.

use std::time::Duration;

use cloudbucket_operator::{Bucket, BucketSpec, DeletionPolicy, cloud::Settings};
use konverge::kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, PostParams},
};
use konverge_testkit::{AuditEntry, ControlPlane, InstalledOperator, Options, Process, events_about, eventually};

use crate::cloud::FakeCloud;

const PROGRAM: &str = "cloudbucket-operator";
/// How long a test waits for what takes milliseconds on a machine at rest.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);

pub(crate) const SETTINGS: Settings = Settings { versioning: true, retention_days: Some(7) };

pub(crate) struct Stage {
    plane: ControlPlane,
    operator: InstalledOperator,
    pub(crate) cloud: FakeCloud,
    client: Client,
    namespace: String,
}

impl Stage {
    /// The operator is installed, but does not run.
    pub(crate) async fn set() -> Self {
        let plane = ControlPlane::start(Options::ours()).await.unwrap();
        let client = plane.admin_client().await.unwrap();
        let home = plane.namespace("operator").await.unwrap();
        let files = cloudbucket_operator::operator().generate(&home).unwrap();
        let operator = plane.install(PROGRAM, &home, &files.manifest()).await.unwrap();
        let namespace = plane.namespace("user").await.unwrap();
        Self { plane, operator, cloud: FakeCloud::start().await, client, namespace }
    }

    /// Starts the operator. It asks the cloud about each bucket once a second.
    pub(crate) async fn start(&self) -> Process {
        let arguments = ["--leader-election", "--cloud-url", &self.cloud.server.url(), "--look-every", "1"];
        self.operator.start(PROGRAM, env!("CARGO_BIN_EXE_cloudbucket-operator"), &arguments).await.unwrap()
    }

    /// All requests of the operator to the API server.
    pub(crate) async fn requests(&self) -> Vec<AuditEntry> {
        let log = self.plane.audit_log().unwrap();
        log.catch_up(&self.client).await.unwrap();
        self.operator.requests(&log).unwrap()
    }

    pub(crate) fn buckets(&self) -> Api<Bucket> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates an object for the bucket of the same name.
    pub(crate) async fn create(&self, name: &str, deletion_policy: DeletionPolicy) {
        let Settings { versioning, retention_days } = SETTINGS;
        let spec = BucketSpec { bucket_name: name.to_owned(), versioning, retention_days, deletion_policy };
        self.buckets().create(&PostParams::default(), &Bucket::new(name, spec)).await.unwrap();
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.buckets().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until the object is gone.
    pub(crate) async fn gone(&self, name: &str) {
        let (buckets, what) = (self.buckets(), format!("{name} is gone"));
        self.until(&what, async || buckets.get_opt(name).await.unwrap().is_none()).await;
    }

    /// Waits until a condition of the object is true for this reason.
    pub(crate) async fn says(&self, name: &str, condition: &str, reason: &str) -> Bucket {
        let buckets = self.buckets();
        let found = eventually(LIMIT, || async {
            buckets.get_opt(name).await.unwrap().filter(|bucket| {
                let status = bucket.status.as_ref().map(|status| &status.standard);
                let found = status.and_then(|status| status.conditions.get(condition));
                found.is_some_and(|found| found.status == "True" && found.reason == reason)
            })
        });
        match found.await {
            Ok(bucket) => bucket,
            Err(konverge_testkit::NotInTime { .. }) => {
                panic!("{name} does not say {condition} {reason}: {:?}", buckets.get_opt(name).await)
            }
        }
    }

    /// Waits for an event of this reason about the object.
    pub(crate) async fn told(&self, name: &str, reason: &str) {
        self.until(&format!("{name} is told {reason}"), async || {
            let events = events_about(&self.client, &self.namespace, name).await.unwrap();
            events.iter().any(|event| event.reason.as_deref() == Some(reason))
        })
        .await;
    }

    /// Waits until this holds.
    pub(crate) async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let found = eventually(LIMIT, || async { holds().await.then_some(()) }).await;
        assert!(found.is_ok(), "not in time: {what}; the cloud has {:?}", self.cloud.buckets());
    }

    /// Whether the object has a finalizer of ours.
    pub(crate) async fn is_held(&self, name: &str) -> bool {
        !self.buckets().get(name).await.unwrap().finalizers().is_empty()
    }
}
