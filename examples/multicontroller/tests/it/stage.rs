//! A control plane with the operator installed, and how the tests wait.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{NamespaceResourceScope, api::core::v1::Secret};
use konverge_testkit::{AuditEntry, AuditLog, ControlPlane, InstalledOperator, Options, Process, eventually};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams, PostParams},
    core::object::HasStatus,
};
use multicontroller_operator::{
    secret_sync::{SecretSync, SecretSyncSpec},
    service_account_sync::{ServiceAccountSync, ServiceAccountSyncSpec},
    sync::SyncStatus,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

pub(crate) const LIMIT: Duration = Duration::from_mins(1);

/// A control plane with the operator installed but not running.
pub(crate) struct Stage {
    pub(crate) plane: ControlPlane,
    pub(crate) operator: InstalledOperator,
    client: Client,
    /// Where the objects are.
    pub(crate) home: String,
    /// Where the copies are.
    pub(crate) target: String,
}

impl Stage {
    pub(crate) async fn set() -> Self {
        let plane = ControlPlane::start(Options::default()).await.unwrap();
        let client = plane.admin_client().await.unwrap();
        let namespace = plane.namespace("operator").await.unwrap();
        let files = multicontroller_operator::operator().generate(&namespace).unwrap();
        let operator = plane.install("multicontroller-operator", &namespace, &files.manifest()).await.unwrap();
        let (home, target) = (plane.namespace("home").await.unwrap(), plane.namespace("target").await.unwrap());
        Self { plane, operator, client, home, target }
    }

    pub(crate) async fn start(&self, name: &str) -> Process {
        let binary = env!("CARGO_BIN_EXE_multicontroller-operator");
        self.operator.start(name, binary, &["--leader-election"]).await.unwrap()
    }

    /// The audit log from here on.
    pub(crate) async fn audit_from_now(&self) -> AuditLog {
        let log = self.plane.audit_log().unwrap();
        log.catch_up(&self.client).await.unwrap();
        log.from_now().unwrap()
    }

    /// The operator's requests to the API server in this log, also the newest.
    pub(crate) async fn requests(&self, log: &AuditLog) -> Vec<AuditEntry> {
        log.catch_up(&self.client).await.unwrap();
        self.operator.requests(log).unwrap()
    }

    pub(crate) fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn secret_syncs(&self) -> Api<SecretSync> {
        self.api(&self.home)
    }

    pub(crate) fn account_syncs(&self) -> Api<ServiceAccountSync> {
        self.api(&self.home)
    }

    pub(crate) async fn create_secret(&self, name: &str, data: &[(&str, &str)]) {
        let string_data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let spec = SecretSyncSpec { target_namespace: self.target.clone(), string_data };
        self.secret_syncs().create(&PostParams::default(), &SecretSync::new(name, spec)).await.unwrap();
    }

    pub(crate) async fn create_account(&self, name: &str, pull_secrets: &[&str]) {
        let image_pull_secrets = pull_secrets.iter().map(|name| (*name).to_owned()).collect();
        let target_namespace = self.target.clone();
        let spec = ServiceAccountSyncSpec { target_namespace, automount_token: false, image_pull_secrets };
        self.account_syncs().create(&PostParams::default(), &ServiceAccountSync::new(name, spec)).await.unwrap();
    }

    /// Waits until the copied Secret has exactly this data.
    pub(crate) async fn holds(&self, name: &str, data: &[(&str, &str)]) {
        let secrets = self.api::<Secret>(&self.target);
        let wanted: BTreeMap<_, _> = data.iter().map(|(key, value)| (*key, value.as_bytes())).collect();
        let found = eventually(LIMIT, || async {
            let data = secrets.get_opt(name).await.unwrap()?.data?;
            let found: BTreeMap<_, _> = data.iter().map(|(key, value)| (key.as_str(), value.0.as_slice())).collect();
            (found == wanted).then_some(())
        });
        assert!(found.await.is_ok(), "{name} does not hold {:?}", wanted.keys());
    }
}

/// Waits until the object says this of its present generation.
pub(crate) async fn says<K>(api: &Api<K>, name: &str, condition: &str, reason: Option<&str>) -> K
where
    K: Resource + HasStatus<Status = SyncStatus> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let found = eventually(LIMIT, || async {
        api.get_opt(name).await.unwrap().filter(|object| {
            let standard = object.status().map(|status| &status.standard);
            standard.and_then(|status| status.conditions.get(condition)).is_some_and(|found| {
                found.status == "True"
                    && reason.is_none_or(|reason| found.reason == reason)
                    && found.observed_generation == object.meta().generation
            })
        })
    });
    if let Ok(object) = found.await {
        return object;
    }
    panic!("{name} says {:?}", api.get(name).await.unwrap().status())
}

/// Waits until it is no more.
pub(crate) async fn gone<K: Resource + Clone + DeserializeOwned + std::fmt::Debug>(api: &Api<K>, name: &str) {
    let gone = eventually(LIMIT, || async { api.get_opt(name).await.unwrap().is_none().then_some(()) });
    assert!(gone.await.is_ok(), "{name} is still there");
}

/// Changes it as its user would.
pub(crate) async fn change<K>(api: &Api<K>, name: &str, change: Value)
where
    K: Resource + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}
