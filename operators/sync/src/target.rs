//! The Secret: as it is read, and the writes to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::api::core::v1::Secret;
use konverge_apply::{ApplyError, Outcome, SecretApplier, SecretMetadata, SecretTarget, field_ownership};
use konverge_core::SecretValue;
use konverge_zopp_cli::{commands::k8s::ClusterArguments, failure::Failure};
use kube::{
    Api, Config, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
    core::PartialObjectMeta,
};
use serde_json::json;
use zeroize::Zeroize;

/// The field manager of `zopp sync k8s`.
pub const FIELD_MANAGER: &str = "zopp-sync";
/// The field manager under which the API server records a client without a name, such as the original's.
const ORIGINAL: &str = "unknown";
/// The label by which the original knows its Secrets.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Its value.
pub const ZOPP: &str = "zopp";
/// The annotation that changes with each write.
pub const SYNCED_AT: &str = "zopp.dev/synced-at";

/// One Secret of a cluster.
pub struct Target {
    api: Api<Secret>,
    applier: SecretApplier,
    namespace: String,
    name: String,
    timeout: Duration,
}

/// The Secret as it was read. Its values are wiped on drop.
pub struct Stored(Secret);

impl Drop for Stored {
    fn drop(&mut self) {
        for value in self.0.data.iter_mut().flat_map(BTreeMap::values_mut) {
            value.0.zeroize();
        }
    }
}

impl Stored {
    /// The values by key.
    pub fn values(&self) -> BTreeMap<&str, &[u8]> {
        let data = self.0.data.iter().flatten();
        data.map(|(key, value)| (key.as_str(), value.0.as_slice())).collect()
    }

    /// Whether the label says that zopp manages the Secret.
    pub fn is_managed(&self) -> bool {
        self.0.labels().get(MANAGED_BY).is_some_and(|manager| manager == ZOPP)
    }

    /// The keys that earlier syncs applied. The original writes the Secret whole, so all keys that it wrote count.
    pub fn owned(&self) -> BTreeSet<String> {
        let mut owned = self.keys_of(FIELD_MANAGER);
        if self.is_of_original() {
            owned.extend(self.keys_of(ORIGINAL));
        }
        owned
    }

    /// Whether the Secret has these annotations. The time of the sync does not count.
    pub fn has_annotations(&self, annotations: &BTreeMap<String, String>) -> bool {
        let timeless = annotations.iter().filter(|(name, _)| *name != SYNCED_AT);
        timeless.into_iter().all(|(name, value)| self.0.annotations().get(name) == Some(value))
    }

    fn is_of_original(&self) -> bool {
        self.is_managed() && self.0.annotations().contains_key(SYNCED_AT) && self.keys_of(FIELD_MANAGER).is_empty()
    }

    fn keys_of(&self, manager: &str) -> BTreeSet<String> {
        field_ownership::data_keys(self.0.managed_fields(), manager).all()
    }

    fn metadata(&self) -> PartialObjectMeta<Secret> {
        PartialObjectMeta { metadata: self.0.metadata.clone(), ..PartialObjectMeta::default() }
    }
}

impl Target {
    /// Reads the kubeconfig. Nothing is sent.
    pub async fn new(arguments: &ClusterArguments, timeout: Duration) -> Result<Self, Failure> {
        let ClusterArguments { namespace, secret, kubeconfig, context } = arguments;
        let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
        let mut config = match kubeconfig {
            Some(path) => {
                let cannot = || Failure::new(format!("cannot use kubeconfig {}", path.display()));
                let file = Kubeconfig::read_from(path).map_err(|source| cannot().because(source))?;
                Config::from_custom_kubeconfig(file, &options).await.map_err(|source| cannot().because(source))?
            }
            None if context.is_some() => Config::from_kubeconfig(&options)
                .await
                .map_err(|source| Failure::new("cannot use the kubeconfig").because(source))?,
            None => Config::infer().await.map_err(|source| {
                Failure::new("no Kubernetes configuration is found")
                    .because(source)
                    .next("Set KUBECONFIG, or use --kubeconfig.")
            })?,
        };
        (config.connect_timeout, config.read_timeout, config.write_timeout) =
            (Some(timeout), Some(timeout), Some(timeout));
        let client = konverge_runtime::client::builder(config)
            .map(ClientBuilder::build)
            .map_err(|source| Failure::new("no client of Kubernetes can be made").because(source))?;
        let (namespace, name) = (namespace.clone(), secret.clone());
        let (api, applier) = (Api::namespaced(client.clone(), &namespace), SecretApplier::new(client, FIELD_MANAGER));
        Ok(Self { api, applier, namespace, name, timeout })
    }

    /// `namespace/name`.
    pub fn path(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The Secret; `None` if there is none.
    pub async fn read(&self) -> Result<Option<Stored>, Failure> {
        let found = self.within("cannot read", self.api.get_opt(&self.name)).await?;
        Ok(found.map(Stored))
    }

    /// Makes the Secret, still empty. A Secret that somebody else has made meanwhile is an error.
    pub async fn create(&self) -> Result<Stored, Failure> {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": { "name": self.name, "namespace": self.namespace, "labels": { MANAGED_BY: ZOPP } },
        });
        let object = serde_json::from_value(object).map_err(|source| self.failure("cannot make").because(source))?;
        let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let made = self.within("cannot make", self.api.create(&parameters, &object)).await?;
        Ok(Stored(made))
    }

    /// Makes the Secret one of zopp's.
    pub async fn label(&self, stored: &Stored) -> Result<Stored, Failure> {
        let patch = json!({
            "metadata": {
                "uid": stored.0.uid(), "resourceVersion": stored.0.resource_version(), "labels": { MANAGED_BY: ZOPP },
            }
        });
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let labelled =
            self.within("cannot label", self.api.patch(&self.name, &parameters, &Patch::Merge(&patch))).await?;
        Ok(Stored(labelled))
    }

    /// Makes the values and annotations those of the last sync, exactly. A Secret that was changed or replaced since it was read is an error.
    pub async fn apply(
        &self,
        stored: &Stored,
        annotations: &BTreeMap<String, String>,
        values: &BTreeMap<&str, &SecretValue>,
    ) -> Result<(), Failure> {
        let uid = stored.0.uid().unwrap_or_default();
        let mut version = stored.0.resource_version();
        if stored.is_of_original() {
            let taken = self.written(self.applier.take_over(&stored.metadata(), ORIGINAL)).await?;
            if let Outcome::Changed { resource_version } = taken {
                version = Some(resource_version);
            }
        }
        let target = SecretTarget {
            namespace: &self.namespace,
            name: &self.name,
            uid: &uid,
            resource_version: version.as_deref(),
        };
        let metadata = SecretMetadata { annotations: annotations.clone(), ..SecretMetadata::default() };
        self.written(self.applier.apply(target, &metadata, values)).await.map(drop)
    }

    async fn written(&self, write: impl Future<Output = Result<Outcome, ApplyError>>) -> Result<Outcome, Failure> {
        match self.within("cannot write", write).await? {
            Outcome::Gone => Err(self.failure("cannot write").because("it was deleted meanwhile").next("Try again.")),
            outcome => Ok(outcome),
        }
    }

    async fn within<T, E: std::error::Error + Send + Sync + 'static>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(self.timeout, call).await {
            Ok(result) => result.map_err(|source| self.failure(what).because(source)),
            Err(_) => Err(self.failure(what).because(format!("no answer within {} s", self.timeout.as_secs()))),
        }
    }

    fn failure(&self, what: &str) -> Failure {
        Failure::new(format!("{what} Secret {}", self.path()))
    }
}
