//! A control plane on which the operator is installed, and for each run an account, a proxy and a namespace of its own.

use std::{fs, time::Duration};

use clap::Parser;
use konverge_core::SecretValue;
use konverge_manage::{config::Config, metrics::Metrics, program};
use konverge_openzro::{Collection, Credential, OpenZro, OpenZroConfig};
use konverge_openzro_testing::Double;
use konverge_testkit::{ControlPlane, InstalledOperator, Options, Process, ProcessSpec, eventually};
use konverge_testkit_stores::{HttpFront, OpenZroServer};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::Value;

/// The time limit of every wait.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);

/// The server that all runs share. Each has an account of its own.
enum Server {
    Double(Double),
    Real(&'static OpenZroServer),
}

pub(crate) struct Stage {
    server: Server,
    installed: InstalledOperator,
    client: Client,
    home: String,
    plane: ControlPlane,
}

/// One run: an account with its proxy, and a namespace.
pub(crate) struct World {
    pub(crate) front: HttpFront,
    /// The account, past the operator and its proxy: the items that people made, and those that are left.
    pub(crate) dashboard: OpenZro,
    pub(crate) namespace: String,
    /// The personal access token of the operator.
    pub(crate) token: String,
    client: Client,
    spec: ProcessSpec,
}

/// The resource of a kind of openZro, such as `v1` and `OZGroup`.
pub(crate) fn resource(version: &str, kind: &str) -> ApiResource {
    let plural = match kind {
        "OZPolicy" => "ozpolicies".to_owned(),
        kind => format!("{}s", kind.to_ascii_lowercase()),
    };
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("openzro.io", version, kind), &plural)
}

impl Stage {
    pub(crate) async fn set() -> Self {
        let plane = ControlPlane::start(Options::ours()).await.unwrap();
        let client = plane.admin_client().await.unwrap();
        let home = plane.namespace("operator").await.unwrap();
        // Webhooks would need a port of their own, and have no part in this.
        let config = Config::parse_from([program::PROGRAM, "--openzro-api-key=nobody", "--enable-webhooks=false"]);
        let account = config.account(&Metrics::default()).unwrap();
        let files = program::operator(&config, account, Metrics::default()).generate(&home).unwrap();
        let installed = plane.install(program::PROGRAM, &home, &files.manifest()).await.unwrap();
        let server = if let Some(server) = OpenZroServer::shared().await.unwrap() {
            Server::Real(server)
        } else {
            eprintln!("this machine has no openZro server: only the verified double is asked");
            Server::Double(Double::start().await.unwrap())
        };
        Self { server, installed, client, home, plane }
    }

    /// A world without an operator.
    pub(crate) async fn world(&self) -> World {
        let namespace = self.plane.namespace("crash").await.unwrap();
        let (url, token) = match &self.server {
            Server::Real(server) => (OpenZroServer::URL.to_owned(), server.account().tokens["admin"].clone()),
            Server::Double(double) => (double.url().to_owned(), double.account().tokens["admin"].clone()),
        };
        let file = self.plane.run_directory().path().join(format!("{namespace}-token"));
        fs::write(&file, &token).unwrap();
        let front = HttpFront::start(&url).await.unwrap();
        let credential = Credential::value(SecretValue::from(token.clone()));
        let dashboard = OpenZro::new(&OpenZroConfig::new(&url, credential).unwrap());
        let spec = ProcessSpec::new(format!("operator-{namespace}"), env!("CARGO_BIN_EXE_openzro-operator"))
            .args(["--health-probe-bind-address=0", "--enable-webhooks=false", "--interval=1", "--allow-deletes"])
            .args(["--requests-per-second=200".to_owned(), format!("--cluster-name={namespace}")])
            .args([
                "--openzro-management-url".to_owned(),
                front.url(),
                "--runtime-namespace".to_owned(),
                self.home.clone(),
            ])
            // The peers of routers are exempt from admission checks, which is a privilege.
            .args(["--allow=*=*", "--allow-privileged-routing"])
            .arg("--openzro-api-key-file")
            .arg(file)
            .arg("--kubeconfig")
            .arg(self.installed.kubeconfig());
        World { front, dashboard, namespace, token, client: self.client.clone(), spec }
    }

    /// Starts the operator of a world.
    pub(crate) fn start(&self, world: &World) -> Process {
        Process::start(self.plane.run_directory(), world.spec.clone()).unwrap()
    }
}

impl World {
    /// Changes how the operator is started.
    pub(crate) fn with(mut self, change: impl FnOnce(ProcessSpec) -> ProcessSpec) -> Self {
        self.spec = change(self.spec);
        self
    }

    /// The objects of a kind, all of them if it has no namespace.
    pub(crate) fn api(&self, resource: &ApiResource) -> Api<DynamicObject> {
        if resource.kind == "OZPolicy" {
            Api::all_with(self.client.clone(), resource)
        } else {
            Api::namespaced_with(self.client.clone(), &self.namespace, resource)
        }
    }

    pub(crate) async fn create(&self, resource: &ApiResource, name: &str, spec: Value) {
        let object = DynamicObject::new(name, resource).data(serde_json::json!({ "spec": spec }));
        self.api(resource).create(&PostParams::default(), &object).await.unwrap();
    }

    pub(crate) async fn edit(&self, resource: &ApiResource, name: &str, spec: Value) {
        let patch = serde_json::json!({ "spec": spec });
        self.api(resource).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    pub(crate) async fn delete(&self, resource: &ApiResource, name: &str) {
        self.api(resource).delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Whether the kind has no objects.
    pub(crate) async fn has_none(&self, resource: &ApiResource) -> bool {
        self.api(resource).list(&ListParams::default()).await.unwrap().items.is_empty()
    }

    /// Whether a condition of the object has this status and reason, for the current spec.
    pub(crate) async fn says(&self, resource: &ApiResource, name: &str, condition: &str, reason: &str) -> bool {
        let object = self.api(resource).get(name).await.unwrap();
        let conditions = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|known| {
            let is_current = known["observedGeneration"].as_i64() == object.metadata.generation;
            is_current && known["type"] == condition && known["status"] == "True" && known["reason"] == reason
        })
    }

    /// All items of a collection, as the server shows them. It answers 500 while it is in the middle of writing a policy, so it is asked again.
    pub(crate) async fn items(&self, collection: &Collection) -> Vec<Value> {
        let listed = eventually(LIMIT, async || self.dashboard.list(collection).await.ok()).await;
        let items = listed.unwrap_or_else(|_| panic!("the server does not list {collection:?}"));
        items.iter().map(|item| Value::Object(item.raw().clone())).collect()
    }

    /// Creates an item as a person does, and returns its id.
    pub(crate) async fn by_hand(&self, collection: &Collection, fields: Value) -> String {
        let Value::Object(fields) = fields else { panic!("fields of an item") };
        self.dashboard.create(collection, &fields).await.unwrap().object.id().to_owned()
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }
}
