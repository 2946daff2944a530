//! The name under which the operator marks what it writes.

use konverge_apply::ledger::{CLUSTER_NAMESPACE, cluster_uid};
use konverge_kubectl::{Cluster, Failure, Installed, Permission};
use konverge_vault::Owner;

use crate::config::Config;

/// As which installation the operator marks what it writes: as it is told to, as the cluster, or as one of those that may not know which
/// cluster theirs is.
pub(super) async fn instance(cluster: &Cluster, operator: Option<&Installed<Config>>) -> Result<String, Failure> {
    if let Some(given) = operator.and_then(|operator| operator.config.push.instance.clone()) {
        return Ok(given);
    }
    if let Some(operator) = operator {
        let needed = Permission::new("", "namespaces", "get").on(CLUSTER_NAMESPACE);
        // Where that cannot be asked, it counts as what the role that is shipped allows.
        let lacking = cluster.lacking(&operator.installation, vec![needed]).await.unwrap_or_default();
        if !lacking.is_empty() {
            return Ok(Owner::SOME_INSTANCE.to_owned());
        }
    }
    match cluster_uid(&cluster.client).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Owner::SOME_INSTANCE.to_owned()),
        Err(error) => {
            let act = format!("get namespace {CLUSTER_NAMESPACE}, whose uid tells this cluster's marks in Vault");
            let failure = Failure::of(&act, &error);
            Err(Failure::Failed(format!(
                "cannot tell whose a path is: {failure}; be allowed to get it, or have the operator started with --instance"
            )))
        }
        Ok(uid) => Ok(uid),
    }
}
