//! One control plane for all bad days, and for each of them an operator behind a proxy of its own.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    ByteString, NamespaceResourceScope,
    api::core::v1::{Secret, ServiceAccount},
};
use konverge_testkit::{
    ControlPlane, InstalledOperator, Options, Process, ProxiedOperator, Verb, eventually,
    fault_proxy::{FaultProxy, JournalEntry, Plan},
    http_get, metric, settled, until,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, ObjectMeta, PostParams},
};
use multicontroller_operator::{
    secret_sync::{SecretSync, SecretSyncSpec},
    service_account_sync::{ServiceAccountSync, ServiceAccountSyncSpec},
};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::stage::{change, says};

/// From the end of a fault to convergence: on a busy machine a call now and then gets no answer after its connection was cut, and is
/// given up after 30 seconds.
pub(super) const RECOVERED: Duration = Duration::from_mins(1);

/// An operator that has done nothing for so long has settled.
const QUIET: Duration = Duration::from_secs(1);

/// Holds an installed operator; it ends with the process.
async fn installed() -> &'static (ControlPlane, InstalledOperator) {
    static INSTALLED: OnceCell<(ControlPlane, InstalledOperator)> = OnceCell::const_new();
    INSTALLED
        .get_or_init(|| async {
            let plane = ControlPlane::start(Options::ours()).await.unwrap();
            let namespace = plane.namespace("operator").await.unwrap();
            let files = multicontroller_operator::operator().generate(&namespace).unwrap();
            let operator = plane.install("multicontroller-operator", &namespace, &files.manifest()).await.unwrap();
            (plane, operator)
        })
        .await
}

/// A namespace with an object `app` of each kind, an operator behind a proxy, and a Secret that nobody may touch.
pub(super) struct BadDay {
    pub(super) proxy: FaultProxy,
    pub(super) operator: Process,
    /// Of its health port.
    pub(super) address: String,
    client: Client,
    home: String,
    foreign: Secret,
}

impl BadDay {
    pub(super) async fn begin(name: &str) -> Self {
        Self::begin_with(name, &[]).await
    }

    /// With arguments of its own.
    pub(super) async fn begin_with(name: &str, arguments: &[&str]) -> Self {
        Self::of(&installed().await.1, name, arguments).await
    }

    /// With variables in its environment.
    pub(super) async fn begin_in(name: &str, environment: &[(&str, &str)]) -> Self {
        let operator = installed().await.1.clone();
        let operator = environment.iter().fold(operator, |operator, &(name, value)| operator.env(name, value));
        Self::of(&operator, name, &[]).await
    }

    async fn of(operator: &InstalledOperator, name: &str, arguments: &[&str]) -> Self {
        let plane = &installed().await.0;
        let (client, home) = (plane.admin_client().await.unwrap(), plane.namespace(name).await.unwrap());
        let secrets = Api::namespaced(client.clone(), &home);
        let foreign = secrets.create(&PostParams::default(), &secret("ss-foreign", "theirs")).await.unwrap();
        let ProxiedOperator { proxy, process, address, .. } = start(operator, &home, name, arguments).await;
        let day = Self { proxy, operator: process, address, client, home, foreign };
        day.create_both("0").await;
        day.converges("0").await;
        day
    }

    /// Makes an object `app` of each kind.
    pub(super) async fn create_both(&self, value: &str) {
        let (secret, account) = self.both("app", value);
        self.secret_syncs().create(&PostParams::default(), &secret).await.unwrap();
        self.account_syncs().create(&PostParams::default(), &account).await.unwrap();
    }

    /// Makes an object of each kind that nobody works on.
    pub(super) async fn create_paused(&self, number: usize) {
        let (mut secret, mut account) = self.both(&format!("paused-{number}"), "x");
        for annotations in [secret.annotations_mut(), account.annotations_mut()] {
            annotations.insert("konverge.dev/paused".to_owned(), "true".to_owned());
        }
        self.secret_syncs().create(&PostParams::default(), &secret).await.unwrap();
        self.account_syncs().create(&PostParams::default(), &account).await.unwrap();
    }

    fn both(&self, name: &str, value: &str) -> (SecretSync, ServiceAccountSync) {
        let secret = SecretSyncSpec { target_namespace: self.home.clone(), string_data: data(value) };
        let account = ServiceAccountSyncSpec {
            target_namespace: self.home.clone(),
            automount_token: false,
            image_pull_secrets: vec![value.to_owned()],
        };
        (SecretSync::new(name, secret), ServiceAccountSync::new(name, account))
    }

    /// Another replica, and what it is to be called.
    pub(super) async fn another(&self, name: &str, arguments: &[&str]) -> ProxiedOperator {
        start(&installed().await.1, &self.home, name, arguments).await
    }

    pub(super) fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.home)
    }

    pub(super) fn secret_syncs(&self) -> Api<SecretSync> {
        self.api()
    }

    pub(super) fn account_syncs(&self) -> Api<ServiceAccountSync> {
        self.api()
    }

    pub(super) fn secrets(&self) -> Api<Secret> {
        self.api()
    }

    pub(super) fn accounts(&self) -> Api<ServiceAccount> {
        self.api()
    }

    /// Puts a plan in force.
    pub(super) fn befalls(&self, rules: &str) {
        self.proxy.set(Plan::parse(&format!("seed: 11\nrules:\n{rules}")).unwrap()).unwrap();
    }

    pub(super) async fn change_secret(&self, value: &str) {
        change(&self.secret_syncs(), "app", json!({ "spec": { "stringData": { "value": value } } })).await;
    }

    pub(super) async fn change_account(&self, value: &str) {
        change(&self.account_syncs(), "app", json!({ "spec": { "imagePullSecrets": [value] } })).await;
    }

    pub(super) async fn change_both(&self, value: &str) {
        self.change_secret(value).await;
        self.change_account(value).await;
    }

    /// Waits until both copies have the value, and both objects say so of their newest generation.
    pub(super) async fn converges(&self, value: &str) {
        self.secret_has_within(RECOVERED, value).await;
        self.account_has(value).await;
        says(&self.secret_syncs(), "app", "Ready", Some("SecretSynced")).await;
        says(&self.account_syncs(), "app", "Ready", Some("ServiceAccountSynced")).await;
    }

    pub(super) async fn secret_has_within(&self, limit: Duration, value: &str) {
        let secrets = self.secrets();
        let found = eventually(limit, || async {
            let data = secrets.get_opt("ss-app").await.unwrap()?.data?;
            (data.get("value")?.0 == value.as_bytes()).then_some(())
        });
        assert!(found.await.is_ok(), "the secret is not {value}: {:?}\n{}", self.proxy.fired(), self.operator.logged());
    }

    pub(super) async fn account_has(&self, value: &str) {
        let accounts = self.accounts();
        let found = eventually(RECOVERED, || async {
            let names = accounts.get_opt("sas-app").await.unwrap()?.image_pull_secrets?;
            (names.first()?.name == value).then_some(())
        });
        assert!(
            found.await.is_ok(),
            "the account is not {value}: {:?}\n{}",
            self.proxy.fired(),
            self.operator.logged()
        );
    }

    /// Waits until the cache of each kind has a watch again, so that no list of this day is left to the next.
    pub(super) async fn watches_again(&self) {
        let are_open = || {
            let journal = self.proxy.journal();
            let mut last = BTreeMap::new();
            for entry in journal.iter().filter(|entry| matches!(entry.request.verb, Verb::List | Verb::Watch)) {
                last.insert(&entry.request.resource, entry);
            }
            let is_open = |entry: &&JournalEntry| entry.request.verb == Verb::Watch && entry.code == Some(200);
            std::future::ready(last.values().all(is_open).then_some(()))
        };
        assert!(eventually(RECOVERED, are_open).await.is_ok(), "no watch\n{}", self.operator.logged());
    }

    /// A metric of the operator: the sum over all its label sets that contain `label`.
    pub(super) async fn metric(&self, name: &str, label: &str) -> f64 {
        metric(&self.metrics().await, name, label)
    }

    async fn metrics(&self) -> String {
        let (code, text) = http_get(&self.address, "/metrics").await.unwrap();
        assert_eq!(code, 200);
        text
    }

    /// Waits until the operator has nothing left to do, so that the test can say what it has not done.
    pub(super) async fn settles(&self) {
        settled(QUIET, async || self.metrics().await).await;
    }

    /// Waits until the operator's cache has as many Secrets with these labels as the cluster. It watches all namespaces, so those of other tests count.
    pub(super) async fn caches_all_secrets(&self, labels: &BTreeMap<String, String>) {
        let labels = labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",");
        let (all, labelled) = (Api::<Secret>::all(self.client.clone()), ListParams::default().labels(&labels));
        until("the cache has what the cluster has", async || {
            let there = f64::from(u32::try_from(all.list_metadata(&labelled).await.unwrap().items.len()).unwrap());
            let cached = self.metric("konverge_cache_objects", "resource=\"secrets\"").await;
            if (there - cached).abs() < 0.5 { Ok(()) } else { Err(format!("{cached} of {there}")) }
        })
        .await;
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
    pub(super) async fn end(&mut self) {
        assert!(self.operator.status().is_none(), "the operator has ended:\n{}", self.operator.logged());
        assert_eq!(
            self.secrets().get("ss-foreign").await.unwrap(),
            self.foreign,
            "what is not the operator's was touched"
        );
        let touches = |name: &str| name == "ss-foreign";
        assert!(!self.proxy.journal().iter().any(|entry| entry.request.is_mutating() && touches(&entry.request.name)));
    }
}

/// Starts an operator for a namespace.
async fn start(operator: &InstalledOperator, home: &str, name: &str, arguments: &[&str]) -> ProxiedOperator {
    let lease = format!("--lease-name={home}");
    let arguments = [&["--namespace", home, &lease], arguments].concat();
    let binary = env!("CARGO_BIN_EXE_multicontroller-operator");
    operator.start_behind_proxy(name, binary, &arguments).await.unwrap()
}

/// A Secret of somebody else.
pub(super) fn secret(name: &str, value: &str) -> Secret {
    let bytes = ByteString(value.as_bytes().to_vec());
    Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("value".to_owned(), bytes)])),
        ..Secret::default()
    }
}

fn data(value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("value".to_owned(), value.to_owned())])
}
