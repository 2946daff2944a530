//! The identity that distinguishes this cluster from others in the marks of owners.

use std::{future::pending, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use konverge_core::error::in_one_line;
use konverge_vault::Owner;
use kube::{Api, Client};
use tokio::{sync::OnceCell, time::sleep};

/// The namespace whose uid it is: it is there from the beginning and never deleted.
pub(crate) const NAMESPACE: &str = "kube-system";

/// Between two questions that were not answered.
const EVERY: Duration = Duration::from_secs(2);

/// The uid. An error where it may not be asked for, or where nobody answers.
pub(crate) async fn read(client: &Client) -> Result<String, kube::Error> {
    let namespace = Api::<Namespace>::all(client.clone()).get_metadata(NAMESPACE).await?;
    Ok(namespace.metadata.uid.unwrap_or_else(|| Owner::SOME_INSTANCE.to_owned()))
}

/// As which installation the program marks what it writes, once that is known. Clones know the same.
///
/// It is one name for the life of the process: under another, all that was written under the first would be somebody else's. So an API
/// server that is away is asked again, and only its word that the uid may not be known makes this one of those that do not know. That word
/// counts from one that has let us see something before: an API server that has just started forbids everything until it has read the roles.
#[derive(Clone)]
pub struct Identity(Arc<Shared>);

struct Shared {
    client: Client,
    /// Whether the API server has been seen to allow something.
    knows_us: Box<dyn Fn() -> bool + Send + Sync>,
    name: OnceCell<String>,
}

impl Identity {
    /// The name that was given, or else that of the cluster. `knows_us` is whether the API server has allowed us anything yet. Nothing is asked
    /// yet.
    pub fn new(client: Client, given: Option<String>, knows_us: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared {
            client,
            knows_us: Box::new(knows_us),
            name: given.map_or_else(OnceCell::new, |given| OnceCell::new_with(Some(given))),
        }))
    }

    /// The name. An error as long as nobody answers.
    pub(crate) async fn name(&self) -> Result<&str, kube::Error> {
        let known = self.0.name.get_or_try_init(|| async {
            let knows_us = (self.0.knows_us)();
            match read(&self.0.client).await {
                Err(kube::Error::Api(status)) if knows_us && matches!(status.code, 403 | 404) => {
                    tracing::warn!(
                        "cannot tell this cluster from others that may use the same Vault: {}. Allow the service account to get the \
                         namespace {NAMESPACE}, or give each installation a name with --instance",
                        status.message
                    );
                    Ok(Owner::SOME_INSTANCE.to_owned())
                }
                answered => answered,
            }
        });
        known.await.map(String::as_str)
    }

    /// For [`Checks::readiness`](konverge_runtime::checks::Checks::readiness).
    pub(crate) fn check(&self) -> Result<(), String> {
        let why = || format!("the API server has not told the uid of the namespace {NAMESPACE} yet");
        self.0.name.get().map(|_| ()).ok_or_else(why)
    }

    /// Asks until there is an answer, also where nothing is to be done that needs it, so that the first change does not wait for it.
    pub(crate) async fn run(self) {
        while let Err(error) = self.name().await {
            tracing::warn!("cannot read the namespace {NAMESPACE}, and do nothing before: {}", in_one_line(&error));
            sleep(EVERY).await;
        }
        pending::<()>().await;
    }
}
