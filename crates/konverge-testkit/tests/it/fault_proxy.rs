//! Each fault, seen by a plain client of the real API server.

mod connections;
pub(crate) mod kills;
mod requests;
mod watches;

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_testkit::{
    ControlPlane, Options, eventually,
    fault_proxy::{FaultProxy, JournalEntry, Plan},
};
use kube::{
    Api, Client, Config,
    api::{ObjectMeta, PostParams},
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::sync::OnceCell;

pub(crate) const SOON: Duration = Duration::from_secs(60);

/// One for all tests that do not stop it.
pub(crate) async fn control_plane() -> &'static ControlPlane {
    static CONTROL_PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    CONTROL_PLANE.get_or_init(|| async { ControlPlane::start(Options::ours()).await.unwrap() }).await
}

/// A proxy, a namespace, and both ways to it.
pub(crate) struct Rig {
    pub(crate) proxy: FaultProxy,
    pub(crate) namespace: String,
    pub(crate) client: Client,
    pub(crate) proxied: Api<ConfigMap>,
    pub(crate) direct: Api<ConfigMap>,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        let control_plane = control_plane().await;
        let namespace = control_plane.namespace("faults").await.unwrap();
        let proxy = FaultProxy::start(control_plane.run_directory(), control_plane.kubeconfig()).await.unwrap();
        let client = plain_client(&proxy).await;
        let proxied = Api::namespaced(client.clone(), &namespace);
        let direct = Api::namespaced(control_plane.admin_client().await.unwrap(), &namespace);
        Self { proxy, namespace, client, proxied, direct }
    }

    pub(crate) fn plan(&self, rules: &str) {
        self.proxy.set(Plan::parse(&format!("seed: 1\nrules:\n{rules}")).unwrap()).unwrap();
    }

    pub(crate) fn last(&self) -> JournalEntry {
        self.proxy.journal().pop().unwrap()
    }

    pub(crate) async fn exists(&self, name: &str) -> bool {
        self.direct.get_opt(name).await.unwrap().is_some()
    }

    pub(crate) async fn create(&self, name: &str) {
        self.direct.create(&PostParams::default(), &map(name)).await.unwrap();
    }

    /// Waits until the journal says so.
    pub(crate) async fn journal_has(&self, holds: impl Fn(&JournalEntry) -> bool) {
        eventually(SOON, || async { self.proxy.journal().iter().any(&holds).then_some(()) }).await.unwrap();
    }
}

/// A client that asks once and tells what it heard; kube's own repeats 429, 503 and 504.
async fn plain_client(proxy: &FaultProxy) -> Client {
    let content = Kubeconfig::read_from(proxy.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(content, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    ClientBuilder::try_from(config).unwrap().build()
}

pub(crate) fn map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }, ..ConfigMap::default() }
}

pub(crate) fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}
