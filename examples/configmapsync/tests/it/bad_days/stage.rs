//! One control plane for all bad days, and for each of them an operator behind a proxy of its own.

use std::{collections::BTreeMap, time::Duration};

use configmapsync_operator::{ConfigMapSync, ConfigMapSyncSpec};
use k8s_openapi::api::core::v1::ConfigMap;
use konverge_testkit::{
    ControlPlane, InstalledOperator, Options, Process, ProxiedOperator, eventually,
    fault_proxy::{FaultProxy, Plan},
    http_get, settled,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// From the end of a fault to convergence: on a busy machine a call now and then gets no answer after its connection was cut, and is
/// given up after 30 seconds.
pub(super) const LIMIT: Duration = Duration::from_mins(1);

/// An operator that has done nothing for so long has settled.
const QUIET: Duration = Duration::from_secs(1);

/// Holds an installed operator; it ends with the process.
async fn installed() -> &'static (ControlPlane, InstalledOperator) {
    static INSTALLED: OnceCell<(ControlPlane, InstalledOperator)> = OnceCell::const_new();
    INSTALLED
        .get_or_init(|| async {
            let plane = ControlPlane::start(Options::ours()).await.unwrap();
            let namespace = plane.namespace("operator").await.unwrap();
            let files = configmapsync_operator::operator().generate(&namespace).unwrap();
            let operator = plane.install("configmapsync-operator", &namespace, &files.manifest()).await.unwrap();
            (plane, operator)
        })
        .await
}

/// A namespace, an operator that looks after it through a proxy, and a neighbour that nobody may touch.
pub(super) struct Stage {
    pub(super) client: Client,
    pub(super) proxy: FaultProxy,
    pub(super) home: String,
    pub(super) operator: Process,
    /// Of its health port.
    pub(super) address: String,
    foreign: ConfigMap,
}

impl Stage {
    pub(super) async fn set(name: &str) -> Self {
        Self::set_with(name, &[]).await
    }

    /// With arguments of its own.
    pub(super) async fn set_with(name: &str, arguments: &[&str]) -> Self {
        let stage = Self::set_after(name, arguments, async |_| {}).await;
        stage.create("app", "0").await;
        stage.converges("app", "0").await;
        stage
    }

    /// Without an object; what `before` makes is there when the operator starts.
    pub(super) async fn set_after(
        name: &str,
        arguments: &[&str],
        before: impl AsyncFnOnce(&Api<ConfigMapSync>),
    ) -> Self {
        let plane = &installed().await.0;
        let (client, home) = (plane.admin_client().await.unwrap(), plane.namespace(name).await.unwrap());
        let foreign = Api::namespaced(client.clone(), &home)
            .create(&PostParams::default(), &theirs("cms-foreign"))
            .await
            .unwrap();
        before(&Api::namespaced(client.clone(), &home)).await;
        let ProxiedOperator { proxy, process, address, .. } = start(name, &home, arguments).await;
        Self { client, proxy, home, operator: process, address, foreign }
    }

    pub(super) fn syncs(&self) -> Api<ConfigMapSync> {
        Api::namespaced(self.client.clone(), &self.home)
    }

    pub(super) fn copies(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.home)
    }

    /// Puts a plan in force.
    pub(super) fn befalls(&self, rules: &str) {
        self.proxy.set(plan(rules)).unwrap();
    }

    pub(super) async fn create(&self, name: &str, value: &str) -> ConfigMapSync {
        self.syncs().create(&PostParams::default(), &sync(name, &self.home, value)).await.unwrap()
    }

    pub(super) async fn change(&self, name: &str, value: &str) {
        self.merge_sync(name, json!({ "spec": { "data": { "value": value } } })).await;
    }

    pub(super) async fn merge_sync(&self, name: &str, patch: Value) {
        self.syncs().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(super) async fn merge_copy(&self, name: &str, patch: Value) {
        self.copies().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Waits until the copy has the value, and the object says so of its newest generation.
    pub(super) async fn converges(&self, name: &str, value: &str) {
        self.converges_within(LIMIT, name, value).await;
    }

    /// The same with another limit.
    pub(super) async fn converges_within(&self, limit: Duration, name: &str, value: &str) {
        let found = eventually(limit, || async {
            let sync = self.syncs().get(name).await.unwrap();
            let copy = self.copies().get_opt(&format!("cms-{name}")).await.unwrap()?;
            let is_same = copy.data.as_ref().and_then(|data| data.get("value")).is_some_and(|found| found == value);
            (is_same && says(&sync, "Ready", "ConfigMapSynced")).then_some(())
        });
        if found.await.is_err() {
            let (sync, copy) = (self.syncs().get(name).await, self.copies().get_opt(&format!("cms-{name}")).await);
            let journal = self.proxy.journal();
            let last = journal.iter().rev().take(12).map(|entry| format!("{}: {:?}", entry.request, entry.reached));
            let last: Vec<_> = last.collect();
            panic!("{sync:#?}\n{copy:#?}\n{last:#?}\n{:#?}\n{}", self.proxy.fired(), self.operator.logged());
        }
    }

    /// Waits until a condition of the object's newest generation is true for this reason.
    pub(super) async fn says(&self, name: &str, condition: &str, reason: &str) {
        let found = eventually(LIMIT, || async {
            says(&self.syncs().get(name).await.unwrap(), condition, reason).then_some(())
        });
        assert!(found.await.is_ok(), "{:#?}\n{}", self.syncs().get(name).await, self.operator.logged());
    }

    /// Waits until there is a copy.
    pub(super) async fn copy_of(&self, name: &str) -> ConfigMap {
        let copies = self.copies();
        let found = eventually(LIMIT, || async { copies.get_opt(&format!("cms-{name}")).await.unwrap() });
        found.await.unwrap()
    }

    /// Another replica, and what it is to be called.
    pub(super) async fn replica(&self, name: &str, arguments: &[&str]) -> ProxiedOperator {
        start(name, &self.home, arguments).await
    }

    /// Waits until the operator has nothing left to do, so that the test can say what it has not done.
    pub(super) async fn settles(&self) {
        settled(QUIET, async || http_get(&self.address, "/metrics").await.unwrap().1).await;
    }

    /// How often objects were written since the mark.
    pub(super) fn writes(&self, mark: usize) -> Vec<String> {
        self.proxy.requests_since(mark).writes()
    }

    /// How often a list began since the mark.
    pub(super) fn lists(&self, mark: usize) -> usize {
        self.proxy.requests_since(mark).lists()
    }

    /// The invariants after every bad day.
    pub(super) async fn end(mut self) {
        assert!(self.operator.status().is_none(), "the operator has ended:\n{}", self.operator.logged());
        let foreign = self.copies().get("cms-foreign").await.unwrap();
        assert_eq!(foreign, self.foreign, "what is not the operator's was touched");
        let journal = self.proxy.journal();
        assert!(!journal.iter().any(|entry| entry.request.name == "cms-foreign" && entry.request.is_mutating()));
    }
}

/// Starts an operator for a namespace.
async fn start(name: &str, home: &str, arguments: &[&str]) -> ProxiedOperator {
    let (_, installed) = installed().await;
    let arguments = [&["--namespace", home], arguments].concat();
    let binary = env!("CARGO_BIN_EXE_configmapsync-operator");
    installed.start_behind_proxy(name, binary, &arguments).await.unwrap()
}

pub(super) fn plan(rules: &str) -> Plan {
    Plan::parse(&format!("seed: 11\nrules:\n{rules}")).unwrap()
}

/// An object of the operator.
pub(super) fn sync(name: &str, target: &str, value: &str) -> ConfigMapSync {
    let data = BTreeMap::from([("value".to_owned(), value.to_owned())]);
    ConfigMapSync::new(name, ConfigMapSyncSpec { target_namespace: target.to_owned(), data })
}

/// A `ConfigMap` of somebody else.
pub(super) fn theirs(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("value".to_owned(), "theirs".to_owned())])),
        ..ConfigMap::default()
    }
}

fn says(sync: &ConfigMapSync, condition: &str, reason: &str) -> bool {
    let status = sync.status.as_ref().map(|status| &status.standard);
    status.and_then(|status| status.conditions.get(condition)).is_some_and(|found| {
        found.status == "True" && found.reason == reason && found.observed_generation == sync.metadata.generation
    })
}
