//! The client of the API server.
//!
//! Building it reads files and talks to nobody, so a program starts while the API server is away. Every call has a deadline,
//! and every request is counted. No more are under way at the same time than the limit of open files has room for.

mod connections;
mod deadline;
mod places;
mod retry;

use std::{path::PathBuf, time::Duration};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::{metrics::client::ClientMetrics, open_files};
pub use connections::builder;
pub use deadline::{Deadline, DeadlineLayer, TimedBody};
use places::PlacesLayer;
use retry::RetryLayer;

/// Which API server, and how patiently.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClientOptions {
    /// A kubeconfig file; without one, what every Kubernetes program looks at: `KUBECONFIG`, `~/.kube/config`, the pod's own
    /// service account.
    pub kubeconfig: Option<PathBuf>,
    /// For connecting.
    pub connect_timeout: Duration,
    /// From sending a request to the last byte of its answer, with repetitions. The body of a watch may take for ever.
    pub call_timeout: Duration,
    /// Whether requests that the server was too busy for are repeated a few times. A server that asks for a pause of more than a second gets it: its
    /// answer is returned at once. Not for leases.
    pub retry: bool,
}

impl Default for ClientOptions {
    /// Default discovery, 5 seconds to connect, 30 seconds for a call, with repetitions.
    fn default() -> Self {
        Self {
            kubeconfig: None,
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(30),
            retry: true,
        }
    }
}

konverge_core::with!(ClientOptions);

impl ClientOptions {
    /// The same API server for calls that must be over soon or not be made at all, such as renewing a lease.
    #[must_use]
    pub fn fail_fast(&self) -> Self {
        Self { call_timeout: Duration::from_secs(5), retry: false, ..self.clone() }
    }
}

/// A client could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The named kubeconfig is missing or wrong.
    #[error("cannot use kubeconfig {}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: kube::config::KubeconfigError,
    },
    /// No configuration was found anywhere.
    #[error("found no Kubernetes configuration; set KUBECONFIG or name a file, or run in a pod with a service account")]
    Discover(#[source] Box<kube::config::InferConfigError>),
    /// The configuration holds something unusable, such as a broken certificate.
    #[error("cannot make a client from the Kubernetes configuration")]
    Build(#[source] Box<kube::Error>),
}

/// Makes a client. No request is sent.
pub async fn build(options: &ClientOptions, metrics: &ClientMetrics) -> Result<Client, ClientError> {
    let mut config = config(options).await?;
    config.connect_timeout = Some(options.connect_timeout);
    // It follows a Retry-After of any length, within the deadline and with a worker that waits.
    config.default_retry = false;
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    let builder = connections::builder(config).map_err(|error| ClientError::Build(Box::new(error)))?;
    let places = PlacesLayer::new(open_files::for_one_server());
    let builder = builder.with_layer(&places).with_layer(&metrics.for_host(&host));
    let deadline = DeadlineLayer(options.call_timeout);
    Ok(if options.retry {
        builder.with_layer(&RetryLayer).with_layer(&deadline).build()
    } else {
        builder.with_layer(&deadline).build()
    })
}

async fn config(options: &ClientOptions) -> Result<Config, ClientError> {
    let (mut config, kubeconfig) = if let Some(path) = &options.kubeconfig {
        let named = |source| ClientError::Kubeconfig { path: path.clone(), source };
        let kubeconfig = Kubeconfig::read_from(path).map_err(named)?;
        let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &KubeConfigOptions::default()).await;
        (config.map_err(named)?, Some(kubeconfig))
    } else {
        let config = Config::infer().await.map_err(|error| ClientError::Discover(Box::new(error)))?;
        (config, Kubeconfig::read().ok())
    };
    // In a pod it is known already.
    config.root_cert_file = config.root_cert_file.or_else(|| authorities(&kubeconfig?));
    Ok(config)
}

/// The file of the authorities that the API server is known by, where the kubeconfig names one and does not hold them itself. The client
/// reads it again once in a minute, as it does in a pod, so another authority needs no restart.
fn authorities(kubeconfig: &Kubeconfig) -> Option<PathBuf> {
    let current = kubeconfig.current_context.as_ref()?;
    let context = kubeconfig.contexts.iter().find(|named| named.name == *current)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|named| named.name == context.cluster)?.cluster.as_ref()?;
    let is_held = cluster.certificate_authority_data.is_some();
    cluster.certificate_authority.as_ref().filter(|_| !is_held).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named() {
        let options = ClientOptions { kubeconfig: Some("/nowhere/config".into()), ..ClientOptions::default() };
        let error = build(&options, Metrics::new("test", "0").client()).await.err().expect("an error");
        assert_eq!(error.to_string(), "cannot use kubeconfig /nowhere/config");
    }
}
