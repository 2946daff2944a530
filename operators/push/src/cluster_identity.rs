//! The identity that distinguishes this cluster from others in the marks of owners.

use konverge_apply::ledger::{ClusterIdentity, Unnamed};
use konverge_vault::Owner;
use kube::Client;

/// The name of an installation that may not read the uid of its cluster.
const UNNAMED: Unnamed = Unnamed {
    name: Owner::SOME_INSTANCE,
    consequence: "cannot tell this cluster from others that may use the same Vault",
    flag: "--instance",
};

/// The name that was given, or else that of the cluster. `knows_us` tells whether the API server has allowed this process anything yet.
pub fn identity(
    client: Client,
    given: Option<String>,
    knows_us: impl Fn() -> bool + Send + Sync + 'static,
) -> ClusterIdentity {
    ClusterIdentity::new(client, given, UNNAMED, knows_us)
}
