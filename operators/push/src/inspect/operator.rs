//! The operator that works on an object, and what it is started with.

use konverge_kubectl::{Cluster, Failure, Installation, Permission};
use konverge_vault::Owner;

use super::Push;
use crate::{cluster_identity, config::Config};

/// An operator and its settings.
pub(super) struct Operator {
    pub(super) installation: Installation,
    pub(super) config: Config,
}

/// The operator for objects of a namespace, if there is a Deployment of one that can be understood.
pub(super) async fn of_namespace(cluster: &Cluster, namespace: &str) -> Result<Option<Operator>, Failure> {
    let found = cluster.installations(&Push).await?;
    let understood = found.into_iter().filter_map(|installation| {
        let config = Config::of_container(&installation.arguments, &installation.variables).ok()?;
        Some(Operator { installation, config })
    });
    // One for just this namespace goes before one for all.
    let mut fitting: Vec<Operator> = understood
        .filter(|operator| operator.config.namespace.as_deref().is_none_or(|only| only == namespace))
        .collect();
    fitting.sort_by_key(|operator| operator.config.namespace.is_none());
    Ok(fitting.into_iter().next())
}

/// As which installation the operator marks what it writes: as it is told to, as the cluster, or as one of those that may not know which
/// cluster theirs is.
pub(super) async fn instance(cluster: &Cluster, operator: Option<&Operator>) -> Result<String, Failure> {
    if let Some(given) = operator.and_then(|operator| operator.config.instance.clone()) {
        return Ok(given);
    }
    if let Some(operator) = operator {
        let needed = Permission::new("", "namespaces", "get").on(cluster_identity::NAMESPACE);
        // Where that cannot be asked, it counts as what the role that is shipped allows.
        let lacking = cluster.lacking(&operator.installation, vec![needed]).await.unwrap_or_default();
        if !lacking.is_empty() {
            return Ok(Owner::SOME_INSTANCE.to_owned());
        }
    }
    match cluster_identity::read(&cluster.client).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Owner::SOME_INSTANCE.to_owned()),
        Err(error) => {
            let act =
                format!("get namespace {}, whose uid tells this cluster's marks in Vault", cluster_identity::NAMESPACE);
            let failure = Failure::of(&act, &error);
            Err(Failure::Failed(format!(
                "cannot tell whose a path is: {failure}; be allowed to get it, or have the operator started with --instance"
            )))
        }
        Ok(uid) => Ok(uid),
    }
}
