//! A control plane for all tests with the definitions of this operator, and programs that run until the test ends.

use std::{collections::BTreeMap, time::Duration};

use konverge::{
    Operator, Options,
    kube::{Api, Client, Resource, core::NamespaceResourceScope},
    runtime::{CancellationToken, Metrics},
};
use konverge_manage::{api::definitions, settings::Settings};
use konverge_testkit::{ControlPlane, eventually, settled};
use tokio::{sync::OnceCell, task::JoinHandle};

/// How long anything here may take.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);

/// A program that has done nothing for so long has settled.
const QUIET: Duration = Duration::from_secs(1);

/// One control plane for all tests of this binary; it ends with the process.
pub(crate) async fn control_plane() -> &'static ControlPlane {
    static CONTROL_PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    CONTROL_PLANE
        .get_or_init(async || {
            let plane = ControlPlane::start(konverge_testkit::Options::ours()).await.unwrap();
            let definitions: Vec<_> = definitions().iter().map(|crd| serde_json::to_string(crd).unwrap()).collect();
            plane.apply(&definitions.join("\n---\n")).await.unwrap();
            plane
        })
        .await
}

/// A namespace of a test.
pub(crate) struct Place {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl Place {
    pub(crate) async fn new() -> Self {
        let plane = control_plane().await;
        Self { client: plane.admin_client().await.unwrap(), namespace: plane.namespace("manage").await.unwrap() }
    }

    pub(crate) fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Settings whose network is in this namespace.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            cluster_name: "prod".to_owned(),
            namespaced_networks: true,
            cluster_dns: "svc.cluster.local".to_owned(),
            management_url: "https://openzro.example.com".to_owned(),
            client_image: "client:1".to_owned(),
            default_labels: BTreeMap::new(),
            creates_policies: false,
            deletes_adopted: false,
            accounts: std::collections::BTreeMap::new(),
            namespace: self.namespace.clone(),
            ..Settings::default()
        }
    }

    /// Runs a program over this namespace, and waits until it is ready.
    pub(crate) async fn run(&self, operator: Operator, change: impl FnOnce(&mut Options)) -> Running {
        let kubeconfig = control_plane().await.kubeconfig().to_owned();
        let options = Options::default().with(|options| {
            options.kubeconfig = Some(kubeconfig);
            options.namespaces = vec![self.namespace.clone()];
            options.lease_namespace = Some(self.namespace.clone());
            options.server.address = "127.0.0.1:0".parse().unwrap();
            change(options);
        });
        let manager = operator.assemble(options).await.unwrap();
        let (metrics, stop, checks) = (manager.metrics().clone(), manager.shutdown(), manager.checks().clone());
        let ended = tokio::spawn(async move { manager.run().await.map_err(|error| error.to_string()) });
        let ready = eventually(LIMIT, || std::future::ready(checks.ready().passed.then_some(())));
        assert!(ready.await.is_ok(), "{}", checks.ready().text);
        Running { metrics, stop, ended }
    }
}

/// A program that runs.
pub(crate) struct Running {
    metrics: Metrics,
    stop: CancellationToken,
    ended: JoinHandle<Result<(), String>>,
}

impl Running {
    /// Waits until it has nothing left to do. After that, a test can say what it did not do.
    pub(crate) async fn settled(&self) {
        settled(QUIET, async || self.metrics.encode().unwrap()).await;
    }

    /// Tells it to stop and waits until it has.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.ended.await.unwrap().unwrap();
    }
}
