//! The identity that distinguishes this cluster from others in the marks outside.

use std::{future::pending, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use konverge_core::error::in_one_line;
use kube::{Api, Client};
use tokio::{sync::OnceCell, time::sleep};

/// The namespace whose uid names the cluster: it exists from the beginning and is never deleted.
pub const CLUSTER_NAMESPACE: &str = "kube-system";

/// The pause between two requests without an answer.
const EVERY: Duration = Duration::from_secs(2);

/// Reads the uid that names the cluster. Fails if the API server refuses or does not answer.
pub async fn cluster_uid(client: &Client) -> kube::Result<String> {
    let namespace = Api::<Namespace>::all(client.clone()).get_metadata(CLUSTER_NAMESPACE).await?;
    Ok(namespace.metadata.uid.unwrap_or_default())
}

/// The fallback of programs that may not read the uid. It gets no further field, so that it can be written as a literal.
#[derive(Debug, Clone, Copy)]
pub struct Unnamed {
    /// The name that all such programs share.
    pub name: &'static str,
    /// The consequence, for the log, such as `cannot tell this cluster from others that may use the same Vault`.
    pub consequence: &'static str,
    /// The flag that gives the cluster a name, such as `--instance`.
    pub flag: &'static str,
}

/// The name of this cluster, once it is known. Clones know the same.
///
/// It is one name for the life of the process: under another name, everything that was written under the first would belong to somebody else. So
/// an unreachable API server is asked again. Only a refusal leaves the process [without a name](Unnamed), and only after the API server has
/// allowed something before. An API server that has just started forbids everything until it has read the roles.
#[derive(Clone)]
pub struct ClusterIdentity(Arc<Shared>);

struct Shared {
    client: Client,
    unnamed: Unnamed,
    /// Whether the API server has allowed something before.
    knows_us: Box<dyn Fn() -> bool + Send + Sync>,
    name: OnceCell<String>,
}

impl ClusterIdentity {
    /// The name that was given, or else the uid of the cluster. `knows_us` tells whether the API server has allowed this process anything yet.
    /// Sends nothing.
    pub fn new(
        client: Client,
        given: Option<String>,
        unnamed: Unnamed,
        knows_us: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        let name = given.map_or_else(OnceCell::new, |given| OnceCell::new_with(Some(given)));
        Self(Arc::new(Shared { client, unnamed, knows_us: Box::new(knows_us), name }))
    }

    /// Returns the name. Fails as long as the API server does not answer.
    pub async fn name(&self) -> kube::Result<&str> {
        let known = self.0.name.get_or_try_init(|| async {
            let knows_us = (self.0.knows_us)();
            match cluster_uid(&self.0.client).await {
                Err(kube::Error::Api(status)) if knows_us && matches!(status.code, 403 | 404) => {
                    let Unnamed { name, consequence, flag } = self.0.unnamed;
                    tracing::warn!(
                        "{consequence}: {}. Allow the service account to get the namespace {CLUSTER_NAMESPACE}, or give each installation \
                         a name with {flag}",
                        status.message
                    );
                    Ok(name.to_owned())
                }
                // An object of the API server always has a uid.
                Ok(uid) if uid.is_empty() => Ok(self.0.unnamed.name.to_owned()),
                answered => answered,
            }
        });
        known.await.map(String::as_str)
    }

    /// Returns why the process is not ready, for a readiness check.
    pub fn check(&self) -> Result<(), String> {
        let why = || format!("the API server has not told the uid of the namespace {CLUSTER_NAMESPACE} yet");
        self.0.name.get().map(|_| ()).ok_or_else(why)
    }

    /// Asks until there is an answer, so that the first change does not wait for it. Never ends.
    pub async fn run(self) {
        while let Err(error) = self.name().await {
            tracing::warn!(
                "cannot read the namespace {CLUSTER_NAMESPACE}, and do nothing before: {}",
                in_one_line(&error)
            );
            sleep(EVERY).await;
        }
        pending::<()>().await;
    }
}
