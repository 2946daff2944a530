//! The operators, and the changes that they follow.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use konverge_e2e::{ManageStage, OpenZroAccount, Operator, PushStage, RollStage, Stage, followed_deployment};
use konverge_testkit_stores::VaultStorage;
use kube::{
    Api, Resource,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::sleep;

/// The pause between two rounds of changes.
const PAUSE: Duration = Duration::from_secs(6);

/// Deployments of which each uses a Secret of its own.
const WORKLOADS: usize = 12;

const POLICY: &str = "web";

/// All four jobs, each with something to do. The processes that it started end with it.
pub(crate) struct Load {
    // They end before what they speak to.
    pull: Operator,
    push: PushStage,
    roll: RollStage,
    manage: ManageStage,
    stage: Stage,
    _openzro: OpenZroAccount,
    namespace: String,
    environment: String,
    round: usize,
}

impl Load {
    pub(crate) async fn begin() -> Result<Self> {
        let stage = Stage::set_on_ours().await?;
        let plane = &stage.control_plane;
        let namespace = plane.namespace("shop").await?;
        let pull = stage.operator("zopp-operator", &namespace).await?;
        let push = PushStage::set(plane, &namespace, VaultStorage::Memory, &[]).await?;
        // There are no pods whose readiness a rollout could wait for.
        let roll = RollStage::set(plane, &namespace, &["--min-interval", "0s", "--rollout-timeout", "0s"]).await?;
        let openzro = OpenZroAccount::on_double().await?;
        let token = ManageStage::token_file(plane, &openzro.token)?;
        let manage = ManageStage::set(plane, &openzro.url, &token, &["--interval", "10"]).await?;
        let environment = stage.environment("production").await?;
        stage.bind(&namespace, "backend", &environment).await?;
        // The principal of the operator may not read this one, so its Secret cannot be filled.
        stage.user.create_environment("acme/backend/staging").await?;
        stage.bind(&namespace, "refused", "acme/backend/staging").await?;
        let load = Self { pull, push, roll, manage, stage, _openzro: openzro, namespace, environment, round: 0 };
        for number in 0..WORKLOADS {
            load.fill(number).await?;
            let (name, secret) = (format!("web-{number}"), format!("db-{number}"));
            load.apply::<Deployment>(&name, followed_deployment(&name, &secret)).await?;
        }
        for name in ["Servers", "Developers"] {
            let group = json!({
                "apiVersion": "openzro.io/v1", "kind": "OZGroup", "metadata": { "name": name.to_lowercase() }, "spec": { "name": name },
            });
            load.openzro("OZGroup", Some(&load.namespace), group).await?;
        }
        load.change_policy().await?;
        Ok(load)
    }

    /// Where the metrics of each job and of the zopp server are.
    pub(crate) fn targets(&mut self) -> [(&'static str, String); 5] {
        [
            ("pull", self.pull.metrics_address().to_owned()),
            ("push", self.push.operator().metrics_address().to_owned()),
            ("roll", self.roll.address().to_owned()),
            ("manage", self.manage.operator().metrics_address().to_owned()),
            ("server", self.stage.server.health_address()),
        ]
    }

    /// One round of changes, and a pause after it.
    pub(crate) async fn step(&mut self) -> Result<()> {
        self.round += 1;
        self.stage.user.set(&self.environment, "ROUND", self.round.to_string().as_bytes()).await?;
        for number in (0..WORKLOADS).filter(|number| (self.round + number).is_multiple_of(4)) {
            self.fill(number).await?;
        }
        if self.round.is_multiple_of(5) {
            self.change_policy().await?;
        }
        sleep(PAUSE).await;
        Ok(())
    }

    /// Gives a Secret new content. It goes to Vault, and its Deployment restarts.
    async fn fill(&self, number: usize) -> Result<()> {
        let (name, namespace) = (format!("db-{number}"), &self.namespace);
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "annotations": { "vault-sync.io/path": format!("secret/data/{namespace}/{name}") },
            },
            "stringData": { "password": format!("password of round {}", self.round) },
        });
        self.apply::<Secret>(&name, secret).await
    }

    async fn change_policy(&self) -> Result<()> {
        let policy = json!({
            "apiVersion": "openzro.io/v1",
            "kind": "OZPolicy",
            "metadata": { "name": POLICY },
            "spec": {
                "name": POLICY,
                "sourceGroups": ["Developers"],
                "destinationGroups": ["Servers"],
                "protocols": ["tcp"],
                "ports": [443, 8000 + self.round],
            },
        });
        self.openzro("OZPolicy", None, policy).await
    }

    async fn apply<K>(&self, name: &str, manifest: Value) -> Result<()>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
        K: Clone + std::fmt::Debug + DeserializeOwned,
    {
        let api = Api::<K>::namespaced(self.stage.client().clone(), &self.namespace);
        let applied = api.patch(name, &PatchParams::apply("user"), &Patch::Apply(manifest)).await;
        applied.map(drop).with_context(|| format!("cannot apply {name}"))
    }

    async fn openzro(&self, kind: &str, namespace: Option<&str>, manifest: Value) -> Result<()> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("openzro.io", "v1", kind));
        let client = self.stage.client().clone();
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        let name = manifest["metadata"]["name"].as_str().context("a manifest has a name")?.to_owned();
        let applied = api.patch(&name, &PatchParams::apply("user"), &Patch::Apply(manifest)).await;
        applied.map(drop).with_context(|| format!("cannot apply {kind} {name}"))
    }
}
