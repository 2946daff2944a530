//! A control plane with the operator installed, and an account of openZro.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use clap::Parser;
use konverge::{
    CustomStatus, Object, Operator,
    apply::{Writable, ledger::DrainError},
    kube::{
        Api, Client, Resource, ResourceExt,
        api::{DeleteParams, Patch, PatchParams, PostParams},
        core::{NamespaceResourceScope, object::HasStatus},
    },
    runtime::{Metrics as EngineMetrics, checks::Checks},
};
use konverge_core::SecretValue;
use konverge_manage::{config::Config, metrics::Metrics, program};
use konverge_openzro::{Collection, Credential, OpenZro, OpenZroConfig};
use konverge_openzro_testing::Double;
use konverge_testkit::{
    AuditLog, ControlPlane, InstalledOperator, Options, client_for, events_about, eventually, settled,
};
use konverge_testkit_stores::{HttpFront, OpenZroServer};
use serde_json::Value;

/// How long a test waits for what takes milliseconds on a machine at rest.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);

/// The requests of two rounds of all lists.
const TWO_ROUNDS: usize = 16;

/// An operator that has done nothing for so long since it read the lists has settled.
const QUIET: Duration = Duration::from_secs(1);

/// An account of openZro: that of one test, or of several clusters.
#[derive(Clone)]
struct Account {
    url: String,
    /// By role.
    tokens: BTreeMap<&'static str, String>,
    /// The double that serves it, unless that is the real server.
    double: Option<Arc<Double>>,
}

impl Account {
    async fn new() -> Self {
        if let Some(server) = OpenZroServer::shared().await.unwrap() {
            return Self { url: OpenZroServer::URL.to_owned(), tokens: server.account().tokens, double: None };
        }
        eprintln!("this machine has no openZro server: only the verified double is asked");
        let double = Double::start().await.unwrap();
        let (url, tokens) = (double.url().to_owned(), double.account().tokens);
        Self { url, tokens, double: Some(Arc::new(double)) }
    }

    /// Another account on the same server.
    async fn another(&self) -> Self {
        let tokens = match &self.double {
            Some(double) => double.account().tokens,
            None => OpenZroServer::shared().await.unwrap().unwrap().account().tokens,
        };
        Self { tokens, ..self.clone() }
    }

    /// The account past the operator.
    fn client(&self) -> OpenZro {
        let credential = Credential::value(SecretValue::from(self.tokens["admin"].clone()));
        OpenZro::new(&OpenZroConfig::new(&self.url, credential).unwrap())
    }
}

pub(crate) struct Stage {
    pub(crate) front: HttpFront,
    /// The account, past the operator and its proxy: what people do in the dashboard.
    pub(crate) dashboard: OpenZro,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    installed: InstalledOperator,
    home: String,
    account: Account,
    plane: ControlPlane,
}

/// A running operator. Dropping it stops it.
pub(crate) struct Running {
    metrics: EngineMetrics,
    stop: konverge::CancellationToken,
    ended: Option<tokio::task::JoinHandle<()>>,
}

impl Running {
    /// Its metrics, as text.
    pub(crate) fn scrape(&self) -> String {
        self.metrics.encode().unwrap()
    }

    /// Stops it and waits until it has ended.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        if let Some(ended) = self.ended.take() {
            ended.await.unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(ended) = &self.ended {
            ended.abort();
        }
    }
}

fn config(arguments: &[&str]) -> Config {
    let common = ["openzro-operator", "--health-probe-bind-address=0", "--interval=1", "--requests-per-second=200"];
    // The port of the webhooks is one, and tests run side by side.
    // A test deletes in minutes what takes months elsewhere.
    Config::parse_from(common.iter().chain(&["--enable-webhooks=false", "--allow-deletes"]).chain(arguments))
}

/// The manifest of the operator for a namespace.
pub(crate) fn generated(home: &str) -> String {
    let nobody = config(&["--openzro-api-key=nobody"]);
    let account = nobody.account(&Metrics::default()).unwrap();
    program::operator(&nobody, account, Metrics::default()).generate(home).unwrap().manifest()
}

impl Stage {
    /// The operator is installed, but does not run.
    pub(crate) async fn set() -> Self {
        Self::of(Account::new().await, generated).await
    }

    /// Another cluster with the same account.
    pub(crate) async fn beside(&self) -> Self {
        Self::of(self.account.clone(), generated).await
    }

    /// Like [`set`](Self::set), with another manifest for the namespace of the operator.
    pub(crate) async fn with(manifest: impl FnOnce(&str) -> String) -> Self {
        Self::of(Account::new().await, manifest).await
    }

    async fn of(account: Account, manifest: impl FnOnce(&str) -> String) -> Self {
        let plane = ControlPlane::start(Options::ours()).await.unwrap();
        let client = plane.admin_client().await.unwrap();
        let home = plane.namespace("operator").await.unwrap();
        let installed = plane.install(program::PROGRAM, &home, &manifest(&home)).await.unwrap();
        let namespace = plane.namespace("user").await.unwrap();
        let front = HttpFront::start(&account.url).await.unwrap();
        let dashboard = account.client();
        Self { front, dashboard, client, namespace, installed, home, account, plane }
    }

    /// The operator, its settings, and a client of its own service account, with the role that is generated for it.
    async fn operator(&self, arguments: &[&str]) -> (Operator, konverge::Options, Client) {
        let front = self.front.url();
        let own = [
            "--openzro-api-key",
            self.token("admin"),
            "--openzro-management-url",
            &front,
            "--runtime-namespace",
            &self.home,
        ];
        let config = config(&[&own, arguments].concat());
        let account = config.account(&Metrics::default()).unwrap();
        let client = client_for(self.installed.kubeconfig()).await.unwrap();
        (program::operator(&config, account, Metrics::default()), config.options(), client)
    }

    /// Releases all objects, as before an uninstall.
    pub(crate) async fn drain(&self) -> Result<(), DrainError> {
        let (operator, options, client) = self.operator(&[]).await;
        operator.drain(&client, &options).await
    }

    /// Starts the operator, and waits until it is ready.
    pub(crate) async fn start(&self, arguments: &[&str]) -> Running {
        let (running, checks) = self.begin(arguments).await;
        let ready = eventually(LIMIT, || std::future::ready(checks.ready().passed.then_some(())));
        assert!(ready.await.is_ok(), "{}", checks.ready().text);
        running
    }

    /// Starts the operator. Returns also its checks.
    pub(crate) async fn begin(&self, arguments: &[&str]) -> (Running, Checks) {
        let (operator, options, client) = self.operator(arguments).await;
        let manager = operator.assemble_with(client, options).await.unwrap();
        let (metrics, stop, checks) = (manager.metrics().clone(), manager.shutdown(), manager.checks().clone());
        let ended = tokio::spawn(async move { manager.run().await.unwrap() });
        (Running { metrics, stop, ended: Some(ended) }, checks)
    }

    /// Waits until the operator has read each list again, and then has nothing left to do. After that, a test can say what it did not do.
    pub(crate) async fn settled(&self, operator: &Running) {
        let calls = self.front.journal().len();
        self.until("the lists are read again", async || self.front.journal().len() > calls + TWO_ROUNDS).await;
        settled(QUIET, async || operator.metrics.encode().unwrap()).await;
    }

    /// Applies a manifest.
    pub(crate) async fn apply(&self, manifest: &str) {
        self.plane.apply(manifest).await.unwrap();
    }

    /// The objects of a kind in the namespace of the operator.
    pub(crate) fn at_home<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.home)
    }

    /// The personal access token of a role.
    pub(crate) fn token(&self, role: &str) -> &str {
        &self.account.tokens[role]
    }

    /// Writes a token into the file from which the operator of this stage reads it, and returns its path.
    pub(crate) fn write_token(&self, token: &str) -> String {
        self.write("token", token)
    }

    /// Writes a file for the operator of this stage, and returns its path.
    pub(crate) fn write(&self, name: &str, content: &str) -> String {
        let file = self.plane.run_directory().path().join(name);
        std::fs::write(&file, content).unwrap();
        file.to_str().unwrap().to_owned()
    }

    /// Another account on the same server: its token, and the account past the operator.
    pub(crate) async fn other_account(&self) -> (String, OpenZro) {
        let account = self.account.another().await;
        (account.tokens["admin"].clone(), account.client())
    }

    /// Makes another namespace.
    pub(crate) async fn other_namespace(&self) -> String {
        self.plane.namespace("tenant").await.unwrap()
    }

    /// The objects of a kind in the user's namespace.
    pub(crate) fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Waits until a condition of the object has this status and reason.
    pub(crate) async fn says<K>(&self, api: &Api<K>, name: &str, condition: &str, reason: &str) -> K
    where
        K: Object + Writable + HasStatus<Status: CustomStatus>,
    {
        let found = eventually(LIMIT, || async {
            api.get_opt(name).await.unwrap().filter(|object| {
                let status = object.status().map(CustomStatus::standard);
                let found = status.and_then(|status| status.conditions.get(condition));
                let is_current = found.is_some_and(|found| found.observed_generation == object.meta().generation);
                is_current && found.is_some_and(|found| found.status == "True" && found.reason == reason)
            })
        });
        if let Ok(object) = found.await {
            object
        } else {
            let now = api.get_opt(name).await.unwrap().map(|object| serde_json::to_value(object).unwrap());
            panic!("{name} does not say {condition} {reason}: {now:#?}; the calls: {:#?}", self.calls())
        }
    }

    /// Waits until the object is gone.
    pub(crate) async fn gone<K: Object + Writable>(&self, api: &Api<K>, name: &str) {
        self.until(&format!("{name} is gone"), async || api.get_opt(name).await.unwrap().is_none()).await;
    }

    pub(crate) async fn create<K: Object + Writable>(&self, api: &Api<K>, object: &K) -> K {
        api.create(&PostParams::default(), object).await.unwrap()
    }

    pub(crate) async fn delete<K: Object + Writable>(&self, api: &Api<K>, name: &str) {
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn patch<K: Object + Writable>(&self, api: &Api<K>, name: &str, patch: Value) -> K {
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    /// Waits for an event of this reason about an object of this name.
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
        assert!(found.is_ok(), "not in time: {what}; the calls: {:#?}", self.calls());
    }

    /// The calls of the operator so far, by method and path.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.front.journal().iter().map(|seen| format!("{} {} {:?}", seen.method, seen.path, seen.status)).collect()
    }

    /// How many writes the operator has sent to the account.
    pub(crate) fn writes(&self) -> usize {
        self.front.journal().iter().filter(|seen| seen.method != "GET").count()
    }

    /// The audit log of the API server from now on.
    pub(crate) fn audit_log(&self) -> AuditLog {
        self.plane.audit_log().unwrap().from_now().unwrap()
    }

    /// Each request of the operator that would change something in the cluster, also of those that only ask what would happen: the verb, and path and
    /// query.
    pub(crate) async fn requests(&self, log: &AuditLog) -> Vec<(String, String)> {
        log.catch_up(&self.client).await.unwrap();
        let requests = self.installed.requests(log).unwrap();
        let changes = requests.into_iter().filter(konverge_testkit::AuditEntry::is_mutating);
        changes.map(|request| (request.verb, request.request_uri)).collect()
    }

    /// How often the service account of the operator has read a lease.
    pub(crate) async fn lease_reads(&self, log: &AuditLog) -> usize {
        log.catch_up(&self.client).await.unwrap();
        let requests = self.installed.requests(log).unwrap();
        requests.iter().filter(|request| request.verb == "get" && request.request_uri.contains("/leases/")).count()
    }

    /// The objects of a collection by name. The server answers 500 while it is in the middle of writing a policy, so it is asked again.
    pub(crate) async fn on_server(&self, collection: &Collection) -> BTreeMap<String, Value> {
        let listed = eventually(LIMIT, async || self.dashboard.list(collection).await.ok()).await;
        let objects = listed.unwrap_or_else(|_| panic!("the server does not list {collection:?}"));
        let named = objects.iter().map(|object| {
            let raw = Value::Object(object.raw().clone());
            (raw["name"].as_str().unwrap_or_default().to_owned(), raw)
        });
        named.collect()
    }

    /// Creates an object in the dashboard and returns its id.
    pub(crate) async fn by_hand(&self, collection: &Collection, fields: Value) -> String {
        let Value::Object(fields) = fields else { panic!("fields of an object") };
        self.dashboard.create(collection, &fields).await.unwrap().object.id().to_owned()
    }

    /// The finalizers of an object.
    pub(crate) async fn finalizers<K: Object + Writable>(&self, api: &Api<K>, name: &str) -> Vec<String> {
        api.get(name).await.unwrap().finalizers().to_vec()
    }
}
