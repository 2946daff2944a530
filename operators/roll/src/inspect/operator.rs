//! The operator that works on a workload, and what it is started with.

use konverge_kubectl::{Cluster, Failure, Installation};

use super::Roll;
use crate::config::Config;

/// An operator and its settings.
pub(super) struct Operator {
    pub(super) installation: Installation,
    pub(super) config: Config,
}

/// All that are installed and can be understood.
pub(super) fn understood(installations: &[Installation]) -> impl Iterator<Item = Operator> {
    installations.iter().filter_map(|installation| {
        let config = Config::of_container(&installation.arguments, &installation.variables).ok()?;
        Some(Operator { installation: installation.clone(), config })
    })
}

/// The operator for objects of a namespace, if there is a Deployment of one that can be understood.
pub(super) async fn of_namespace(cluster: &Cluster, namespace: &str) -> Result<Option<Operator>, Failure> {
    let found = cluster.installations(&Roll).await?;
    // One for just this namespace goes before one for all.
    let mut fitting: Vec<Operator> = understood(&found)
        .filter(|operator| operator.config.namespace.as_deref().is_none_or(|only| only == namespace))
        .collect();
    fitting.sort_by_key(|operator| operator.config.namespace.is_none());
    Ok(fitting.into_iter().next())
}
